"""``python -m medqn_tianshou`` is the command ``medqn``."""

import sys

from medqn_tianshou.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
