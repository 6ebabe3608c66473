"""Measures every number that README claims. `scripts/bench --help` lists what there is."""
