"""The installed Tianshou, 1.2 or 2.0: what differs between them, under one set of names."""

from importlib.metadata import version

TIANSHOU = int(version("tianshou").partition(".")[0])
"""The major version. Nothing else in the package asks for it: see :mod:`medqn_tianshou.host.api`
for what follows from it."""
