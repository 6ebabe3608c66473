"""API keys: their tokens, the file that stores them, and what each may write or read (spec 5)."""
