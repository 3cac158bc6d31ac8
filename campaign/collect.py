"""Copies the results of the finished runs of the campaign: settings, summary, episodes, rows.

python campaign/collect.py ../campaign/out
"""

import csv
import json
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def collect(out: Path) -> int:
    """Copy what is finished and not here yet; return how many runs that is."""
    count = 0
    runs = json.loads((out / "status.json").read_text())["runs"]
    for name, run in runs.items():
        study, _, rest = name.partition("_")
        target = RESULTS / study / f"{rest}.json"
        if run["state"] != "finished" or target.exists():
            continue
        folder = out / run["folder"]
        record = json.loads((folder / "config.json").read_text())
        record.pop("arguments")  # with the folders of that machine
        record["command"] = run["command"]
        record["summary"] = json.loads((folder / "summary.json").read_text())
        target.parent.mkdir(parents=True, exist_ok=True)
        for table in ("episodes", "progress"):
            with (folder / f"{table}.csv").open(newline="") as file:
                rows = list(csv.reader(file))
            with target.with_suffix(f".{table}.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
        target.write_text(json.dumps(record, indent=1) + "\n")
        count += 1
    return count


if __name__ == "__main__":
    print(f"{collect(Path(sys.argv[1]))} runs copied to {RESULTS.name}/")
