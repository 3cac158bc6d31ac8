"""Environments: Atari, MinAtar, Catcher and Pixelcopter, and their saved state."""
