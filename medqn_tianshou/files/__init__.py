"""What is saved to disk: atomic writes, the checked container, random generators as plain data."""
