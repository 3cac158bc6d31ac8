#!/usr/bin/env python
"""Train MeDQN, or DQN, on a low-dimensional task: `medqn train lowdim` as a script."""

import sys

from medqn_tianshou.experiments.lowdim import main

if __name__ == "__main__":
    sys.exit(main())
