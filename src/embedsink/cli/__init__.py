"""The command line `embedsink`."""
