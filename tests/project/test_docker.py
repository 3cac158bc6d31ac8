"""What of the Docker image can be tried without Docker."""

import json
import re
import shutil
import subprocess
import sys
import time

import psutil
import pytest
from resume_runs import run_folder
from scripts import ROOT

pytestmark = pytest.mark.process

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
IN_A_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
LONGEST = 300


def can_have_process_1():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True).returncode == 0


def instructions(name):
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)


def test_what_the_image_copies_is_what_docker_is_sent():
    copied = {
        source
        for line in instructions("COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
    }
    ignored, *admitted = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line == "*" or line.startswith("!")
    ]
    assert ignored == "*"
    assert {line.removeprefix("!") for line in admitted} == copied
    assert all((ROOT / source).exists() for source in copied)


def test_the_process_is_not_root_and_may_write_to_its_volume():
    (user,), (volume,) = instructions("USER"), instructions("VOLUME")
    assert int(user) > 0
    assert re.search(
        rf"useradd .*--uid {user} (\w+) && mkdir {volume} && chown \1:\1 {volume}\b", DOCKERFILE
    )


@pytest.mark.skipif(not can_have_process_1(), reason="needs the right to make a PID namespace")
def test_the_entry_point_as_process_1_writes_a_checkpoint_on_sigterm(tmp_path):
    (entry_point,) = map(json.loads, instructions("ENTRYPOINT"))  # JSON: no shell in between
    assert entry_point == ["medqn"]
    medqn = [sys.executable, "-m", "medqn_tianshou"]  # the same, which need not be on the PATH
    flags = ["train", "lowdim", "--no-progress", "--logdir", str(tmp_path)]
    flags += ["--warmup-steps", "100", "--max-episode-steps", "50"]
    with subprocess.Popen(
        [*IN_A_NAMESPACE, *medqn, *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            # Of the outer processes only unshare is ours to know; its child is the run.
            for line in process.stdout:
                if line.startswith("monitor"):
                    break
            (child,) = psutil.Process(process.pid).children()
            end = time.monotonic() + LONGEST
            # The handlers are in place once training, and so its episodes, have begun.
            while time.monotonic() < end and not _has_episodes(tmp_path):
                time.sleep(0.1)
            child.terminate()  # with SIGTERM
            assert process.wait(LONGEST) == 128 + 15
        finally:
            process.kill()
    run = run_folder(tmp_path)
    assert len(list((run / "checkpoints").glob("*.checkpoint"))) == 1
    assert json.loads((run / "summary.json").read_text())["status"] == "interrupted"


def _has_episodes(logdir):
    return len((run_folder(logdir) / "episodes.csv").read_text().splitlines()) > 1
