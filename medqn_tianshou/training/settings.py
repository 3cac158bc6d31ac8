"""The settings of a run, which determine how it learns, each value with its source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, ClassVar, Literal

from medqn_tianshou.envs.registration import task_key
from medqn_tianshou.training.consolidation import ConsolidationSettings
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import (
    DQN,
    FILES,
    RUN,
    SPEED,
    Count,
    CountOrZero,
    Flag,
    Range,
    Share,
    check_fields,
    field_specs,
)
from medqn_tianshou.training.memory import parse_bytes
from medqn_tianshou.training.options import RunOptions

# The same choices as in the networks and the replay buffers, whose modules load torch.
Replay = Literal["compact", "raw"]
Optimizer = Literal["adam", "rmsprop", "rmsprop-centered"]
Initialization = Literal["torch", "kaiming", "kaiming-output"]

Head = Annotated[
    Literal["dqn", "qr", "c51", "iqn"],
    Flag("what the network predicts: values, or distributions as in QR-DQN, C51 or IQN", DQN),
]

REPLAY_FREE = ("pqn", "stream-q")
"""Algorithms without a replay buffer, which have a training loop of their own."""
NAMES = ("task", "algo", "seed")
"""The settings that name a run; all other values have a source."""


@dataclass(frozen=True)
class Setting:
    """A value and its source: a key of the file's ``[sources]``, ``flag`` or ``derived``."""

    value: Any
    source: str


Settings = dict[str, Setting]
_MOST_BYTES = 10**18


