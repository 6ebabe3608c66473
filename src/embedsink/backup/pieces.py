"""Pieces of files under their SHA-256: what two generations have in common is stored once.

A checkpoint of DuckDB rewrites some blocks of its file in place, so files are cut at fixed offsets.
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
    """The folder of the pieces: `<first two digits>/<SHA-256>`. One program at a time writes to it.

    Args:
        folder: where they lie.
        draft: a path on the same disk, where each piece is written before it gets its name.
    """

    def __init__(self, folder: Path, *, draft: Path) -> None:
        self.new_bytes = 0
        self.mended: list[str] = []
        self._folder = folder
        self._draft = draft
        self._unsynced: set[Path] = set()

    def store(self, name: str, file: IO[bytes]) -> StoredFile:
        """Store a file, piece by piece, and read back each piece: new ones, and those that were there already."""
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
            BackupDamaged: it is missing, or is not what was stored.
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
        """Delete every piece that is not `used`; return how many."""
        unused = [path for path in self._paths() if path.name not in used]
        for path in unused:
            path.unlink()
        return len(unused)

    def _store_piece(self, content: bytes) -> str:
        digest = sha256(content).hexdigest()
        path = self._path_of(digest)
        is_there = path.exists()
        self._unsynced.add(path.parent)  # also of one that is there: an interrupted backup may not have synced it
        if is_there and _is(path, content):
            return digest
        write_durably(self._draft, content)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._draft.replace(path)
        self.new_bytes += len(content)
        if is_there:
            self.mended.append(digest)
        return digest

    def _path_of(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise BackupDamaged(f"piece {digest[:64]!r}: is no SHA-256")
        return self._folder / digest[:2] / digest

    def _paths(self) -> Iterator[Path]:
        return (path for path in self._folder.glob("[0-9a-f][0-9a-f]/*") if _DIGEST.fullmatch(path.name))


def write_durably(path: Path, content: bytes) -> None:
    """Write a file to the disk and read it back.

    Raises:
        OSError: there is no room, or the disk failed.
        Misconfigured: the disk returned something else.
    """
    with open(path, "wb", opener=open_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):  # not on macOS
            # Else it would be read back from the memory that it was written from.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not _is(path, content):
        raise Misconfigured(f"{path}: reads back differently from what was written. Replace this disk.")


def open_private(path: str, flags: int) -> int:
    """Open a file for its owner alone; an opener for `open`."""
    return os.open(path, flags, 0o600)


def _is(path: Path, content: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False  # A block that can't be read is written anew, elsewhere on the disk.


def _read_piece(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(PIECE_BYTES + 1)
