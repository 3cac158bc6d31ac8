"""How much of the machine's arithmetic the update of a small network reaches."""

from collections.abc import Callable
from copy import deepcopy
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.data import Batch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.report import Part, Result, Section, Table
from benchmarks.speed.contestants import take_turns
from benchmarks.speed.ratios import known_ratios
from medqn_tianshou.algorithm.networks import (
    MinAtarQNetwork,
    MLPQNetwork,
    NatureQNetwork,
    QNetwork,
)
from medqn_tianshou.envs.minatar import MinAtarEnv
from medqn_tianshou.experiments.atari import ATARI
from medqn_tianshou.fast.batches import MiniBatch
from medqn_tianshou.fast.known import KnownNetwork
from medqn_tianshou.fast.learner import SmallLearner
from medqn_tianshou.files.parameters import read_parameters
from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
from medqn_tianshou.training.build import build_policy, optimizer_of

BATCH = 32
SIDE = 1024
LIT = {"breakout": 0.08, "seaquest": 0.013}
"""The share of cells that are on in a frame of random play."""


def measure(sizes: Any) -> Result:
    """Time updates and products of matrices in turns, on one thread."""
    grids = {
        "breakout": _new_network(4, 3, LIT["breakout"]),
        "seaquest": _new_network(10, 6, LIT["seaquest"]),
        "breakout_trained": _trained_network(),
    }
    updates = {
        **{name: _grid(*grid) for name, grid in grids.items()},
        "mountaincar": _vector(),
        "atari": _frames(),
    }
    matrix = torch.randn(SIDE, SIDE)
    actions: dict[str, Callable[[], None]] = {name: act for name, (act, _) in updates.items()}
    actions["mm"] = lambda: (torch.mm(matrix, matrix), None)[1]
    operations = {name: count for name, (_, count) in updates.items()} | {"mm": 2.0 * SIDE**3}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = take_turns(actions, turns=10 * sizes.turns, dropped=5)
    finally:
        torch.set_num_threads(threads)
    return {
        "figures": {
            f"arithmetic_{name}_gflops": operations[name] / median(times) / 1e9
            for name, times in seconds.items()
        },
        "microseconds": {name: 1e6 * median(times) for name, times in seconds.items()},
        "operations": operations,
        "active": {name: _active_share(*grid) for name, grid in grids.items()},
    }


def show(result: Result) -> Section:
    """Show the share of each update."""
    figures, best = result["figures"], result["figures"]["arithmetic_mm_gflops"]
    active = result.get("active", {})  # files of earlier versions lack it
    rows = [
        (
            name,
            f"{taken:,.0f}",
            f"{result['operations'][name] / 1e6:,.2f}",
            f"{figures[f'arithmetic_{name}_gflops']:.1f}",
            f"{figures[f'arithmetic_{name}_gflops'] / best:.0%}",
            f"{active[name]:.0%}" if name in active else "",
        )
        for name, taken in result["microseconds"].items()
    ]
    return Section(
        title="Arithmetic of an update",
        tables=[
            Table(("", "us, median", "million operations", "GFLOP/s", "of torch.mm", "not 0"), rows)
        ],
        notes=(
            "One thread. Operations are the multiplications and additions of all layers without "
            f"sparsity: one pass of the target network over {BATCH} successors and, for each "
            "epoch, the forward and backward pass over the batch and the consolidation states, and "
            "the optimizer step. MinAtar: DQN; MountainCar: MeDQN(U) with E 4; Atari: MeDQN(R) as "
            "in `make train`, including the read from the buffer; torch counts its operations. "
            "Not 0: the share of the outputs of MinAtar's convolution that are not 0; the layer "
            "after it skips the others. `breakout_trained` is the policy of `zoo/breakout` on "
            "frames of random play."
        ),
        targets=[ratio.target(figures) for ratio in known_ratios(figures)],
    )


def _new_network(channels: int, actions: int, lit: float) -> tuple[QNetwork, Any]:
    """Return a network, and cells of a batch and its successors."""
    generator = np.random.default_rng(0)
    network = MinAtarQNetwork(observation_shape=(channels, 10, 10), action_count=actions)
    return network, generator.random((2, BATCH, channels, 10, 10)) < lit


