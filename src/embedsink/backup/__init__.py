"""Backups of a data folder: `create_backup` adds a generation to a backup folder, `restore_backup` restores one."""

from embedsink.backup.create import Created, create_backup
from embedsink.backup.generation import BackupDamaged, Generation
from embedsink.backup.repository import Repository
from embedsink.backup.restore import restore_backup

__all__ = ["BackupDamaged", "Created", "Generation", "Repository", "create_backup", "restore_backup"]
