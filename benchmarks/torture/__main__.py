"""``python -m benchmarks.torture``."""

import sys

from benchmarks.torture.command import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
