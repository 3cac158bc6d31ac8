#!/usr/bin/env python
"""Figure 5 and Tables 1 and 2 of the paper: `medqn reproduce` as a script."""

import sys

from medqn_tianshou.commands.reproduce import main
from medqn_tianshou.experiments.figures import load_figures

if __name__ == "__main__":
    sys.exit(main(load_figures("minatar")))
