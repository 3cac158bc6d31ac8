"""Which memory format, optimizer, number of threads and compiler are fastest on the CPU."""

import copy
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks.report import Part, Result, Section, Table
from benchmarks.speed.contestants import take_turns
from medqn_tianshou import MinAtarQNetwork, MLPQNetwork, NatureQNetwork
from medqn_tianshou.algorithm.networks import QNetwork
from medqn_tianshou.fast.optimizers import FusedRMSprop

STATES = 64
"""A mini-batch of transitions and as many states to consolidate on."""
OBSERVATIONS: dict[str, Callable[[np.random.Generator], Any]] = {
    "atari": lambda generator: generator.integers(256, size=(STATES, 4, 84, 84), dtype=np.uint8),
    "minatar": lambda generator: generator.random((STATES, 4, 10, 10)) < 0.1,
    "mountaincar": lambda generator: generator.random((STATES, 2), np.float32),
}
ACTIONS = {"atari": 6, "minatar": 6, "mountaincar": 3}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, foreach=False),
    "Adam, foreach": lambda parameters: torch.optim.Adam(parameters, foreach=True),
    "Adam, fused": lambda parameters: torch.optim.Adam(parameters, fused=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, centered=True, foreach=False),
    "RMSprop, foreach": lambda parameters: torch.optim.RMSprop(
        parameters, centered=True, foreach=True
    ),
    "FusedRMSprop": lambda parameters: FusedRMSprop(parameters, centered=True),
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How a network of a family is trained."""

    family: str
    optimizer: str
    channels_last: bool = False
    threads: int
    compiled: bool = False

    def cells(self) -> tuple[str, ...]:
        """Return it as a row of the table."""
        return (
            self.family,
            "channels last" if self.channels_last else "contiguous",
            self.optimizer,
            str(self.threads),
            "yes" if self.compiled else "no",
        )


def choices(cores: int) -> list[Choice]:
    """List the choices to compare: our defaults first, then each option changed alone.

    :param cores: the number of threads that our Atari script leaves torch to choose.
    """
    atari = Choice(family="atari", optimizer="Adam, fused", channels_last=True, threads=cores)
    minatar = Choice(family="minatar", optimizer="FusedRMSprop", threads=1)
    car = Choice(family="mountaincar", optimizer="Adam, fused", threads=1)
    adams, rmsprops = ("Adam", "Adam, foreach"), ("RMSprop", "RMSprop, foreach")
    changed: list[Choice] = []
    for default, optimizers in ((atari, adams), (minatar, rmsprops), (car, adams)):
        changed.append(default)
        if default.family != "mountaincar":
            changed.append(replace(default, channels_last=not default.channels_last))
        changed += [replace(default, optimizer=optimizer) for optimizer in optimizers]
        if cores > 1:
            changed.append(replace(default, threads=cores + 1 - default.threads))
        changed.append(replace(default, compiled=True))
    return changed


def make_update(choice: Choice) -> tuple[QNetwork, Callable[[], None]]:
    """Make a network, and MeDQN's gradient step of it, for a choice."""
    torch.manual_seed(0)
    obs = OBSERVATIONS[choice.family](np.random.default_rng(0))
    shape, actions = obs.shape[1:], ACTIONS[choice.family]
    network: QNetwork
    if choice.family == "atari":
        network = NatureQNetwork(
            observation_shape=shape, action_count=actions, channels_last=choice.channels_last
        )
    elif choice.family == "minatar":
        network = MinAtarQNetwork(observation_shape=shape, action_count=actions)
        if choice.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    else:
        network = MLPQNetwork(observation_shape=shape, action_count=actions)
    target = copy.deepcopy(network)
    optimizer = OPTIMIZERS[choice.optimizer](network.parameters())
    if choice.compiled:
        network.compile(dynamic=False)
        target.compile(dynamic=False)

    def update() -> None:
        torch.set_num_threads(choice.threads)
        tensor = torch.as_tensor(obs)
        with torch.no_grad():
            wanted = target(tensor)[0] + 1
        loss = F.mse_loss(network(tensor)[0], wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return network, update


def measure_options(sizes: Any) -> Result:
    """Time an update for each choice, those of a family in turns."""
    threads = torch.get_num_threads()
    rows: list[Result] = []
    everything = choices(threads)
    for family in OBSERVATIONS:
        own = [choice for choice in everything if choice.family == family]
        repeats = 1 if family == "atari" else 20
        actions = {
            " | ".join(choice.cells()): _repeated(make_update(choice)[1], repeats) for choice in own
        }
        seconds = take_turns(actions, turns=sizes.option_turns, dropped=5)
        torch.set_num_threads(threads)
        milliseconds = [1e3 * median(taken) / repeats for taken in seconds.values()]
        rows += [
            {"choice": choice.cells(), "ms": value, "ratio": value / milliseconds[0]}
            for choice, value in zip(own, milliseconds, strict=True)
        ]
    figures = {f"option_{_snake(row['choice'])}_ms": row["ms"] for row in rows}
    return {"figures": figures, "rows": rows}


def _snake(words: Iterable[str]) -> str:
    return re.sub(r"[^a-z0-9]+", "_", "_".join(words).lower())


def _repeated(action: Callable[[], None], times: int) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(times):
            action()

    return repeat


def show_options(result: Result) -> Section:
    """Show what each option costs."""
    rows = [(*row["choice"], f"{row['ms']:.2f}", f"{row['ratio']:.2f}") for row in result["rows"]]
    header = ("network", "memory format", "optimizer", "threads", "torch.compile", "ms", "ratio")
    return Section(
        title="Options, one at a time",
        tables=[Table(header, rows)],
        notes=(
            f"One gradient step on {STATES} states and one pass of the target network over as many "
            "states, without replay. The first row of each network is our default; the ratio is "
            "the time relative to it. All rows use torch. For small networks, our scripts use "
            "compiled code instead, which the sections above measure."
        ),
    )


OPTIONS = Part(measure_options, show_options)
