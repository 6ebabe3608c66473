"""Backups of a data folder: generations in a backup folder."""
