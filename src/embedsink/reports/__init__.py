"""Reports: catalog, scope, formats, pagination."""
