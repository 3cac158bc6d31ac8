#!/usr/bin/env python
"""Train MeDQN, or DQN, on an Atari game: `medqn train atari` as a script."""

import sys

from medqn_tianshou.experiments.atari import main

if __name__ == "__main__":
    sys.exit(main())
