"""The command `embedsink`, one module a noun."""