def memory_size(text: str) -> int:
    """Read a number of bytes such as ``800M``."""
    size = parse_bytes(text)
    if not 0 < size <= _MOST_BYTES:
        raise ValueError(f"{text!r} must be more than 0 bytes and at most 1000000T")
    return size


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(ConsolidationSettings):
    """The settings that all families share. Each value is checked, alone and against the others.

    :raises ConfigError: if a value does not fit.
    """

    family: ClassVar[str]
    """The name of the family, also that of its settings file."""
    summary: ClassVar[str]
    """The family's tasks in a few words."""
    description: ClassVar[str]
    """The description of the family in ``--help``, with examples."""
    default_task: ClassVar[str]
    process_nbytes: ClassVar[int]
    """The memory of a run without its replay buffer, with torch for the CPU: the measured peak
    (docs/results/memory), and a tenth more."""
    # Where these are no settings of the family.
    optimizer, max_grad_norm, return_window, head = "adam", 0.0, 100, "dqn"
    options_class: ClassVar[type[RunOptions]] = RunOptions
    shorthands: ClassVar[type] = make_dataclass("NoShorthands", ())
    """Flags that stand for several settings, as a dataclass; :meth:`expand` replaces them."""
    other_algorithm_names: ClassVar[Mapping[str, str]] = {}
    """Earlier names of algorithms, which are still understood."""
    warmup_counts: ClassVar[bool] = False
    """Whether the random steps before the first update are the first of the run's steps, as in the
    paper's low-dimensional and MinAtar experiments, or come before them, as in Tianshou's Atari
    example."""

    task: Annotated[str, Flag("the task", RUN)]
    algo: Annotated[str, Flag("the algorithm", RUN)]
    seed: Annotated[
        CountOrZero, Flag("seeds environments, exploration, replay and torch", RUN, "0")
    ]

    buffer_size: Annotated[Count, Flag("transitions in the replay buffer", DQN)]
    batch_size: Annotated[
        int, Range(at_least=1, at_most=1_000_000), Flag("transitions per update", DQN)
    ]
    lr: Annotated[float, Range(above=0), Flag("learning rate", DQN)]
    gamma: Annotated[Share, Flag("discount factor", DQN)]
    n_step: Annotated[
        int,
        Range(at_least=1, at_most=10_000),
        Flag("steps of reward before bootstrapping", DQN),
    ]
    step_per_collect: Annotated[Count, Flag("C_current: environment steps between updates", DQN)]
    warmup_steps: Annotated[Count, Flag("environment steps before the first update", DQN)]
    eps_train: Annotated[Share, Flag("first exploration rate", DQN)]
    eps_train_final: Annotated[Share, Flag("last exploration rate", DQN)]
    eps_decay_steps: Annotated[Count, Flag("environment steps from the first to the last", DQN)]
    eps_test: Annotated[Share, Flag("exploration rate in evaluations", DQN)]
    double: Annotated[bool, Flag("double DQN targets", DQN)]
    dueling: Annotated[bool, Flag("dueling network", DQN)]
    huber: Annotated[bool, Flag("Huber TD loss instead of squared error", DQN)]

    overlap: Annotated[
        bool,
        Flag("collect the next steps during the update, with the weights from before it", SPEED),
    ]
    threads: Annotated[
        int,
        Range(at_least=0, at_most=1024),
        Flag("number of CPU threads for torch; 0: torch's default", SPEED),
    ]
    replay: Annotated[
        Replay,
        Flag("compact: lossless, in a fraction of the memory; raw: Tianshou's own buffer", FILES),
    ]
    memory: Annotated[
        int | None,
        Range(at_least=1, at_most=2**60),
        Flag(
            "maximum memory of the whole process, e.g. 600M; the run plans its buffer accordingly, "
            "and a compact buffer evicts its oldest transitions at 90% of it (default: no budget)",
            FILES,
            parse=memory_size,
        ),
    ]
    memory_cap: Annotated[
        int | None,
        Range(at_least=1, at_most=2**60),
        Flag(
            "maximum memory of the replay buffer, e.g. 800M or 1.5G (default: the free memory); "
            "a compact buffer stores as many transitions as fit, and evicts the oldest when the "
            "process nears the cap, unless the cap is below the size of a process without a buffer",
            FILES,
            parse=memory_size,
        ),
    ]
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The source of each value but those of :data:`NAMES`."""

    def __post_init__(self) -> None:
        check_fields(self)
        self.check()

    def check(self) -> None:
        """Check the values against each other."""
        self.check_consolidation()
        if self.head != "dqn":
            ours = "the distributional heads"
            self.require(not self.dueling, "dueling", f"is not for {ours}; use --head dqn")
            self.require(not self.overlap, "overlap", f"is not for {ours}; leave it out")
            remedy = f"is for values; {ours} have a distance of their own, leave it out"
            self.require(self.consolidation_loss == "mse", "consolidation_loss", remedy)
        self.require(
            self.buffer_size >= self.batch_size,
            "buffer_size",
            f"is less than a batch; use at least {self.batch_size} or a smaller --batch-size",
        )

    def require(self, condition: bool, setting: str, remedy: str) -> None:
        """Raise :class:`ConfigError` for a setting unless a condition is true."""
        if not condition:
            raise ConfigError(setting, getattr(self, setting), remedy)

    @classmethod
    def canonical_task(cls, task: str, known: list[str]) -> str:
        """Return the one name of a task that may be spelt in other ways, such as ``breakout``.

        :param known: the tasks in the family's settings file.
        """
        return {task_key(name): name for name in known}.get(task_key(task), task)

    @classmethod
    def check_task(cls, task: str, known: list[str]) -> None:
        """Refuse a task that the family does not have.

        :param known: the tasks in the family's settings file.
        """

    @classmethod
    def expand(cls, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the shorthands among values given by hand."""
        return dict(overrides)

    @classmethod
    def derive(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the defaults that follow from other values."""
        return {
            **cls.derive_consolidation(values),
            "memory": None,
            "memory_cap": None,
        }

    def written(self) -> dict[str, dict[str, Any]]:
        """Return each value with its source, by name, as ``config.json`` stores them."""
        names = sorted(field_specs(type(self)).keys() - {*NAMES, "sources"})
        return {
            name: {"value": getattr(self, name), "source": self.sources.get(name, "flag")}
            for name in names
        }

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of a run: its names and all values, as in JSON."""
        names = field_specs(type(self)).keys() - {"sources"}
        return dict(json.loads(json.dumps({name: getattr(self, name) for name in names})))

    @property
    def run_names(self) -> tuple[str, ...]:
        """The folders that lead to the run's folder."""
        return self.task, self.algo, str(self.seed)

    @property
    def warning(self) -> str | None:
        """A warning about the values for the user."""
        return None

    @property
    def uses_whole_buffer(self) -> bool:
        """Whether an update takes all transitions instead of a sample: MeDQN(U)'s one batch."""
        only_one_batch = self.buffer_size == self.batch_size
        return only_one_batch and self.sampling in ("uniform", "reservoir")

    @property
    def env_count(self) -> int:
        """Training environments."""
        return 1

    @property
    def test_env_num(self) -> int:
        """Environments that an evaluation plays in at a time."""
        return 1

    @property
    def buffer_options(self) -> dict[str, Any]:
        """Further arguments of the replay buffer."""
        return {}

    # What the training loop needs, and families express differently.

    @property
    def total_env_steps(self) -> int:
        """The length of the run."""
        raise NotImplementedError

    @property
    def env_steps_per_epoch(self) -> int:
        """Environment steps between evaluations; there is one at the end, too."""
        raise NotImplementedError

    @property
    def updates_per_env_step(self) -> float:
        """Updates per environment step."""
        return 1 / self.step_per_collect

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of the run, without the steps of its warm-up taken off."""
        return round(self.total_env_steps * self.updates_per_env_step * self.consolidation_epochs)

    @property
    def episodes_per_evaluation(self) -> int:
        """Episodes per evaluation."""
        raise NotImplementedError

    @property
    def target_copy_gradient_steps(self) -> int | None:
        """Gradient steps between copies to the target network, where it counts these."""
        return None

    @property
    def target_copy_env_steps(self) -> int | None:
        """The paper's C_target: environment steps between copies, where it counts these."""
        return None
