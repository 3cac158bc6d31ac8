"""``python -m benchmarks.memory``."""

import sys

from benchmarks.memory.command import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
