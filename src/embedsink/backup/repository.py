"""The backup folder: generations, the chunks that they share, and the lock of the process that writes.

blocks/<2 digits>/<SHA-256>     chunks of files
generations/<UTC time>.json     manifests, each written last, so that an interrupted backup leaves no generation
lock                            locked by the process that writes
draft                           a temporary file
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from embedsink.backup.chunk_store import ChunkStore, write_verified
from embedsink.backup.generation import BackupDamaged, Generation, decode
from embedsink.durable_files import create_folder, sync_folder
from embedsink.errors import Misconfigured

_NAME_FORMAT = "%Y%m%dT%H%M%S.%fZ.json"
_MILLISECOND = timedelta(milliseconds=1)
# A folder in the root of a new file system.
LOST_AND_FOUND = "lost+found"


class Repository:
    """A backup folder. Creating this object does not touch the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generations = path / "generations"
        self._temporary_file = path / "draft"
        self._chunks_folder = path / "blocks"  # Existing backups have this name.
        self.chunks = ChunkStore(self._chunks_folder, temporary_file=self._temporary_file)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the folder during a `with` block. Create the folder if it is missing.

        Raises:
            Misconfigured: the folder contains anything but a backup, or another process is writing to it.
        """
        self._create_folders()
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor):  # Closing the file releases the lock.
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Misconfigured(f"{self.path}: another backup is writing to it. Wait until it finishes.") from None
            yield

    def generation_names(self) -> list[str]:
        """Return the file names of all generations, oldest first.

        Raises:
            Misconfigured: the folder is not a backup.
        """
        try:
            return sorted(path.name for path in self.generations.iterdir() if _time_of(path.name))
        except (FileNotFoundError, NotADirectoryError):
            raise Misconfigured(
                f"{self.path}: is not a backup, because it has no generations/. Name a folder written by "
                "`embedsink backup`."
            ) from None

    def read(self, name: str) -> Generation:
        """Return a generation.

        Raises:
            BackupDamaged: the manifest is missing, unreadable or invalid.
        """
        path = self.generations / name
        try:
            return decode(path.read_bytes())
        except OSError as error:
            raise BackupDamaged(f"{path}: {error.strerror}") from None
        except BackupDamaged as error:
            raise BackupDamaged(f"{path}: {error}") from None

    def newest_readable(self) -> Generation | None:
        """Return the newest generation with a readable manifest; None if no manifest is readable."""
        for name in reversed(self.generation_names()):
            try:
                return self.read(name)
            except BackupDamaged:
                continue  # `restore` and `--list` report the damage.
        return None

    def add(self, generation: Generation) -> str:
        """Make the chunks durable, and after them the manifest. Return the file name of the manifest."""
        self.chunks.sync()
        name = self._next_name(datetime.fromisoformat(generation.began_at))
        write_verified(self._temporary_file, generation.encode())
        self._temporary_file.rename(self.generations / name)
        sync_folder(self.generations)
        return name

    def delete_all_but(self, keep: int) -> int:
        """Delete all but the `keep` newest generations (at least 1), and unused chunks.

        Return the number of deleted generations.

        Raises:
            BackupDamaged: a kept generation can't be read, so its chunks are unknown. Nothing is deleted.
        """
        names = self.generation_names()
        try:
            used = {chunk for name in names[-keep:] for chunk in self.read(name).chunks}
        except BackupDamaged as error:
            raise BackupDamaged(f"{error}. Nothing was deleted. Move this manifest elsewhere, and retry.") from None
        for name in names[:-keep]:
            (self.generations / name).unlink()
        # Make the deletion of manifests durable first: after a power failure, no manifest may refer to a deleted chunk.
        sync_folder(self.generations)
        self.chunks.delete_except(used)
        return len(names[:-keep])

    def _create_folders(self) -> None:
        """Create the missing folders durably. Raise Misconfigured if the folder contains anything but a backup."""
        if not self.generations.is_dir():
            if self.path.is_dir() and any(path.name != LOST_AND_FOUND for path in self.path.iterdir()):
                raise Misconfigured(f"{self.path}: is not empty and not a backup. Name a new folder or a backup.")
            create_folder(self.path, mode=0o700)
            # Create `generations` first: it identifies the folder as a backup if the process is interrupted.
            self.generations.mkdir(mode=0o700)
        create_folder(self._chunks_folder, mode=0o700)

    def _next_name(self, began_at: datetime) -> str:
        """Return the file name of a new generation, with the time `began_at`.

        If the clock was set back, the name has a later time, so that the newest generation sorts last.
        """
        existing_times = [time for name in self.generation_names() if (time := _time_of(name))]
        named_at = max([began_at, *(time + _MILLISECOND for time in existing_times)])
        return f"{named_at:%Y%m%dT%H%M%S}.{named_at.microsecond // 1_000:03}Z.json"


def _time_of(name: str) -> datetime | None:
    """Return the time in the file name of a generation; None for other files."""
    try:
        return datetime.strptime(name, _NAME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
