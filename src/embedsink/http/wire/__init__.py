"""Requests below Starlette: the uvicorn protocol, connection limits, bodies."""
