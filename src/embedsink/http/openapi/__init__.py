"""The OpenAPI 3.1.0 description of the server."""
