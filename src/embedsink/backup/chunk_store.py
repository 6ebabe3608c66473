"""Chunks of files, stored under their SHA-256, so that generations share equal chunks.

Files are split at fixed offsets, because DuckDB changes its file in place.
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

CHUNK_BYTES = 1_048_576
_DIGEST_CHARACTERS = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ChunkStore:
    """The folder of the chunks: `<first two digits>/<SHA-256>`. Only one process may write to it.

    Attributes:
        new_byte_count: the number of bytes written so far.
        rewritten_digests: the digests of damaged chunks that were written again.
    """

    def __init__(self, folder: Path, *, temporary_file: Path) -> None:
        self.new_byte_count = 0
        self.rewritten_digests: list[str] = []
        self._folder = folder
        # On the same disk, so that it can be renamed to each new chunk.
        self._temporary_file = temporary_file
        self._unsynced_folders: set[Path] = set()

    def store(self, name: str, file: IO[bytes]) -> StoredFile:
        """Store the content of a file in chunks. Each chunk is read back to verify it, even if it existed before."""
        file_digest = sha256()
        byte_count = 0
        chunks = []
        while content := file.read(CHUNK_BYTES):
            file_digest.update(content)
            byte_count += len(content)
            chunks.append(self._store_chunk(content))
        return StoredFile(name, byte_count, file_digest.hexdigest(), tuple(chunks))

    def sync(self) -> None:
        """Make the directory entries of all stored chunks durable."""
        if self._unsynced_folders:
            # `self._folder` has the directory entries of new subfolders.
            for folder in [*self._unsynced_folders, self._folder]:
                sync_folder(folder)
            self._unsynced_folders.clear()

    def load(self, digest: str) -> bytes:
        """Return the content of a chunk.

        Raises:
            BackupDamaged: the digest is invalid, or the chunk is missing, unreadable or changed.
        """
        path = self._path_of(digest)
        try:
            content = _read_chunk(path)
        except OSError as error:
            raise BackupDamaged(f"chunk {digest}: {error.strerror}") from None
        if sha256(content).hexdigest() != digest:
            raise BackupDamaged(f"chunk {digest}: its content does not match its SHA-256")
        return content

    def delete_except(self, used_digests: set[str]) -> None:
        """Delete all chunks except those with these digests."""
        unused = [path for path in self._chunk_paths() if path.name not in used_digests]
        for path in unused:
            path.unlink()

    def _store_chunk(self, content: bytes) -> str:
        """Store a chunk, unless an undamaged copy exists. Return the digest of the chunk."""
        digest = sha256(content).hexdigest()
        path = self._path_of(digest)
        exists = path.exists()
        # Sync an existing chunk's folder too: an interrupted backup may not have made the directory entry durable.
        self._unsynced_folders.add(path.parent)
        if exists and _has_content(path, content):
            return digest
        write_verified(self._temporary_file, content)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._temporary_file.replace(path)
        self.new_byte_count += len(content)
        if exists:
            self.rewritten_digests.append(digest)  # The existing copy was damaged.
        return digest

    def _path_of(self, digest: str) -> Path:
        """Return the path of a chunk. Raise BackupDamaged for an invalid digest, because a manifest may be forged."""
        if not _DIGEST.fullmatch(digest):
            raise BackupDamaged(f"chunk {digest[:_DIGEST_CHARACTERS]!r}: is not a SHA-256")
        return self._folder / digest[:2] / digest  # 256 subfolders keep each listing short.

    def _chunk_paths(self) -> Iterator[Path]:
        """Return the paths of all chunks in the folder."""
        return (path for path in self._folder.glob("[0-9a-f][0-9a-f]/*") if _DIGEST.fullmatch(path.name))


def write_verified(path: Path, content: bytes) -> None:
    """Write a file to the disk, and read the content back. Only the owner may read the file.

    Raises:
        OSError: the disk has no space or has failed.
        Misconfigured: the disk returned other content.
    """
    with open(path, "wb", opener=private_opener) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):  # not on macOS
            # Otherwise the content would be read back from the page cache.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not _has_content(path, content):
        raise Misconfigured(f"{path}: the disk returned content that differs from what was written. Replace the disk.")


def private_opener(path: str, flags: int) -> int:
    """Open a file that only its owner may read. Pass this as `opener` to `open`."""
    return os.open(path, flags, 0o600)


def _has_content(path: Path, content: bytes) -> bool:
    """Return whether a file is readable and has exactly this content."""
    try:
        with path.open("rb") as file:
            return file.read(len(content) + 1) == content  # One byte more, to detect a longer file.
    except OSError:
        return False  # Unreadable, for example because of a bad sector.


def _read_chunk(path: Path) -> bytes:
    """Return the content of a chunk's file.

    If the file is longer than any chunk, return one byte too many, so that the SHA-256 does not match.
    """
    with path.open("rb") as file:
        return file.read(CHUNK_BYTES + 1)
