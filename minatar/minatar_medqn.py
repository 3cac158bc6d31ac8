#!/usr/bin/env python
"""Train MeDQN, or DQN, on a MinAtar game: what `medqn train minatar` does, on one page."""

import sys
from collections.abc import Sequence

from medqn_tianshou.commands.edge import loading, run_main
from medqn_tianshou.startup import prepare_process

prepare_process()  # before anything imports torch

with loading():
    from medqn_tianshou.commands.flags import make_train_parser
    from medqn_tianshou.commands.train import parse_run, run_training
    from medqn_tianshou.experiments.minatar import MINATAR
    from medqn_tianshou.training.build import make_collector, make_training
    from medqn_tianshou.training.replay_memory import make_replay
    from medqn_tianshou.training.seeding import seed_everything
    from medqn_tianshou.training.settings import REPLAY_FREE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_train_parser("minatar")
    with parser.reporting():  # of settings that cannot be used
        # Each value is the paper's for the task and the algorithm, unless a flag changes it.
        settings, options = parse_run(parser, MINATAR.settings_class, arguments)
        if settings.algo in REPLAY_FREE:
            return run_training(MINATAR.make_training(settings, options))
        seeds = seed_everything(settings.seed)
        train_envs = MINATAR.make_train_envs(settings, seeds.train_envs)
        test_envs = MINATAR.make_test_envs(settings, seeds.test_envs)
        policy = MINATAR.make_policy(
            settings,
            envs=train_envs,
            sampler_seed=seeds.state_sampler,
            device=options.torch_device,
        )
        replay = make_replay(settings, train_envs, seed=seeds.replay)
        training = make_training(
            settings,
            options,
            policy=policy,
            replay=replay,
            train_collector=make_collector(settings, policy, train_envs, replay),
            test_envs=test_envs,
        )
    return run_training(training)


if __name__ == "__main__":
    sys.exit(run_main(main))
