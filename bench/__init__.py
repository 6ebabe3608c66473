"""Measures the numbers in docs/benchmarks.md. `scripts/bench --help` lists the benchmarks."""
