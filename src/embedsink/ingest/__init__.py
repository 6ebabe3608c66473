"""Request bodies to journal records."""
