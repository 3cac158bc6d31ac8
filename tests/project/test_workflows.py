"""The workflows fit GitHub's schema, and call what exists here."""

import re
import shlex
import subprocess
import sys

import pytest
import yaml
from scripts import ROOT
from test_docs import check, commands

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "vendor.github-workflows"),
    ROOT / ".github/dependabot.yml": "vendor.dependabot",
}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(path):
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        yield from job["steps"]


@pytest.mark.process
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_a_file_fits_githubs_schema(path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[path], path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_commands_of_a_workflow_parse(path):
    for step in steps(path):
        code = step.get("run", "")
        code = re.sub(r"docker run .*?medqn(?= |$)", "medqn", code.replace("\n", "\n    "))
        code = re.sub(r'"\$GITHUB_WORKSPACE/empty/bin/medqn"', "medqn", code)
        for command in commands(f"    {code}"):
            check(command)
        for target in re.findall(r"^make ([\w-]+)", code, re.MULTILINE):
            assert target in TARGETS


def test_what_is_published_was_built_for_the_tag_and_no_password_is_used():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert not any("secrets." in str(step) for job in jobs.values() for step in job["steps"])


def jobs_of_tests():
    return yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]


def test_the_whole_suite_runs_with_the_tianshou_it_is_for():
    install, suite = (step["run"] for step in jobs_of_tests()["newest"]["steps"] if "run" in step)
    assert "-m pytest" in suite
    assert "'tianshou<2'" in install  # otherwise pip takes the newest, 2.0


@pytest.mark.process
def test_on_every_python_the_tests_with_tianshou_2_need_no_other_tianshou():
    (command,) = (s["run"] for s in jobs_of_tests()["tianshou2"]["steps"] if "run" in s)
    dry = [*shlex.split(command), "--dry-run", "--always-make"]
    printed = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "constraint constraints-tianshou2.txt" in printed
    # It pins numpy below 2, which has no wheels for Python 3.13.
    assert "constraint constraints.txt" not in printed
    assert "OTHER_PYTHON" not in printed


def test_a_training_in_the_workflows_has_a_gigabyte():
    runs = [step.get("run", "") for step in steps(ROOT / ".github/workflows/test.yml")]
    (run,) = [run for run in runs if "--memory 1g" in run]
    assert "--memory-swap 1g" in run
    assert "--task QbertNoFrameskip-v4" in run
    assert "--steps 2000" in run
