"""Bad input to the three scripts: one line with argument, value and remedy; nothing is written."""

import builtins
from functools import partial

import pytest

from medqn_tianshou.commands import train
from medqn_tianshou.commands.flags import make_train_parser
from medqn_tianshou.experiments.settings import AtariSettings
from medqn_tianshou.files.extras import install_command

ALL, ENV_CLOCK = ("lowdim", "minatar", "atari"), ("lowdim", "minatar")
QBERT = "QbertNoFrameskip-v4"

# Scripts, command line, and what the line must hold: the argument, the value and the remedy.
BAD = [
    # values that no machine could follow
    (ALL, "--threads 100000", "--threads", "'100000'", "at most 1,024"),
    (("atari",), "--test-num 10000000", "--test-num", "'10000000'", "at most 4,096"),
    (ALL, "--consolidation-batch-size 10000000000", "--consolidation-batch-size", "'1", "at most"),
    (ALL, f"--consolidation-epochs {10**18}", "--consolidation-epochs", "'1", "at most 10,000"),
    (("atari",), "--update-per-step 1e300", "--update-per-step", "'1e300'", "at most 1,000"),
    (ENV_CLOCK, f"--return-window {10**30}", "--return-window", "'1", "at most 1,000,000"),
    (ALL, "--n-step 2147483648", "--n-step", "'2147483648'", "at most 10,000"),
    (ALL, f"--buffer-size {10**15}", "--buffer-size", "'1", "at most 1,000,000,000,000"),
    (ALL, f"--memory-cap {'9' * 500}", "--memory-cap", "'999", "more than any machine has"),
    (ALL, f"--memory-cap {10**7}T", "--memory-cap", "'1", "more than any machine has"),
    (ALL, "--checkpoint-every 0.0000001m", "--checkpoint-every", "'0.0", "at least 0.01m"),
    (ALL, f"--checkpoint-every {'9' * 40}", "--checkpoint-every", "'999", "environment steps"),
    (ALL, "--device meta", "--device", "'meta'", "not a device of this machine"),
    # wrong types
    (ALL, "--seed one", "--seed", "'one'", "a whole number of at least 0"),
    (ALL, "--seed 1.5", "--seed", "'1.5'", "a whole number"),
    (ALL, "--lr fast", "--lr", "'fast'", "a number above 0"),
    (ALL, "--lr nan", "--lr", "'nan'", "a number above 0"),
    (ALL, "--lr inf", "--lr", "'inf'", "a number above 0"),
    (ALL, "--gamma -", "--gamma", "'-'", "at most 1"),
    (ALL, "--batch-size many", "--batch-size", "'many'", "a whole number of at least 1"),
    (ALL, "--buffer-size 1e400", "--buffer-size", "'1e400'", "a whole number of at least 1"),
    (ALL, "--replay zip", "--replay", "zip", "compact"),
    (ALL, "--algo sarsa", "--algo", "sarsa", "dqn"),
    (ALL, "--memory-cap 12Q", "--memory-cap", "'12Q'", "800M"),
    (ALL, "--memory-cap lots", "--memory-cap", "'lots'", "1.5G"),
    (ALL, "--checkpoint-every soon", "--checkpoint-every", "'soon'", "minutes (10m"),
    (ALL, "--checkpoint-every 10h", "--checkpoint-every", "'10h'", "minutes (10m"),
    (ALL, "--checkpoint-every 5,5", "--checkpoint-every", "'5,5'", "or both"),
    (ALL, "--consolidation-loss l1", "--consolidation-loss", "l1", "mse"),
    (ALL, "--consolidation-reduction max", "--consolidation-reduction", "max", "mean"),
    # out of range, zero and negative
    (ALL, "--seed -1", "--seed", "'-1'", "of at least 0"),
    (ALL, "--lr 0", "--lr", "'0'", "above 0"),
    (ALL, "--lr -1", "--lr", "'-1'", "above 0"),
    (ALL, "--gamma 1.01", "--gamma", "'1.01'", "at most 1"),
    (ALL, "--gamma -0.1", "--gamma", "'-0.1'", "of at least 0"),
    (ALL, "--batch-size 0", "--batch-size", "'0'", "at least 1"),
    (ALL, "--buffer-size 0", "--buffer-size", "'0'", "at least 1"),
    (ALL, "--buffer-size -5", "--buffer-size", "'-5'", "at least 1"),
    (ALL, "--n-step 0", "--n-step", "'0'", "at least 1"),
    (ALL, "--step-per-collect 0", "--step-per-collect", "'0'", "at least 1"),
    (ALL, "--eps-train 2", "--eps-train", "'2'", "at most 1"),
    (ALL, "--eps-train-final -1", "--eps-train-final", "'-1'", "at least 0"),
    (ALL, "--eps-decay-steps 0", "--eps-decay-steps", "'0'", "at least 1"),
    (ALL, "--lambda-start -1", "--lambda-start", "'-1'", "at least 0"),
    (ALL, "--lambda-end -2", "--lambda-end", "'-2'", "at least 0"),
    (ALL, "--consolidation-epochs 0", "--consolidation-epochs", "'0'", "at least 1"),
    (ALL, "--consolidation-batch-size 0", "--consolidation-batch-size", "'0'", "at least 1"),
    (ALL, "--memory-cap 0", "--memory-cap", "'0'", "more than 0"),
    (ALL, "--checkpoint-every 0", "--checkpoint-every", "'0'", "steps (50000)"),
    (ALL, "--checkpoint-every=-3m", "--checkpoint-every", "'-3m'", "minutes (10m"),
    (ALL, "--keep-checkpoints 0", "--keep-checkpoints", "'0'", "at least 1"),
    (ENV_CLOCK, "--steps 0", "--steps", "'0'", "at least 1"),
    (ENV_CLOCK, "--steps -10", "--steps", "'-10'", "at least 1"),
    (ENV_CLOCK, "--max-episode-steps -1", "--max-episode-steps", "'-1'", "at least 0"),
    (ENV_CLOCK, "--return-window 0", "--return-window", "'0'", "at least 1"),
    (ENV_CLOCK, "--eval-every -1", "--eval-every", "'-1'", "at least 0"),
    (ENV_CLOCK, "--eval-episodes 0", "--eval-episodes", "'0'", "at least 1"),
    (ENV_CLOCK, "--eps-test 1.5", "--eps-test", "'1.5'", "at most 1"),
    (ENV_CLOCK, "--warmup-steps 0", "--warmup-steps", "'0'", "at least 1"),
    (ENV_CLOCK, "--target-update-env-steps 0", "--target-update-env-steps", "'0'", "at least 1"),
    (ENV_CLOCK, "--max-grad-norm -1", "--max-grad-norm", "'-1'", "at least 0"),
    (("atari",), "--epoch 0", "--epoch", "'0'", "at least 1"),
    (("atari",), "--training-num 0", "--training-num", "'0'", "at least 1"),
    (("atari",), "--test-num -1", "--test-num", "'-1'", "at least 1"),
    (("atari",), "--frames-stack 0", "--frames-stack", "'0'", "at least 1"),
    (("atari",), "--eps-test nan", "--eps-test", "'nan'", "at most 1"),
    (("atari",), "--target-update-freq 0", "--target-update-freq", "'0'", "at least 1"),
    (("atari",), "--scale-obs 2", "--scale-obs", "2", "0, 1"),
    (("atari",), "--env-backend gym", "--env-backend", "gym", "envpool"),
    (("atari",), "--sampling fake", "--sampling", "fake", "real"),
    # settings that contradict each other
    (ENV_CLOCK, "--buffer-size 16", "--buffer-size", "16", "use at least 32"),
    (ENV_CLOCK, "--n-step 32 --buffer-size 32", "--n-step", "32", "use at most 31"),
    (ENV_CLOCK, "--steps 50 --warmup-steps 50", "--steps", "50", "exceed the 50"),
    (ENV_CLOCK, "--warmup-steps 8 --batch-size 32", "--warmup-steps", "8", "at least 32"),
    (("atari",), "--buffer-size 6", "--buffer-size", "6", "at least 7"),
    (("atari",), "--buffer-size 20", "--buffer-size", "20", "at least 32"),
    (("atari",), "--training-num 3", "--training-num", "3", "divisor"),
    (("atari",), "--step-per-epoch 50", "--step-per-epoch", "50", "use 60"),
    (("atari",), "--update-per-step 0.001", "--update-per-step", "0.001", "at least 0.05"),
    (("atari",), "--algo dqn --sampling uniform", "--sampling", "uniform", "use --algo medqn-r"),
    (("atari",), "--algo dqn --lambda-end 2", "--lambda-end", "2", "use --algo medqn-r"),
    (ENV_CLOCK, "--algo dqn --consolidation-epochs 2", "--consolidation-epochs", "2", "medqn-u"),
    # tasks, devices, files
    (("atari",), "--task QbertNoFrameskp-v4", "--task", "QbertNoFrameskp-v4", QBERT),
    (("atari",), "--task Xyzzy", "--task", "'Xyzzy'", "for example"),
    (("lowdim",), "--task MountanCar-v0", "--task", "'MountanCar-v0'", "MountainCar-v0?"),
    (("lowdim",), "--task Xyzzy", "--task", "'Xyzzy'", "choose from"),
    (("minatar",), "--game brekout", "--task", "'brekout'", "did you mean breakout"),
    (ALL, "--device cuda:77", "--device", "'cuda:77'", "it has cpu"),
    (ALL, "--device toaster", "--device", "'toaster'", "it has cpu"),
    (ALL, "--resume nowhere", "--resume", "'nowhere'", "name one that exists"),
    (ALL, "--resume a_file", "--resume", "'a_file'", "name one that exists"),
    (ALL, "--resume a_folder", "--resume", "a_folder", "name one"),
    (ALL, "--logdir a_file", "--logdir", "a_file", "name another"),
    (("atari",), "--resume-path none.pth", "--resume-path", "'none.pth'", "one that exists"),
    (("atari",), "--resume-path a_file", "--resume-path", "a_file", "name another"),
    (("atari",), "--watch", "--watch", "needs a policy", "give --resume-path"),
    (("atari",), "--render 0.1", "--render", "0.1", "add --watch"),
    (ALL, "--replay compact --memory-cap 500", "--memory-cap", "500 B", "use at least"),
    (ALL, "--replay raw --memory-cap 1K", "--buffer-size", "--memory-cap", "more memory"),
    (ALL, "--no-such-flag 1", "--no-such-flag", "unrecognized", "1"),
    (ALL, "--batch", "--batch", "unrecognized", "arguments"),
    (ALL, "--lr", "--lr", "expected one argument", ""),
]
CASES = [(family, *case) for families, *case in BAD for family in families]


