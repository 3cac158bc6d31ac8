"""Figures 1 and 2 of the paper, which show other things than learning curves."""
