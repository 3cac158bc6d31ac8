#!/usr/bin/env python
"""Add the policy of a finished run to the zoo, with its settings, its score and a recording.

    python zoo/add.py RUN_FOLDER NAME    add the last policy of a run as zoo/NAME
    python zoo/add.py                    write docs/zoo.md again

Policies are not selected by score: each is the final one of a run with seed 0.
"""

import argparse
import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from medqn_tianshou.commands import evaluate, play
from medqn_tianshou.files.atomic import write_json_atomically
from medqn_tianshou.files.parameters import parameter_bytes, read_parameters

ZOO = Path(__file__).parent
PAGE = ZOO.parent / "docs/zoo.md"
VIDEOS = PAGE.parent / "figures/zoo"
EPISODES = 100
LARGEST = 1_000_000
"""Bytes of a policy; a clone has all of them."""
# The rest of a config is about the machine.
KEPT = ("family", "task", "algo", "seed", "settings", "versions", "commit")
HEAD = """\
# Trained policies

The folder [`zoo`](../zoo) of the repository contains small trained policies, with the settings and
the score of each. In a clone, with the extras `play` and `minatar`:

```sh
medqn play zoo/mountaincar                     # a window; --video agent.gif records
medqn evaluate zoo/mountaincar --episodes 30
```

Each policy is the final one of the run with seed 0, even if another seed or an earlier policy
scored better. The score is the mean and standard deviation over 100 episodes of `medqn evaluate`;
the training return is the final one of the run. A policy that no longer explores or learns can get
stuck in states that training escapes; its score is then lower, with a large standard deviation.
`python zoo/add.py RUN_FOLDER NAME` adds a policy and writes this page.

| name | task | algorithm | replay buffer | score | training return | size |
|---|---|---|---:|---:|---:|---:|
"""


def make_parser() -> argparse.ArgumentParser:
    """Build the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN_FOLDER")
    parser.add_argument("name", nargs="?", metavar="NAME")
    return parser


def add(run: Path, zoo: Path, name: str) -> Path:
    """Add the last policy of a run; return its folder."""
    summary = json.loads((run / "summary.json").read_text())
    if summary["status"] != "finished":
        raise SystemExit(f"error: RUN_FOLDER={run} is {summary['status']}; name a finished run")
    source = next(iter(sorted(run.glob("policy_last.*"), reverse=True)))
    # The Q network alone plays; its target network would double the file.
    network = {k: v for k, v in read_parameters(source).items() if k.startswith("model.")}
    content = parameter_bytes(network)
    if len(content) >= LARGEST:
        raise SystemExit(f"error: RUN_FOLDER={run} has a policy of {len(content):,} bytes")
    folder = zoo / name
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((run / "config.json").read_text())
    write_json_atomically(
        folder / "config.json", {key: config[key] for key in KEPT if key in config}
    )
    (folder / "policy_last.safetensors").write_bytes(content)
    write_json_atomically(
        folder / "score.json", {**score(folder), "final_return": summary["final_return"]}
    )
    return folder


def score(folder: Path) -> dict[str, Any]:
    """Evaluate a policy of the zoo."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        evaluate.main([str(folder), "--episodes", str(EPISODES), "--json"])
    result = json.loads(printed.getvalue())
    return {key: result[key] for key in ("episodes", "seed", "epsilon", "mean", "std")}


def record(folder: Path, videos: Path, max_steps: int = 300) -> None:
    """Record the first episode of a policy of the zoo."""
    videos.mkdir(parents=True, exist_ok=True)
    video = str(videos / f"{folder.name}.gif")
    play.main([str(folder), "--video", video, "--max-steps", str(max_steps)])


def page(zoo: Path = ZOO) -> str:
    """Write the page of all policies."""
    rows, pictures = [], []
    for config in sorted(zoo.glob("*/config.json")):
        run, folder = json.loads(config.read_text()), config.parent
        found = json.loads((folder / "score.json").read_text())
        size = (folder / "policy_last.safetensors").stat().st_size
        rows.append(
            f"| `zoo/{folder.name}` | {run['task']} | {run['algo']} "
            f"| {run['settings']['buffer_size']['value']:,} transitions "
            f"| {found['mean']:.1f} ± {found['std']:.1f} | {found['final_return']:.1f} "
            f"| {size / 1000:.0f} kB |\n"
        )
        picture = f"![{run['algo']} plays {run['task']}](figures/zoo/{folder.name}.gif)"
        pictures.append(f"\n## {folder.name}\n\n{picture}\n")
    return HEAD + "".join(rows) + "".join(pictures)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    if args.run is not None:
        if args.name is None or not args.name.isidentifier():
            parser.error("argument NAME: give the policy a name of letters, such as breakout")
        record(add(args.run, ZOO, args.name), VIDEOS)
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
