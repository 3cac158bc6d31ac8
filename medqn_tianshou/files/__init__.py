"""Files on disk: atomic writes, the checked container, locks, and generator states as data."""
