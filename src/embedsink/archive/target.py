"""The folder or the object storage of an archive. Files appear completely or not at all."""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from embedsink.durable_files import create_folder, is_disk_full, sync_file, sync_folder, write_durably
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.permissions import FOLDER_MODE
from embedsink.store.object_storage import ObjectStorage, ObjectStorageFailed

S3 = "s3://"
_LOCK = "archive.lock"
_DRAFT = "archive.part"
_WILDCARD = re.compile(r"[*?\[]")


class ArchiveFailed(EmbedsinkError):
    """The archive can't be written or read now. A retry may succeed. Rows that are not archived are not deleted."""


class Target(Protocol):
    """Where an archive is. The names of files have a folder and a name, such as `2026-08/manifest.json`.

    All methods raise ArchiveFailed.
    """

    name: str  # for messages

    def locked(self) -> AbstractContextManager[None]:
        """Exclude other processes that write to the archive."""

    def list_files(self) -> set[str]:
        """Return the names of all files."""

    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file durably."""

    def local(self, name: str) -> AbstractContextManager[Path]:
        """Yield the path of the file, or of a copy on this machine."""

    def draft(self) -> AbstractContextManager[Path]:
        """Yield the path for a new file, which `add` moves to the archive. The block deletes what is left."""

    def add(self, draft: Path, name: str) -> None:
        """Move a complete new file to the archive durably."""


class FolderTarget:
    """An archive in a folder.

    Args:
        folder: the folder. It must exist: an archive must not fill the disk on which a missing one is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other processes that write to the archive. Some network file systems can't."""
        with self._errors_translated():
            descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            with self._errors_translated():
                _lock(descriptor, self.name)
            yield
        finally:
            os.close(descriptor)

    def list_files(self) -> set[str]:
        """Return the names of all files."""
        with self._errors_translated():
            return {f"{path.parent.name}/{path.name}" for path in self._folder.glob("*/*")}

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._errors_translated():
            return (self._folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file durably."""
        draft = self._folder / _DRAFT
        with self._errors_translated():
            write_durably(draft, content)
        self.add(draft, name)

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """Yield the path of the file."""
        with self._errors_translated():
            yield self._folder / name

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Yield the path for a new file on the same disk. It replaces the draft of a killed process."""
        path = self._folder / _DRAFT
        try:
            with self._errors_translated():
                path.unlink(missing_ok=True)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def add(self, draft: Path, name: str) -> None:
        """Move a complete new file to the archive durably."""
        path = self._folder / name
        with self._errors_translated():
            create_folder(path.parent, mode=FOLDER_MODE)
            sync_file(draft)
            draft.replace(path)
            sync_folder(path.parent)

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ArchiveFailed(f"archive {self.name}: {_folder_sentence(error)}") from None


class ObjectTarget:
    """An archive in object storage. Only one process at a time may write to it: there is no lock.

    Args:
        url: such as `s3://bucket/prefix`.

    Raises:
        Misconfigured: the extension for object storage is missing.
    """

    def __init__(self, url: str) -> None:
        self.name = url.rstrip("/")
        self._storage = ObjectStorage()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing."""
        yield

    def list_files(self) -> set[str]:
        """Return the names of all files."""
        with self._errors_translated():
            return {url.removeprefix(f"{self.name}/") for url in self._storage.glob(f"{self.name}/*/*")}

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._errors_translated():
            return self._storage.read(f"{self.name}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file."""
        with self._errors_translated():
            self._storage.write(f"{self.name}/{name}", content)

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """Yield the path of a temporary copy."""
        with self.draft() as path:
            path.write_bytes(self.read(name))
            yield path

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Yield the path of a temporary file."""
        with TemporaryDirectory(prefix="embedsink-archive-") as folder:
            yield Path(folder) / _DRAFT

    def add(self, draft: Path, name: str) -> None:
        """Upload a complete new file."""
        self.write(name, draft.read_bytes())

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except ObjectStorageFailed as error:
            raise ArchiveFailed(f"archive {self.name}: {error}") from None


def open_target(text: str, *, data: Path | None = None) -> Target:
    """Return the target of a path or a URL.

    Args:
        text: the path or the URL.
        data: the data folder of the rows that the archive gets; None to read an archive.

    Raises:
        Misconfigured: the path is empty or in the data folder, the URL has no bucket or has wildcards, or the extension
            for object storage is missing.
    """
    if text.startswith(S3):
        if not text.removeprefix(S3).strip("/"):
            raise Misconfigured(f"archive {text}: has no bucket. Example: s3://bucket/embedsink.")
        if _WILDCARD.search(text):
            raise Misconfigured(f"archive {text}: *, ? and [ are wildcards of DuckDB. Choose a prefix without them.")
        return ObjectTarget(text)
    if "://" in text:
        raise Misconfigured(f"archive {text}: is not a folder or an s3:// URL. Example: s3://bucket/embedsink.")
    if not text:
        raise Misconfigured("archive: the path is empty. Name a folder, or a URL such as s3://bucket/embedsink.")
    if data is not None and Path(text).resolve().is_relative_to(data.resolve()):
        raise Misconfigured(
            f"archive {text}: is in the data folder, so erasures would have to search it. Name a folder elsewhere."
        )
    return FolderTarget(Path(text))


def _lock(descriptor: int, name: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ArchiveFailed(f"archive {name}: another process is writing to it. Try again when it has ended.") from None


def _folder_sentence(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist. Create the folder, or mount its disk."
    if isinstance(error, NotADirectoryError):
        return "is not a folder. Name a folder."
    if error.errno == errno.ENOLCK:
        return "its file system has no locks, which exclude other processes. Name a folder on another one."
    if is_disk_full(error):
        return "its disk is full. Free space on it."
    if error.errno == errno.EROFS:
        return "its file system is read-only. Mount it writable."
    if isinstance(error, PermissionError):
        return "can't be read and written by this user. Change its owner or its permissions."
    return f"{error.strerror}. Check the disk."
