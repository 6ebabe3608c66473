"""Resources: one module each, with its OpenAPI operations."""
