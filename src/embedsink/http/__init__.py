"""The HTTP surface. The only package that imports starlette."""
