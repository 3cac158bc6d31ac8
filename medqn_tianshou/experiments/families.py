"""The families of experiments by name."""

from typing import Any

from medqn_tianshou.experiments.atari import ATARI
from medqn_tianshou.experiments.family import Family
from medqn_tianshou.experiments.gymnasium import GYM
from medqn_tianshou.experiments.lowdim import LOWDIM
from medqn_tianshou.experiments.minatar import MINATAR

FAMILIES: dict[str, Family[Any]] = {family.name: family for family in (ATARI, MINATAR, LOWDIM, GYM)}
