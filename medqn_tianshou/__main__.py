"""``python -m medqn_tianshou`` is the command ``medqn``."""

import sys

from medqn_tianshou.commands.edge import loading


def console() -> int:
    """Run the process's command line."""
    with loading():
        from medqn_tianshou.commands.main import console as run

    return run()


if __name__ == "__main__":
    sys.exit(console())
