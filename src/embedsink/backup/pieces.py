"""Pieces of files, stored under their SHA-256, so that generations share equal pieces.

DuckDB rewrites blocks of its file in place, so files are split at fixed offsets.
"""

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO

from embedsink.backup.generation import BackupDamaged, StoredFile
from embedsink.durable_files import sync_folder
from embedsink.errors import Misconfigured

PIECE_BYTES = 1_048_576
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Pieces:
    """The folder of the pieces: `<first two digits>/<SHA-256>`. Only one process may write to it.

    Args:
        folder: the folder of the pieces.
        draft: a temporary file on the same disk, which is renamed to each new piece.
    """

    def __init__(self, folder: Path, *, draft: Path) -> None:
        self.new_bytes = 0
        self.rewritten: list[str] = []
        self._folder = folder
        self._draft = draft
        self._unsynced: set[Path] = set()

    def store(self, name: str, file: IO[bytes]) -> StoredFile:
        """Store a file piece by piece. Each piece is read back, also if it existed before."""
        whole, byte_count, digests = sha256(), 0, []
        while content := file.read(PIECE_BYTES):
            whole.update(content)
            byte_count += len(content)
            digests.append(self._store_piece(content))
        return StoredFile(name, byte_count, whole.hexdigest(), tuple(digests))

    def sync(self) -> None:
        """Make the names of all stored pieces durable."""
        if self._unsynced:
            for folder in [*self._unsynced, self._folder]:
                sync_folder(folder)
            self._unsynced.clear()

    def load(self, digest: str) -> bytes:
        """Return a piece.

        Raises:
            BackupDamaged: the piece is missing or changed.
        """
        path = self._path_of(digest)
        try:
            content = _read_piece(path)
        except OSError as error:
            raise BackupDamaged(f"piece {digest}: {error.strerror}") from None
        if sha256(content).hexdigest() != digest:
            raise BackupDamaged(f"piece {digest}: its content does not match its SHA-256")
        return content

    def delete_except(self, used: set[str]) -> int:
        """Delete the pieces that are not `used`. Return their number."""
        unused = [path for path in self._paths() if path.name not in used]
        for path in unused:
            path.unlink()
        return len(unused)

    def _store_piece(self, content: bytes) -> str:
        digest = sha256(content).hexdigest()
        path = self._path_of(digest)
        exists = path.exists()
        self._unsynced.add(path.parent)  # also for an existing piece: an interrupted backup may not have synced it
        if exists and _has_content(path, content):
            return digest
        write_durably(self._draft, content)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._draft.replace(path)
        self.new_bytes += len(content)
        if exists:
            self.rewritten.append(digest)
        return digest

    def _path_of(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise BackupDamaged(f"piece {digest[:64]!r}: is not a SHA-256")
        return self._folder / digest[:2] / digest

    def _paths(self) -> Iterator[Path]:
        return (path for path in self._folder.glob("[0-9a-f][0-9a-f]/*") if _DIGEST.fullmatch(path.name))


def write_durably(path: Path, content: bytes) -> None:
    """Write a file to the disk and read it back.

    Raises:
        OSError: the disk has no space or has failed.
        Misconfigured: the disk returned other content.
    """
    with open(path, "wb", opener=open_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):  # not on macOS
            # Otherwise the content would be read back from the page cache.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not _has_content(path, content):
        raise Misconfigured(f"{path}: the disk returned other content than was written. Replace the disk.")


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read. Pass this as `opener` to `open`."""
    return os.open(path, flags, 0o600)


def _has_content(path: Path, content: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False  # Rewrite an unreadable piece elsewhere on the disk.


def _read_piece(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(PIECE_BYTES + 1)
