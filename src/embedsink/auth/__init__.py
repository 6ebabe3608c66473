"""Keys: who may write and who may read (spec 5)."""
