#!/usr/bin/env python
"""Figures 3 and 4 of the paper: `medqn reproduce` as a script."""

import sys

from medqn_tianshou.commands.reproduce import main
from medqn_tianshou.experiments.figures import load_figures

if __name__ == "__main__":
    sys.exit(main(load_figures("lowdim")))
