#!/usr/bin/env python
"""Train MeDQN, or DQN, on a MinAtar game: `medqn train minatar` as a script."""

import sys

from medqn_tianshou.experiments.minatar import main

if __name__ == "__main__":
    sys.exit(main())
