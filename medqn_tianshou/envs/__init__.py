"""Environments: Atari on two backends, and small games."""
