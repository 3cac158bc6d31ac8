"""Replay memory: its size, and its cost in time."""