def test_the_table_is_long_enough():
    assert len({(tuple(families), flags) for families, flags, *_ in BAD}) >= 60


@pytest.mark.parametrize(("family", "flags", "argument", "value", "remedy"), CASES)
def test_bad_input_gets_one_line_and_nothing_is_written(
    tmp_path, monkeypatch, error_line, family, flags, argument, value, remedy
):
    (tmp_path / "a_file").write_text("keep me")
    (tmp_path / "a_folder").mkdir()
    monkeypatch.chdir(tmp_path)
    line = error_line(partial(train.main, family), *flags.split())
    assert " error: " in line
    for part in (argument, value, remedy):
        assert part in line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a_file", "a_folder"]
    assert (tmp_path / "a_file").read_text() == "keep me"


def test_a_machine_without_minatar_names_the_install_command(tmp_path, monkeypatch, error_line):
    real_import = builtins.__import__

    def no_minatar(name, *args, **kwargs):
        if name == "minatar":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtins, "__import__", no_minatar)
    line = error_line(partial(train.main, "minatar"))
    assert install_command("minatar") in line
    assert list(tmp_path.iterdir()) == []


def test_uniform_states_of_frames_are_warned_of(capsys):
    parser = make_train_parser("atari")
    train.parse_run(parser, AtariSettings, ["--sampling", "uniform"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: --sampling uniform")
    assert "the paper uses real" in line
    train.parse_run(parser, AtariSettings, [])
    assert capsys.readouterr().err == ""
