#!/usr/bin/env python
"""Write the README's table "Which method to choose" from the committed measurements.

Run it as ``python docs/which.py``.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
BLOCK = re.compile(r"(<!-- which: .*? -->\n).*?(<!-- /which -->)", re.DOTALL)

Process = dict[str, Any]


def table() -> str:
    """Make the table and the line below it."""
    memory = json.loads((RESULTS / "memory/memory.json").read_text())
    speed = json.loads((RESULTS / "speed/speed.json").read_text())
    processes = {
        (row["family"], row["algo"], row["replay"], row["transitions"]): row
        for row in memory["parts"]["rss"]["measured"]["trainings"]
    }
    figures = {
        name: value
        for part in speed["parts"].values()
        for name, value in part["measured"]["figures"].items()
    }
    stock = figures["atari_1env_stock_dqn_steps_per_s"]
    slow, fast = (
        figures[f"atari_1env_medqn_r_{interval}_steps_per_s"] / stock for interval in ("c20", "c40")
    )
    dqn = figures["atari_1env_dqn_steps_per_s"] / stock
    rows = [
        ("", "Qbert: replay, process", "Seaquest: replay, process", "speed, Qbert", "use it"),
        (
            "DQN, Tianshou's own classes",
            _cell(processes.get(("atari", "dqn", "stock", 1_000_000)), 7_091 * 10**6),
            _cell(processes["minatar", "dqn", "stock", 100_000]),
            "1 x",
            "as the baseline",
        ),
        (
            "[DQN](docs/dqn.md), compact",
            _cell(
                processes.get(("atari", "dqn", "compact", 1_000_000)),
                memory["parts"]["full"]["measured"]["nbytes"],
            ),
            _cell(processes["minatar", "dqn", "compact", 100_000]),
            f"{dqn:.1f} x",
            "for DQN in little memory",
        ),
        (
            "[MeDQN(R)](docs/medqn_r.md), compact",
            _cell(processes["atari", "medqn", "compact", 100_000]),
            _cell(processes["minatar", "medqn-r", "compact", 10_000]),
            f"{slow:.1f} to {fast:.1f} x",
            "for frames: a tenth of the buffer, half the updates or fewer",
        ),
        (
            "[MeDQN(U)](docs/medqn_u.md)",
            "not for frames",
            _cell(processes["minatar", "medqn-u", "raw", 32]),
            "",
            "for vectors, and for grids with few channels: 32 transitions",
        ),
    ]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    note = (
        "Atari's Qbert and MinAtar's Seaquest, measured with full buffers and few updates "
        "([memory](docs/results/memory/README.md), [speed](docs/results/speed/README.md)). Other "
        f"Atari games need up to four times the replay memory of Qbert ({_bytes(memory)}). "
        "Process: the peak of its resident memory with the CPU build of torch, of which libraries "
        f"take 220 MB. {_long_runs()} Speed: training, relative to the first row; MeDQN(R) is also "
        "faster because it makes fewer updates."
    )
    return "\n".join([*lines, "", note, ""])


def _bytes(memory: dict[str, Any]) -> str:
    games = memory["parts"]["bytes"]["measured"]["bytes_per_transition"]
    sizes = {game: of_game["random"] for game, of_game in games.items()}
    mean = sum(sizes.values()) / len(sizes)
    return f"{sizes['Qbert']:.0f} bytes per transition; mean of the paper's games: {mean:.0f}"


def _long_runs() -> str:
    runs = (ROOT / "campaign/results/B").rglob("summary.json")
    peaks = [json.loads(path.read_text())["peak_rss_mb"] for path in runs]
    return (
        "Our runs of NameThisGame over 1.5 million steps peaked at "
        f"{min(peaks):.0f} to {max(peaks):.0f} MB."
    )


def _cell(row: Process | None, replay: int = 0) -> str:
    if row is None:  # the process was not measured; the replay buffer was, alone
        return f"{_size(replay)}, not measured"
    return f"{_size(row['buffer'])}, {_size(row['peak_rss'])}"


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e3:.0f} kB"


def main() -> None:
    """Replace the table in the README."""
    readme = ROOT / "README.md"
    text = BLOCK.sub(lambda found: f"{found[1]}{table()}{found[2]}", readme.read_text())
    readme.write_text(text)


if __name__ == "__main__":
    main()
