#!/usr/bin/env python
"""Figure 2 of the paper, forgetting in MountainCar: `medqn reproduce fig2` as a script."""

import sys

from medqn_tianshou.commands.figures.forgetting import main

if __name__ == "__main__":
    sys.exit(main(prog="python lowdim/forgetting.py"))
