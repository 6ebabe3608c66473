"""Measures every number in README. `scripts/bench --help` lists the benchmarks."""
