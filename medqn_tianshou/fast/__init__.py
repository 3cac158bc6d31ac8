"""Faster paths with the same results. The rest of the package works without them."""
