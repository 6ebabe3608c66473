"""Journal segments into the store, and snapshots out of it."""
