#!/usr/bin/env python
"""Train MeDQN, or DQN, on an Atari game: what `medqn train atari` does, on one page."""

import sys
from collections.abc import Sequence
from functools import partial

from medqn_tianshou.commands.edge import loading, run_main
from medqn_tianshou.startup import prepare_process

prepare_process()  # before anything imports torch

with loading():
    import torch

    from medqn_tianshou import NatureQNetwork
    from medqn_tianshou.commands.flags import make_train_parser
    from medqn_tianshou.commands.train import parse_run, run_training
    from medqn_tianshou.envs.atari import make_atari_envs
    from medqn_tianshou.experiments.atari import ATARI
    from medqn_tianshou.fast.policy import FastMeDQNPolicy
    from medqn_tianshou.host.api import make_agent
    from medqn_tianshou.training.build import (
        load_parameters,
        make_coefficient,
        make_collector,
        make_sampler,
        make_training,
    )
    from medqn_tianshou.training.replay_memory import make_replay
    from medqn_tianshou.training.seeding import seed_everything


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_train_parser("atari")
    with parser.reporting():  # of settings that cannot be used
        # Each value is the paper's for the game and the algorithm, unless a flag changes it.
        s, options = parse_run(parser, ATARI.settings_class, arguments)
        ATARI.check(s)
        if options.watch:
            ATARI.watch(s, options)
            return 0
        device, seeds = options.torch_device, seed_everything(s.seed)

        make_envs = partial(
            make_atari_envs, task=s.task, backend=s.env_backend, frames_stack=s.frames_stack
        )
        train_envs = make_envs(num_envs=s.training_num, seed=seeds.train_envs, training=True)
        test_envs = make_envs(num_envs=s.test_env_num, seed=seeds.test_envs, training=False)
        observation_space = train_envs.observation_space[0]
        action_space = train_envs.action_space[0]

        if s.head != "dqn":
            policy = ATARI.make_policy(
                s, envs=train_envs, sampler_seed=seeds.state_sampler, device=device
            )
        else:
            network = NatureQNetwork(
                observation_shape=observation_space.shape,
                action_count=action_space.n,
                dueling=s.dueling,
                scale_uint8=bool(s.scale_obs),
                channels_last=torch.device(device).type == "cpu",
            ).to(device)
            policy = make_agent(  # with the argument names of the installed Tianshou
                FastMeDQNPolicy,
                model=network,
                optimizer=(torch.optim.Adam, {"lr": s.lr, "fused": True}),
                action_space=action_space,
                observation_space=observation_space,
                gamma=s.gamma,
                n_step=s.n_step,
                target_update_freq=s.target_update_freq,
                is_double=s.double,
                huber=s.huber,
                # The consolidation: on which states, and how strong by environment step.
                state_sampler=make_sampler(s, observation_space, seeds.state_sampler),
                consolidation_coef=make_coefficient(s),
                consolidation_epochs=s.consolidation_epochs,
                consolidation_batch_size=s.consolidation_batch_size,
                consolidation_loss=s.consolidation_loss,
                consolidation_reduction=s.consolidation_reduction,
            )
        if options.resume_path is not None:
            load_parameters(policy, options.resume_path)

        replay = make_replay(s, train_envs, seed=seeds.replay)
        training = make_training(
            s,
            options,
            policy=policy,
            replay=replay,
            train_collector=make_collector(s, policy, train_envs, replay),
            test_envs=test_envs,
        )
    return run_training(training)


if __name__ == "__main__":
    sys.exit(run_main(main))
