"""Any Gymnasium environment with discrete actions: `medqn train gym`."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import register, registry
from gymnasium.spaces import Box, Discrete
from resume_runs import at_collect

from medqn_tianshou import MinAtarQNetwork, MLPQNetwork, NatureQNetwork
from medqn_tianshou.commands import main as command
from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.envs.state import envs_state, set_envs_state
from medqn_tianshou.experiments.gymnasium import GYM
from medqn_tianshou.training.errors import ConfigError


class Pictures(gym.Env):
    """Shows a picture whose pixels are their place, and rewards action 1."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, shape, actions=2, start=0, render_mode=None):
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.action_space = Discrete(actions, start=start)
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 20
        return self.picture(), {}

    def step(self, action):
        self.left -= 1
        return self.picture(), float(action == 1), self.left == 0, False, {}

    def picture(self):
        return (
            np.arange(np.prod(self.observation_space.shape))
            .astype(np.uint8)
            .reshape(self.observation_space.shape)
        )


class Doubles(gym.Env):
    """Declares float32 and returns another type, as environments in NumPy often do."""

    def __init__(self, dtype):
        self.observation_space = Box(-1, 1, (3,), np.float32)
        self.action_space = Discrete(2)
        self.dtype = dtype

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 20
        return self.np_random.random(3).astype(self.dtype), {}

    def step(self, action):
        self.left -= 1
        obs = self.np_random.random(3).astype(self.dtype)
        return obs, float(action == 1), self.left == 0, False, {}


