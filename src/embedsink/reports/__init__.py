"""Reports: catalog, scope, formats, pagination, recent events."""
