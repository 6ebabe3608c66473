"""API keys: their tokens, the file `keys.json`, and what each key may write or read (spec 5)."""
