"""Concurrency primitives: a limiter, single flight, a throttle, and thread priority."""
