"""Trains the baselines that have no replay buffer, and writes the same run folder."""

import time
from collections import deque
from dataclasses import asdict
from math import inf
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from medqn_tianshou.algorithm.normalized import NormalizedQNetwork
from medqn_tianshou.algorithm.pqn import PQN
from medqn_tianshou.algorithm.schedules import LinearSchedule
from medqn_tianshou.algorithm.stats import NonFiniteLossError
from medqn_tianshou.algorithm.stream_q import StreamQ
from medqn_tianshou.envs.state import env_state, set_env_state
from medqn_tianshou.files.schema import fields, items, list_of, mapping, number, optional, whole
from medqn_tianshou.training.checkpoint import Checkpoints
from medqn_tianshou.training.dashboard import LAYOUT
from medqn_tianshou.training.loop import RunError
from medqn_tianshou.training.memory import MB, MemoryMonitor
from medqn_tianshou.training.run_folder import ProgressRow, RunFolder, Summary, best_and_final
from medqn_tianshou.training.seeding import global_random_state, set_global_random_state
from medqn_tianshou.training.settings import TrainingSettings

LOG_EVERY_ENV_STEPS = 1000


class Learner(Protocol):
    """PQN or Stream-Q."""

    network: NormalizedQNetwork
    env_count: int
    gradient_steps: int
    nbytes: int
    """Of the transitions that it keeps."""

    @property
    def is_between_rollouts(self) -> bool:
        """Whether :meth:`state_dict` is the whole state now."""

    def act(self, obs_E: NDArray[Any], eps: float) -> NDArray[Any]:
        """Choose actions, epsilon-greedily."""

    def observe(
        self, rewards_E: NDArray[Any], dones_E: NDArray[Any], next_obs_E: NDArray[Any]
    ) -> float | None:
        """Learn from the step that followed the last actions; return the loss of an update."""

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned."""


def make_learner(settings: TrainingSettings, network: NormalizedQNetwork) -> Learner:
    """Build the algorithm that the settings name."""
    options: dict[str, Any] = {"lr": settings.lr, "gamma": settings.gamma}
    if settings.algo == "stream-q":
        return StreamQ(network, **options)
    options |= {"total_env_steps": settings.total_env_steps}
    return PQN(network, max_grad_norm=settings.max_grad_norm or inf, **options)  # 0: no clipping


class ReplayFreeTraining:
    """A run of PQN or Stream-Q, with the interface of ``Training``.

    There is no warm-up, no evaluation and no probe; returns are those of training episodes.

    :param envs: as many environments as the learner plays in, seeded.
    """

    def __init__(
        self,
        *,
        settings: TrainingSettings,
        learner: Learner,
        envs: list[gym.Env[Any, Any]],
        run: RunFolder,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.settings, self.run_folder, self.checkpoints = settings, run, checkpoints
        self.learner, self._envs = learner, envs
        self.stop_signal: int | None = None
        """Set by a signal: the run ends before the next rollout, with a checkpoint."""
        self.is_evaluating = False  # it never does
        self.env_step = 0
        self._epsilon = LinearSchedule(
            settings.eps_train, settings.eps_train_final, settings.eps_decay_steps
        )
        self._episodes = [[0.0, 0] for _ in envs]
        self._returns: deque[float] = deque(maxlen=settings.return_window)
        self._monitor = MemoryMonitor(lambda: learner.nbytes)
        run.await_event_file()
        self._writer: Any = SummaryWriter(str(run.path))
        self._writer.add_custom_scalars(LAYOUT)
        self._row_interval = max(settings.total_env_steps // 100, 1)
        self._next_row = self._next_log = 0
        self._seconds = self._cpu_before = 0.0
        self._last = (0, 0.0)
        self._loss: float | None = None
        self._obs_E = np.stack([env.reset()[0] for env in envs])

    def run(self) -> Summary:
        """Train to the end, or until a signal; all results are in the run folder."""
        status, start, before = "failed", time.perf_counter(), self._seconds
        try:
            while self.env_step < self.settings.total_env_steps:
                if self.learner.is_between_rollouts:  # elsewhere the state is incomplete
                    if self.stop_signal is not None:
                        self._write_checkpoint()
                        status = "interrupted"
                        break
                    if self.checkpoints is not None and self.checkpoints.are_due(self.env_step):
                        self._write_checkpoint()
                self._step()
                self._seconds = before + time.perf_counter() - start
                self._log()
            else:
                status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
        except NonFiniteLossError as error:
            raise RunError(f"{error}; try a smaller --lr") from error
        finally:
            try:
                summary = self._close(status)
            except OSError:
                if status != "failed":  # otherwise the first error says more
                    raise
            finally:
                self.run_folder.unlock()
        return summary

    def _step(self) -> None:
        act_E = self.learner.act(self._obs_E, self._epsilon(self.env_step))
        steps = [env.step(int(act)) for env, act in zip(self._envs, act_E, strict=True)]
        obs, rewards, terminated, truncated, _ = zip(*steps, strict=True)
        next_obs_E, dones_E = np.stack(obs), np.logical_or(terminated, truncated)
        rewards_E = np.array(rewards, np.float64)
        loss = self.learner.observe(rewards_E, dones_E, next_obs_E)
        if loss is not None and not np.isfinite(loss):
            raise NonFiniteLossError(f"the loss is {loss} near env step {self.env_step}")
        self.env_step += len(self._envs)
        for index, (episode, reward) in enumerate(zip(self._episodes, rewards, strict=True)):
            episode[0] += float(reward)
            episode[1] += 1
            if dones_E[index]:
                self._returns.append(episode[0])
                self.run_folder.add_episode(self.env_step, episode[0], int(episode[1]))
                episode[:] = 0.0, 0
                next_obs_E[index] = self._envs[index].reset()[0]
        self._obs_E, self._loss = next_obs_E, self._loss if loss is None else loss

    def _log(self) -> None:
        if self.env_step >= self._next_row:
            self._next_row = self.env_step + self._row_interval
            self._add_row()
        if self.env_step >= self._next_log:
            self._next_log = self.env_step + LOG_EVERY_ENV_STEPS
            values = {
                "train/epsilon": self._epsilon(self.env_step),
                "train/return": self._return(),
                "update/td_loss": self._loss,
            }
            for tag, value in values.items():
                if value is not None:
                    self._writer.add_scalar(tag, value, global_step=self.env_step)
            self._monitor.log(self._writer, self.env_step)

    def _return(self) -> float | None:
        return float(np.mean(self._returns)) if self._returns else None

    def _add_row(self) -> None:
        usage, (step, seconds) = self._monitor.measure(), self._last
        elapsed = self._seconds - seconds
        self.run_folder.add_row(
            ProgressRow(
                env_step=self.env_step,
                gradient_step=self.learner.gradient_steps,
                eval_return_mean=None,
                eval_return_std=None,
                train_return=self._return(),
                steps_per_s=(self.env_step - step) / elapsed if elapsed > 0 else None,
                rss_mb=usage.rss / MB,
                buffer_mb=usage.buffer / MB,
            )
        )
        self._last = (self.env_step, self._seconds)
        self._writer.flush()

    def _close(self, status: str) -> Summary:
        self._add_row()
        usage = self._monitor.measure()
        self._writer.close()
        summary = Summary(
            status=status,
            env_steps=self.env_step,
            gradient_steps=self.learner.gradient_steps,
            **best_and_final(self.run_folder.rows, evaluated=False),
            steps_per_s=self.env_step / self._seconds if self._seconds > 0 else None,
            peak_rss_mb=usage.peak_rss / MB,
            buffer_mb=usage.buffer / MB,
            buffer_transitions=0,
            cpu_seconds=self._cpu_before + time.process_time(),
        )
        if status != "failed":
            holder = torch.nn.Module()
            holder.model = self.learner.network  # as a policy has it
            self.run_folder.save_policy("policy_last.safetensors", holder.state_dict())
        self.run_folder.write_json("summary.json", asdict(summary))
        return summary

    def _write_checkpoint(self) -> None:
        if self.checkpoints is None:
            return
        try:
            self.checkpoints.write(self.env_step, self.state_dict(), None)
        except OSError as error:
            text = f"the checkpoint of env step {self.env_step} could not be written"
            raise RunError(
                f"{text} ({error.strerror or error}); make room, then --resume"
            ) from error

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state of the run."""
        self._writer.flush()
        return {
            "learner": self.learner.state_dict(),
            "envs": [env_state(env) for env in self._envs],
            "obs": self._obs_E,
            "episodes": self._episodes,
            "returns": list(self._returns),
            "loss": self._loss,
            "clocks": [self.env_step, self._next_row, self._next_log, *self._last],
            "seconds": [self._seconds, self._cpu_before + time.process_time()],
            "logs": self.run_folder.log_sizes(),
            "random": global_random_state(),
        }

    def load_state_dict(self, state: dict[str, Any], replay: Any = None) -> bool:
        """Continue from what :meth:`state_dict` returned.

        :return: False if the environments could not be restored and started new episodes.
        """
        _CHECK({"loss": None, **state})  # earlier versions did not save it
        if state["obs"].shape != self._obs_E.shape or len(state["envs"]) != len(self._envs):
            raise ValueError("the state is one of other environments")
        self.learner.load_state_dict(state["learner"])
        restored = None not in state["envs"]
        if restored:
            for env, saved in zip(self._envs, state["envs"], strict=True):
                set_env_state(env, saved)
            self._obs_E = state["obs"]
            self._episodes = [[float(total), int(length)] for total, length in state["episodes"]]
        self._returns.clear()  # of a checkpoint that turned out not to fit
        self._returns.extend(state["returns"])
        self._loss = state.get("loss")
        self.env_step, self._next_row, self._next_log, *last = state["clocks"]
        self._last = (int(last[0]), float(last[1]))
        self._seconds, self._cpu_before = map(float, state["seconds"])
        set_global_random_state(state["random"])
        return restored

    def abandon(self) -> None:
        """Release the run folder without training."""
        self._writer.close()
        self.run_folder.unlock()


_CHECK = fields(
    {
        "episodes": list_of(items(number(), number(0))),
        "returns": list_of(number()),
        "loss": optional(number()),
        "clocks": items(whole(), whole(), whole(), whole(), number(0)),
        "seconds": items(number(0), number(0)),
        "logs": mapping(whole()),
    },
    others=("learner", "envs", "obs", "random"),
)
