"""Bulk import, export and quarantine replay."""
