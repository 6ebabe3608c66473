"""Dashboards as files: their model, validation, queries and charts."""
