"""The store. The only package that imports duckdb."""
