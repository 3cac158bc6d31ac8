"""``medqn sweep``: many runs from one file, on this machine or on Ray."""
