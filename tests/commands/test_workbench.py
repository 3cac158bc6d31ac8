"""The command medqn: what a user types, and what comes of it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from scripts import words_of

from medqn_tianshou.commands import agent, doctor, play
from medqn_tianshou.commands import main as command
from medqn_tianshou.envs.atari import atari_tasks
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.files.extras import install_command
from medqn_tianshou.files.parameters import parameter_bytes, read_parameters
from medqn_tianshou.training.memory import MemoryLimit

RUNS = {
    "lowdim": ("Catcher", "dqn"),
    "minatar": ("breakout", "medqn-u"),
    "atari": ("QbertNoFrameskip-v4", "medqn"),
}
SHORT = {"max_episode_steps": 25}


def make_run(folder, family, task=None, bias_of_action=None):
    """A run folder as the training leaves it, with a policy that prefers one action."""
    usual_task, algo = RUNS[family]
    task = task or usual_task
    flags = SHORT if family != "atari" else {}
    settings = FAMILIES[family].settings(task, algo=algo, **flags)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"family": family, "task": task, "algo": algo, "settings": settings.written()}
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    model = FAMILIES[family].make_network(settings, FAMILIES[family].make_env(settings))
    if bias_of_action is not None:
        *_, bias = model.parameters()
        with torch.no_grad():
            bias.zero_()
            bias[bias_of_action] = 1000.0
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save(state, folder / "policy_last.pth")
    return folder


def evaluated(capsys, *arguments):
    assert command.main(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def error_of(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_info:
        command.main(list(map(str, arguments)))
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def returns_of_constant_action(task, action, episodes, seed):
    lowdim = FAMILIES["lowdim"]
    env = lowdim.make_env(lowdim.settings(task, algo="dqn", **SHORT))
    returns = []
    for episode in range(episodes):
        env.reset(seed=seed if episode == 0 else None)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(action)
            total, over = total + reward, terminated or truncated
        returns.append(total)
    return returns


def test_evaluation_gives_the_scores_of_the_policys_own_actions(tmp_path, capsys):
    run = make_run(tmp_path, "lowdim", bias_of_action=2)
    result = evaluated(capsys, run, "--episodes", 3, "--seed", 5)
    expected = returns_of_constant_action("Catcher", 2, 3, seed=5)
    assert result["scores"] == pytest.approx(expected)
    assert result["mean"] == pytest.approx(np.mean(expected))
    assert result["std"] == pytest.approx(np.std(expected))
    assert result["lengths"] == [25, 25, 25]
    assert result["policy"] == str(run / "policy_last.pth")


def test_the_seed_decides_the_episodes_and_epsilon_acts_at_random(tmp_path, capsys):
    run = make_run(tmp_path, "minatar", bias_of_action=0)
    first = evaluated(capsys, run, "--episodes", 4, "--eps", 0.9)
    assert evaluated(capsys, run, "--episodes", 4, "--eps", 0.9) == first
    assert evaluated(capsys, run, "--episodes", 4, "--eps", 0.9, "--seed", 1) != first
    assert evaluated(capsys, run, "--episodes", 4)["lengths"] != first["lengths"]


def test_the_best_policy_is_preferred_and_a_file_may_be_named(tmp_path):
    run = make_run(tmp_path, "lowdim")
    assert agent.find_policy(run) == run / "policy_last.pth"
    shutil.copy(run / "policy_last.pth", run / "policy_best.pth")
    assert agent.find_policy(run) == run / "policy_best.pth"
    assert agent.find_policy(run / "policy_last.pth") == run / "policy_last.pth"


def test_a_policy_plays_the_same_from_safetensors_which_is_preferred_to_an_older_file(
    tmp_path, capsys
):
    run = make_run(tmp_path, "lowdim")
    flags = ("--episodes", 2, "--eps", 0.5)
    old = evaluated(capsys, run, *flags)
    state = read_parameters(run / "policy_last.pth")
    (run / "policy_last.safetensors").write_bytes(parameter_bytes(state))
    new = evaluated(capsys, run, *flags)
    assert new.pop("policy") == str(run / "policy_last.safetensors")
    assert old.pop("policy") == str(run / "policy_last.pth")
    assert new == old
    shutil.copy(run / "policy_last.pth", run / "policy_best.pth")
    assert agent.find_policy(run) == run / "policy_best.pth"  # the best comes first, old or new


@pytest.mark.parametrize("family", RUNS)
def test_a_run_of_an_earlier_version_is_evaluated_as_before(tmp_path, capsys, family):
    run = make_run(tmp_path, family, bias_of_action=0)
    flags = ("--episodes", 1, "--eps", 0.9)
    scores = evaluated(capsys, run, *flags)["scores"]
    config = json.loads((run / "config.json").read_text())
    del config["family"]
    config["settings"]["compile"] = {"value": False, "source": "ours"}
    (run / "config.json").write_text(json.dumps(config))
    assert evaluated(capsys, run, *flags)["scores"] == scores


@pytest.mark.parametrize("family", RUNS)
def test_a_gif_has_a_frame_per_step(tmp_path, capsys, family):
    run = make_run(tmp_path / "run", family)
    video = tmp_path / "out.gif"
    flags = ["--video", str(video), "--max-steps", "7", "--eps", "0.5", "--episodes", "4"]
    assert command.main(["play", str(run), *flags]) == 0
    assert "7 steps, truncated by --max-steps" in capsys.readouterr().out
    with Image.open(video) as gif:
        assert gif.n_frames == 7
        assert gif.info["duration"] == 10 * (100 // play.FRAMES_PER_SECOND[family])
        # The picture is not blank, and neither is the panel beside it.
        frame = np.asarray(gif.convert("RGB"))
        middle = frame.shape[1] - 320
        assert len(np.unique(frame[:, :middle].reshape(-1, 3), axis=0)) >= 3
        assert len(np.unique(frame[:, middle:].reshape(-1, 3), axis=0)) >= 3


def test_a_frame_says_from_where_to_where_its_scales_go(tmp_path, monkeypatch):
    run = make_run(tmp_path, "lowdim", bias_of_action=1)
    texts = []
    draw_text = ImageDraw.ImageDraw.text

    def note(self, place, text, *args, **kwargs):
        texts.append(text)
        draw_text(self, place, text, *args, **kwargs)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", note)
    next(play.frames(agent.Agent(run, renders=True), 1, []))
    scales = [re.search(r"(bars|curve) from (\S+) to (\S+)", text) for text in texts]
    ends = {found[1]: (float(found[2]), float(found[3])) for found in scales if found}
    assert ends["bars"][1] - ends["bars"][0] > 900
    assert ends["curve"] == (ends["bars"][1],) * 2  # one step so far


def test_gymnasiums_tasks_are_drawn_by_gymnasium(tmp_path):
    pytest.importorskip("pygame")
    pictures = {}
    for task in ("MountainCar-v0", "Acrobot-v1"):
        run = make_run(tmp_path / task, "lowdim", task)
        player = agent.Agent(run, renders=True, epsilon=1.0)
        frames = list(play.frames(player, 1, []))
        assert len(frames) == 25
        assert frames[0].tobytes() != frames[-1].tobytes()
        pictures[task] = frames[0].crop((0, 0, 480, 400)).tobytes()
    assert pictures["MountainCar-v0"] != pictures["Acrobot-v1"]


def test_without_pygame_one_line_names_the_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    run = make_run(tmp_path, "lowdim", "MountainCar-v0")
    error = error_of(capsys, "play", run, "--video", tmp_path / "out.gif")
    assert "MountainCar-v0 is drawn by Gymnasium" in error
    assert install_command("play") in error
    assert not (tmp_path / "out.gif").exists()


def test_a_window_shows_a_frame_per_step(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("DISPLAY", ":0")
    run = make_run(tmp_path, "lowdim", "MountainCar-v0")
    assert command.main(["play", str(run), "--max-steps", "9", "--fps", "1000"]) == 0
    assert "9 steps, truncated by --max-steps" in capsys.readouterr().out


def test_an_mp4_has_a_frame_per_step_and_a_codec_that_browsers_play(tmp_path):
    cv2 = pytest.importorskip("cv2")
    pytest.importorskip("imageio_ffmpeg")
    run = make_run(tmp_path / "run", "lowdim")
    video = tmp_path / "out.mp4"
    assert command.main(["play", str(run), "--video", str(video)]) == 0
    capture = cv2.VideoCapture(str(video))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == 25
    assert int(capture.get(cv2.CAP_PROP_FOURCC)).to_bytes(4, "little") in (b"h264", b"avc1")


def test_bad_policies_and_outputs_get_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    run = make_run(tmp_path / "run", "lowdim")
    assert "does not exist" in error_of(capsys, "evaluate", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "contains no policy_best or policy_last file" in error_of(
        capsys, "evaluate", tmp_path / "empty"
    )
    assert "neither a .gif nor an .mp4" in error_of(capsys, "play", run, "--video", "a.avi")
    assert "record with --video out.gif" in error_of(capsys, "play", run)
    assert "folder that does not exist" in error_of(capsys, "play", run, "--video", "no/a.gif")
    torch.save({"weight": torch.zeros(1)}, run / "policy_best.pth")
    assert "is not a policy of this run" in error_of(capsys, "evaluate", run)
    (run / "config.json").unlink()
    assert "no readable config.json" in error_of(capsys, "evaluate", run)
    assert "'sing' is not known; choose from doctor" in error_of(capsys, "sing")


def test_the_doctor_is_content_with_this_machine(tmp_path, capsys):
    assert command.main(["doctor", "--json", "--logdir", str(tmp_path / "new")]) == 0
    result = json.loads(capsys.readouterr().out)
    found = {check["name"]: check for check in result["checks"]}
    assert result["problems"] == 0
    for backend in ("ale-py", "EnvPool"):
        assert "observation (4, 84, 84)" in found[backend]["found"]
    assert "observation (4, 10, 10)" in found["MinAtar"]["found"]
    if not torch.cuda.is_available():
        assert f"{torch.get_num_threads()} thread(s)" in found["devices"]["found"]
    assert found["Atari ROMs"]["found"] == f"{len(atari_tasks())} games"


def test_the_doctor_names_what_is_wrong_and_how_to_fix_it(tmp_path, capsys, monkeypatch):
    def broken(**_):
        raise OSError("libgame.so: cannot open")

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(doctor, "MinAtarEnv", broken)
    monkeypatch.setattr(doctor, "atari_tasks", tuple)
    monkeypatch.setattr(doctor, "find_spec", lambda name: True if name == "minatar" else None)
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    monkeypatch.setattr(doctor, "ENOUGH_SHARED_MEMORY", 2**60)
    little = MemoryLimit(nbytes=10**9, available=200_000_000, source="host")
    monkeypatch.setattr(doctor, "memory_limit", lambda: little)
    monkeypatch.setattr(doctor.metadata, "version", lambda _: "0.1")
    assert command.main(["doctor", "--logdir", str(tmp_path / "file/log")]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line, remedy in (
        (
            "problem MinAtar libgame.so: cannot open",
            "[minatar]' --force-reinstall",
        ),
        ("warning Atari ROMs none", install_command("atari")),
        ("warning EnvPool not installed", install_command("atari")),
        ("warning memory 200.0 MB left", "medqn doctor --memory 200M"),
        ("warning shared memory", "docker run --shm-size 1g"),
        ("problem log folder", "--logdir FOLDER"),
        ("problem tianshou 0.1", "pip install 'tianshou<3,>=1.2'"),
    ):
        (index,) = [i for i, text in enumerate(lines) if text.startswith(line)]
        assert lines[index + 1].startswith("fix it: ")
        assert remedy in lines[index + 1]
    assert "ready to train" not in lines


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("medqn tr", ["train"]),
        ("medqn train ", ["atari", "gym", "minatar", "lowdim"]),
        ("medqn train lowdim --help", ["--help", "--help-all"]),
        ("medqn train lowdim --task C", ["Catcher"]),
        ("medqn train atari --task Qb", ["Qbert"]),
        ("medqn train lowdim --algo dq", ["dqn", "dqn-s"]),
        (
            "medqn train lowdim --lambda",
            ["--lambda", "--lambda-start", "--lambda-end", "--lambda-steps"],
        ),
        ("medqn reproduce fig4", ["fig4a", "fig4b", "fig4c", "fig4d"]),
        ("medqn evaluate --ep", ["--eps", "--episodes"]),
        ("medqn sweep --re", ["--retries"]),
        ("medqn completion z", ["zsh"]),
    ],
)
def test_completion_knows_commands_and_flags(capsys, tmp_path, line, expected):
    pytest.importorskip("shtab")
    assert command.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = line.split(" ")
    typed = " ".join(f"'{word}'" for word in words)
    ask = f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _shtab_medqn\n"
    ask += 'printf "%s\\n" "${COMPREPLY[@]}"'
    bash = Path("/bin/bash")
    answer = subprocess.run([bash, "-c", ask], capture_output=True, text=True, check=True)
    assert sorted(answer.stdout.split()) == sorted(expected)


def test_fish_completes_the_values_of_flags(capsys):
    pytest.importorskip("shtab")
    assert command.main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for flag, value in (("algo", "medqn-u"), ("task", "MountainCar-v0"), ("replay", "compact")):
        found = [line for line in lines if f"-l {flag} " in line and value in line]
        assert found, f"--{flag} {value}"


@pytest.mark.parametrize("family", FAMILIES)
def test_help_has_the_usual_flags_and_help_all_the_rest(capsys, family):
    shown = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as exit_info:
            command.main(["train", family, flag])
        assert exit_info.value.code == 0
        shown[flag] = set(re.findall(r"^  (?:-h, )?(--[\w-]+)", capsys.readouterr().out, re.M))
    assert len(shown["--help"]) <= 15
    assert {"--task", "--algo", "--steps", "--seed", "--resume"} <= shown["--help"]
    assert shown["--help-all"] > shown["--help"] | {"--gamma", "--keep-checkpoints"}


def test_a_misspelt_flag_gets_the_nearest_one(capsys):
    line = error_of(capsys, "train", "lowdim", "--bufer-size", "100")
    assert line.endswith("unrecognized arguments: --bufer-size 100; did you mean --buffer-size?")
    assert "did you mean --episodes?" in error_of(capsys, "evaluate", "run", "--epsodes", "3")


def test_every_command_has_help_and_an_unknown_flag_is_refused(capsys):
    for prog in words_of(command.ROOT):
        with pytest.raises(SystemExit) as exit_info:
            command.main([*prog.split()[1:], "--help"])
        assert exit_info.value.code == 0
        assert prog in capsys.readouterr().out or "reproduce" in prog
    assert "--sing" in error_of(capsys, "doctor", "--sing")
    assert command.main([]) == 2
