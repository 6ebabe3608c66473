"""The step from request bodies to journal lines."""
