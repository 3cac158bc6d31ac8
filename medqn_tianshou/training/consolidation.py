"""The settings of the consolidation: its weight, its distance and its states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import CONSOLIDATION, MOST_STEPS, Count, Flag, Range, Weight

# The same choices and limits as in the algorithm, whose modules load torch.
LOW, HIGH = 0.001, 8.0
Sampling = Literal["real", "uniform", "mixed", "reservoir"]
LambdaSchedule = Literal["linear", "auto"]
ConsolidationKind = Literal["mse", "huber", "kl"]
Reduction = Literal["mean", "sum"]

DRIFT = 0.1
"""The default set point of an adaptive lambda (our choice)."""
STATE_BUFFER_SIZE = 10_000
"""The default number of states in a reservoir (our choice)."""


@dataclass(frozen=True, kw_only=True)
class ConsolidationSettings:
    """The settings of the consolidation, which all families share."""

    lambda_schedule: Annotated[
        LambdaSchedule,
        Flag(
            "linear: from --lambda-start to --lambda-end; auto: from --lambda-start, then adapted "
            "so that the drift between the networks stays at --drift",
            CONSOLIDATION,
            "linear",
            name="--lambda",
        ),
    ]
    drift: Annotated[
        float | None,
        Range(above=0),
        Flag(
            "with --lambda auto: the distance of the networks on the states, relative to the "
            "standard deviation of the values",
            CONSOLIDATION,
            f"{DRIFT}",
        ),
    ]
    lambda_start: Annotated[
        Weight, Flag("weight of the consolidation loss at the start", CONSOLIDATION)
    ]
    lambda_end: Annotated[Weight, Flag("weight after --lambda-steps", CONSOLIDATION)]
    lambda_steps: Annotated[
        Count,
        Flag(
            "env steps from the first weight to the last, whatever the length of the run",
            CONSOLIDATION,
        ),
    ]
    consolidation_epochs: Annotated[
        int,
        Range(at_least=1, at_most=10_000),
        Flag("E: gradient steps per mini-batch", CONSOLIDATION),
    ]
    consolidation_batch_size: Annotated[
        int,
        Range(at_least=1, at_most=1_000_000),
        Flag("states per gradient step", CONSOLIDATION, "batch-size"),
    ]
    consolidation_loss: Annotated[
        ConsolidationKind, Flag("distance to the target network", CONSOLIDATION)
    ]
    consolidation_reduction: Annotated[
        Reduction,
        Flag("over actions: mean as released, or sum as in the paper's equation", CONSOLIDATION),
    ]
    sampling: Annotated[
        Sampling,
        Flag(
            "states to consolidate on: real as MeDQN(R), uniform as MeDQN(U), mixed: half of each, "
            "or reservoir: a uniform sample of all states ever seen",
            CONSOLIDATION,
        ),
    ]
    state_buffer_size: Annotated[
        int | None,
        Range(at_least=1, at_most=MOST_STEPS),
        Flag("states in the reservoir", CONSOLIDATION, f"{STATE_BUFFER_SIZE:_}"),
    ]

    @classmethod
    def derive_consolidation(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the defaults that follow from other values."""
        reservoir = values["sampling"] == "reservoir"
        adaptive = values.get("lambda_schedule") == "auto"
        return {
            "lambda_schedule": "linear",
            "drift": DRIFT if adaptive else None,
            "consolidation_batch_size": values["batch_size"],
            "state_buffer_size": STATE_BUFFER_SIZE if reservoir else None,
        }

    def check_consolidation(self) -> None:
        """Check the values against each other."""
        if self.drift is not None and self.lambda_schedule != "auto":
            remedy = "has no effect with a linear lambda; add --lambda auto, or leave it out"
            raise ConfigError("drift", self.drift, remedy)
        if self.lambda_schedule == "auto" and not LOW <= self.lambda_start <= HIGH:
            remedy = f"is not within {LOW:g} to {HIGH:g}, the limits of --lambda auto"
            raise ConfigError("lambda_start", self.lambda_start, remedy)
        size = self.state_buffer_size
        if size is not None and self.sampling != "reservoir":
            remedy = "has no effect without a reservoir; add --sampling reservoir, or leave it out"
            raise ConfigError("state_buffer_size", size, remedy)
