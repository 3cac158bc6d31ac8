"""The command ``medqn``: train, reproduce, evaluate, play, and see what a machine lacks."""
