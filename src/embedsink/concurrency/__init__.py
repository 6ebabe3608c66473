"""Primitives that several rooms use: limits, shared calls, throttling, process priority."""
