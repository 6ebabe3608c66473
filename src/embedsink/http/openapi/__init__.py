"""`/openapi.json`: the HTTP surface as OpenAPI 3.1.0."""
