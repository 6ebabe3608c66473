"""The HTTP surface: one module a resource. The only package that imports starlette."""