def _trained_network() -> tuple[QNetwork, Any]:
    """Return the network of the zoo, and frames of random play, in a random order."""
    env, shape = MinAtarEnv(game="breakout"), (4, 10, 10)
    policy = read_parameters(Path(__file__).parents[2] / "zoo/breakout/policy_last.safetensors")
    network = MinAtarQNetwork(observation_shape=shape, action_count=6)
    network.load_state_dict({name.removeprefix("model."): own for name, own in policy.items()})
    generator = np.random.default_rng(0)
    frames = [env.reset(seed=0)[0]]
    while len(frames) < 20 * BATCH:
        frame, _, is_over, *_ = env.step(generator.integers(6))
        frames.append(env.reset()[0] if is_over else frame)
    chosen = generator.choice(np.stack(frames), 2 * BATCH, replace=False)
    return network, chosen.reshape(2, BATCH, *chosen.shape[1:])


def _active_share(network: Any, cells: Any) -> float:
    with torch.no_grad():
        return float((network.features(torch.as_tensor(cells[0]).float()) != 0).float().mean())


def _grid(network: QNetwork, cells: Any) -> tuple[Callable[[], None], float]:
    return _update(network, "rmsprop-centered", cells, None, epochs=1, places=64)


def _vector() -> tuple[Callable[[], None], float]:
    generator = np.random.default_rng(0)
    network = MLPQNetwork(observation_shape=(2,), action_count=3)
    obs = generator.normal(size=(2, BATCH, 2)).astype(np.float32)
    states = generator.normal(size=(4 * BATCH, 2)).astype(np.float32)
    return _update(network, "adam", obs, states, epochs=4)


def _frames() -> tuple[Callable[[], None], float]:
    settings = ATARI.settings()
    frames = np.random.default_rng(0).integers(0, 256, (4 * BATCH, 84, 84), np.uint8)
    options = settings.buffer_options
    buffer = CompactVectorReplayBuffer(len(frames), 1, **options)
    for frame in frames:
        step = {"obs": frame[None, None], "act": [0], "rew": [0.0], "obs_next": frame[None, None]}
        buffer.add(Batch(**step, terminated=[False], truncated=[False], info=Batch()))
    space = gym.spaces.Box(0, 255, (settings.frames_stack, 84, 84), np.uint8)
    network = NatureQNetwork(observation_shape=space.shape, action_count=6, channels_last=True)
    policy = build_policy(
        settings,
        model=network,
        observation_space=space,
        action_space=gym.spaces.Discrete(6),
        sampler_seed=0,
    )
    policy.set_consolidation_coef(1.0)
    policy.is_within_training_step = True

    def update() -> None:
        policy.update(sample_size=BATCH, buffer=buffer)

    update()  # copies the network to its target network
    with FlopCounterMode(display=False) as counter:
        update()
    return update, float(counter.get_total_flops())


def _update(
    network: QNetwork, optimizer: str, obs: Any, states: Any, *, epochs: int, places: int = 1
) -> tuple[Callable[[], None], float]:
    """Return an update of a network, and the number of its operations."""
    target: Any = KnownNetwork.of(deepcopy(network), flatten=True)
    online: Any = KnownNetwork.of(network, flatten=True)
    learner = SmallLearner()
    optimizer_class, arguments = optimizer_of(optimizer, 1e-4)
    learner.suits(online, target, optimizer_class(network.parameters(), **arguments))
    batch = MiniBatch(
        obs[0], np.zeros(BATCH, np.int64), np.zeros(BATCH), np.full(BATCH, 0.99), obs[1], states
    )

    def update() -> None:
        learner.update(
            batch,
            target.flat,
            epochs=epochs,
            gradient_steps=1,
            sync_interval=2**62,
            double=False,
            huber=optimizer != "adam",
            per_action=True,
            coef=0.0 if states is None else 1.0,
            max_norm=None,
        )

    weights = [parameter for parameter in network.parameters() if parameter.dim() > 1]
    forward = [2.0 * prod(w.shape) * (places if w.dim() == 4 else 1) for w in weights]
    backward = 2 * sum(forward) - forward[0]  # nothing needs the gradient of the observations
    sampled = 0 if states is None else len(states) // epochs
    passes = BATCH + epochs * (BATCH + 2 * sampled)
    total = passes * sum(forward) + epochs * (BATCH + sampled) * backward
    return update, total


ARITHMETIC = Part(measure, show)
