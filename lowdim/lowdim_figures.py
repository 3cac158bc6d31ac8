#!/usr/bin/env python
"""Figures 3 and 4 of the paper: `medqn reproduce` as a script."""

import sys

from medqn_tianshou.experiments.lowdim_figures import FIGURES
from medqn_tianshou.reproduce import main

if __name__ == "__main__":
    sys.exit(main(FIGURES))
