"""The experiments' settings as data: one TOML file per family, each value with its source.

A file has values for all runs of the family in ``[common]``, and, each winning over those before,
values of an algorithm (``[algo.<algo>]``), a task (``[task.<task>.common]``) and both
(``[task.<task>.<algo>]``). Its ``[sources]`` say what each source means. The modules beside the
files declare the same settings as typed classes.
"""

from dataclasses import replace

from medqn_tianshou.experiments.settings.atari import AtariOptions, AtariSettings
from medqn_tianshou.experiments.settings.env_clock import (
    EnvClockSettings,
    LowDimSettings,
    MinAtarSettings,
)
from medqn_tianshou.experiments.settings.files import (
    algorithms,
    as_setting,
    describe_default,
    load_settings,
    resolve_settings,
)
from medqn_tianshou.experiments.settings.gymnasium import GymSettings
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import field_specs
from medqn_tianshou.training.run_config import RunConfig
from medqn_tianshou.training.settings import Setting, Settings, TrainingSettings

__all__ = [
    "SETTINGS_CLASSES",
    "AtariOptions",
    "AtariSettings",
    "EnvClockSettings",
    "GymSettings",
    "LowDimSettings",
    "MinAtarSettings",
    "Setting",
    "Settings",
    "algorithms",
    "check_values",
    "describe_default",
    "family_of",
    "load_settings",
    "resolve_settings",
    "settings_of",
]

SETTINGS_CLASSES: dict[str, type[TrainingSettings]] = {
    cls.family: cls for cls in (AtariSettings, MinAtarSettings, LowDimSettings, GymSettings)
}
"""The settings classes by the names of their families."""


def family_of(config: RunConfig) -> str:
    """Return the family of a run; a run folder of an earlier version does not name it.

    :raises ConfigError: if it is none of this version's.
    """
    if config.family in SETTINGS_CLASSES:
        return config.family
    if config.family is not None:
        raise ConfigError("family", config.family, "is unknown to this version; name another run")
    for family in ("lowdim", "minatar"):
        if config.task in load_settings(family)["task"]:
            return family
    if "frames_stack" in config.settings:
        return AtariSettings.family
    raise ConfigError("task", config.task, "is unknown to this version; name another run")


def check_values(config: RunConfig) -> None:
    """Check the values of a run, each alone; those that this version does not know may be any.

    :raises ConfigError: for one that a run cannot have.
    """
    settings_class = SETTINGS_CLASSES[family_of(config)]
    if config.algo not in algorithms(settings_class.family):
        raise ConfigError("algo", config.algo, "is unknown to this version; name another run")
    for name, spec in field_specs(settings_class).items():
        if name in config.settings:
            spec.check(as_setting(config.settings[name].value))


def settings_of(config: RunConfig) -> TrainingSettings:
    """Return the settings that a run was trained with.

    Settings that this version does not have are left out; those that the run does not have are
    this version's.

    :raises ConfigError: if the values do not fit.
    """
    settings_class = SETTINGS_CLASSES[family_of(config)]
    default = resolve_settings(settings_class, task=config.task, algo=config.algo)
    known = {name: s for name, s in config.settings.items() if name in default.sources}
    return replace(
        default,
        seed=config.seed,
        sources={**default.sources, **{name: setting.source for name, setting in known.items()}},
        **{name: as_setting(setting.value) for name, setting in known.items()},
    )
