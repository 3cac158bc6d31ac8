"""Benchmarks of speed, memory and robustness; run from the root of the repository.

python -m benchmarks.speed --quick
python -m benchmarks.memory --parts bytes,times
python -m benchmarks.memory.compression --frames 20000
python -m benchmarks.torture --quick --parts kills --out torture-quick
"""
