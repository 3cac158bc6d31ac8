#!/usr/bin/env python
"""Figure 1 of the paper, learning a sine in two stages: `medqn reproduce fig1` as a script."""

import sys

from medqn_tianshou.commands.figures.sine import main

if __name__ == "__main__":
    sys.exit(main(prog="python lowdim/sine.py"))
