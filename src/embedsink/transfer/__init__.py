"""Bulk import, export, and the replay and purge of the quarantine."""
