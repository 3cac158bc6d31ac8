"""Copies the results of the campaign's runs: settings, summary, episodes and evaluations.

A run that was interrupted is copied as far as it got; its copy is replaced when it got further.

python campaign/collect.py ../campaign
python campaign/collect.py ../again campaign/repeated    copies to another folder
"""

import csv
import json
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def collect(out: Path, results: Path = RESULTS) -> int:
    """Copy each run that is not here yet, or not as far, as a run folder; return how many."""
    count = 0
    runs = json.loads((out / "status.json").read_text())["runs"]
    for name, run in runs.items():
        if run["state"] not in ("finished", "stopped"):
            continue
        folder = out / run["folder"]
        target = results / Path(run["folder"]).relative_to("runs").parent  # the time of its start
        if _progress(target) >= _progress(folder) or not _has_episodes(folder):
            continue
        config = json.loads((folder / "config.json").read_text())
        config.pop("arguments")  # with the folders of that machine
        config["command"] = run["command"]
        target.mkdir(parents=True, exist_ok=True)
        (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        (target / "summary.json").write_text((folder / "summary.json").read_text())
        for table in ("episodes.csv", "progress.csv"):
            with (folder / table).open(newline="") as file:
                rows = list(csv.reader(file))
            with (target / table).open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
        print(name)
        count += 1
    return count


def _progress(folder: Path) -> tuple[int, bool]:
    """Return how far a run got, -1 if it has not ended yet, and whether it finished.

    A run that was stopped in its last evaluation has all steps, but not that evaluation.
    """
    if not (folder / "summary.json").is_file():
        return -1, False
    summary = json.loads((folder / "summary.json").read_text())
    return int(summary["env_steps"]), summary["status"] == "finished"


def _has_episodes(folder: Path) -> bool:
    """Whether a run has finished an episode: before that there is no return to compare."""
    with (folder / "episodes.csv").open() as file:
        return sum(1 for _ in file) > 1


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:]]
    print(f"{collect(*folders)} runs copied")
