#!/bin/sh
# Runs the Dockerfile's install steps in a clean virtual environment, with whichever
# build of torch the index has, and then the image's default command from an empty folder.
#   docker/check_install.sh [FOLDER]     keeps the environment in FOLDER; otherwise it is removed
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$(mktemp -d)}
[ "$#" -gt 0 ] || trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/src" "$folder/runs"
"${PYTHON:-python3.11}" -m venv "$folder/venv"
PATH="$folder/venv/bin:$PATH"
export PATH
# What the Dockerfile copies, and nothing else.
cp "$root/constraints.txt" "$root/docker/install.sh" "$root/pyproject.toml" "$root/README.md" \
    "$root/LICENSE" "$folder/src"
cp -R "$root/medqn_tianshou" "$folder/src"
cd "$folder/src"
./install.sh torch constraints.txt ""
./install.sh package constraints.txt atari,minatar
cd "$folder/runs"
medqn doctor --logdir "$folder/runs"
OMP_NUM_THREADS=1 medqn train lowdim --steps 1500 --no-progress --logdir "$folder/runs"
echo "the Dockerfile's install steps work here"