@pytest.fixture(autouse=True)
def ids():
    shapes = {"Large": (48, 40, 3), "Small": (10, 12, 3), "Stacked": (4, 84, 84), "Plane": (9, 9)}
    for name, shape in shapes.items():
        register(f"medqn_test/{name}-v0", entry_point=Pictures, kwargs={"shape": shape})
    kwargs = {"shape": (48, 40, 3), "start": 1}
    register("medqn_test/FromOne-v0", entry_point=Pictures, kwargs=kwargs)
    for name, dtype in (("Doubles", np.float64), ("Complex", np.complex64)):
        register(f"medqn_test/{name}-v0", entry_point=Doubles, kwargs={"dtype": dtype})
    yield
    for name in (*shapes, "FromOne", "Doubles", "Complex"):
        del registry[f"medqn_test/{name}-v0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "algo"),
    [("CartPole-v1", "medqn-r"), ("CartPole-v1", "medqn-u"), ("medqn_test/Small-v0", "medqn-r")],
)
def test_a_run_trains_evaluates_and_is_played(tmp_path, run_folder, capsys, task, algo):
    flags = f"--env {task} --algo {algo} --steps 300 --warmup-steps 100 --no-progress"
    words = ["train", "gym", *flags.split(), "--logdir", str(tmp_path)]
    assert command.main(words) == 0
    folder = run_folder(tmp_path)
    assert folder.parents[2].name == task.split("/")[-1]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["gradient_steps"] == 200
    assert summary["final_return"] is not None
    capsys.readouterr()
    assert command.main(["evaluate", str(folder), "--episodes", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["task"] == task
    assert result["policy"].endswith("policy_best.safetensors")


@pytest.mark.parametrize(
    ("task", "network", "shape"),
    [
        ("CartPole-v1", MLPQNetwork, (4,)),
        ("medqn_test/Large-v0", NatureQNetwork, (3, 48, 40)),
        ("medqn_test/Small-v0", MinAtarQNetwork, (3, 10, 12)),
        ("medqn_test/Stacked-v0", NatureQNetwork, (4, 84, 84)),
    ],
)
def test_the_network_fits_the_observations(task, network, shape):
    settings = GYM.settings(task)
    env = GYM.make_env(settings)
    assert env.observation_space.shape == shape
    model = GYM.make_network(settings, env)
    assert type(model) is network
    observation = env.reset(seed=0)[0]
    assert observation.shape == shape
    assert model(observation[None])[0].shape == (1, 2)


def test_channels_are_moved_and_pixels_stay():
    env = GYM.make_env(GYM.settings("medqn_test/Small-v0"))
    image = env.unwrapped.picture()
    moved = env.reset()[0]
    assert moved.dtype == np.uint8
    assert all(moved[c, y, x] == image[y, x, c] for c, y, x in np.ndindex(3, 10, 12))


@pytest.mark.parametrize(
    ("task", "part"),
    [
        ("CartPol-v1", "cannot be made"),
        ("no_such_module:Env-v0", "cannot be made"),
        ("Pendulum-v1", "has the actions Box"),
        ("medqn_test/FromOne-v0", "count from 0"),
        ("FrozenLake-v1", "has the observations Discrete(16)"),
        ("medqn_test/Plane-v0", "vectors or images (3 axes) are needed"),
    ],
)
def test_an_environment_that_does_not_fit_gets_one_line(error_line, tmp_path, task, part):
    line = error_line(command.main, "train", "gym", "--task", task, "--logdir", tmp_path)
    assert line.startswith(f"medqn train gym: error: argument --task: '{task}'")
    assert part in line
    assert not list(tmp_path.iterdir())


def test_schedules_and_evaluations_follow_the_length_of_the_run():
    settings = GYM.settings("CartPole-v1", steps=20_000)
    assert (settings.lambda_steps, settings.eps_decay_steps) == (20_000, 2_000)
    assert settings.eval_every == 2_000
    assert GYM.settings("CartPole-v1", steps=20_000, eval_every=0).eval_every == 0


@pytest.mark.parametrize(
    "wrong", [{"steps": "100"}, {"hidden_sizes": (0,)}, {"hidden_sizes": ["a"]}]
)
def test_a_wrong_value_is_named(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"{name}=.* must be") as error_info:
        GYM.settings(**wrong)
    assert error_info.value.setting == name


def test_the_limit_of_episodes_is_the_environments_own_unless_given():
    for flags, limit in (({}, 500), ({"max_episode_steps": 30}, 30)):
        env = GYM.make_env(GYM.settings("CartPole-v1", **flags))
        assert env.spec.max_episode_steps == limit


def test_cart_pole_continues_where_it_was():
    def build():
        envs = SingleVectorEnv(gym.make("CartPole-v1"))
        envs.seed(3)
        envs.reset()
        return envs

    envs = build()
    for action in (0, 1, 1):
        envs.step(np.array([action]))
    saved = envs_state(envs)
    expected = [envs.step(np.array([action]))[0] for action in (1, 0, 1)]
    restored = build()
    set_envs_state(restored, saved)
    again = [restored.step(np.array([action]))[0] for action in (1, 0, 1)]
    assert np.array_equal(expected, again)


@pytest.mark.parametrize("algo", ["medqn-u", "dqn"])
def test_a_run_resumes_with_observations_of_another_type_than_declared(
    tmp_path, run_folder, monkeypatch, capsys, algo
):
    flags = f"--algo {algo} --steps 300 --warmup-steps 100 --checkpoint-every 60 --no-progress"
    command_line = ["train", "gym", "--task", "medqn_test/Doubles-v0", *flags.split()]

    def stop():
        raise KeyboardInterrupt

    with at_collect(monkeypatch, 150, stop):
        assert command.main([*command_line, "--logdir", str(tmp_path)]) == 130
    killed = run_folder(tmp_path)
    assert command.main(["train", "gym", "--resume", str(killed), "--no-progress"]) == 0
    assert "resumed at env step " in capsys.readouterr().out
    assert json.loads((killed / "summary.json").read_text())["status"] == "finished"


def test_observations_that_the_space_cannot_hold_are_an_error():
    env = GYM.make_env(GYM.settings(task="medqn_test/Complex-v0"))
    with pytest.raises(ValueError, match=r"are complex64, but .* declares float32; declare"):
        env.reset()
