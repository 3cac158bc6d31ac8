"""``python -m medqn_tianshou`` is the command ``medqn``."""

import sys

from medqn_tianshou.commands.main import console

if __name__ == "__main__":
    sys.exit(console())
