"""The HTTP server. Only this package and the demo import starlette."""
