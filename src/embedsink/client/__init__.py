"""The Python interface: reports as pandas frames, from a data folder or a server."""
