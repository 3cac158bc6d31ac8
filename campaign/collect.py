"""Copies the results of the campaign's finished runs: settings, summary, episodes and evaluations.

python campaign/collect.py ../campaign/out
"""

import csv
import json
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def collect(out: Path) -> int:
    """Copy each finished run that is not here yet, as a run folder; return how many these are."""
    count = 0
    runs = json.loads((out / "status.json").read_text())["runs"]
    for name, run in runs.items():
        if run["state"] != "finished":
            continue
        target = RESULTS / Path(run["folder"]).relative_to("runs").parent  # the time of its start
        if target.exists():
            continue
        folder = out / run["folder"]
        config = json.loads((folder / "config.json").read_text())
        config.pop("arguments")  # with the folders of that machine
        config["command"] = run["command"]
        target.mkdir(parents=True)
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


if __name__ == "__main__":
    print(f"{collect(Path(sys.argv[1]))} runs copied to campaign/results")
