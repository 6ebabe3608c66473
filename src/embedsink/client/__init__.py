"""The Python API: reports as pandas frames, from a data folder or a server."""
