"""``python -m benchmarks.speed``."""

import sys

from benchmarks.speed.command import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
