"""Copies a database file durably and verifies the copy, as a program:

    python -m embedsink.loader.copy_file SOURCE TARGET [PREDECESSOR]

A predecessor is the file that the copy will replace. The program verifies it, too: it may become the previous snapshot.

The server runs it as a child, because closing any descriptor of `store.duckdb` inside the server would drop DuckDB's
POSIX lock on it. It imports as little as possible, so that it starts in 20 ms.

It writes a line after each bounded step, so that the server can tell a slow copy from a hung one:

    step        16 MiB were copied, or verified
    copied      the source is not needed any more
    damaged     the predecessor is damaged; then why
    verified    the last line; then the seconds that the disk was busy with it
"""

import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

# The exit code for a source that is damaged.
DAMAGED = 3
STEP = "step"
COPIED = "copied"
PREDECESSOR_DAMAGED = "damaged"
VERIFIED = "verified"
# A copy leaves so much free on its disk: a checkpoint that meets the end of the disk breaks the store.
ROOM_BYTES_MIN = 4 * 1_048_576
_FICLONE = 0x40049409  # ioctl_ficlone(2): share the blocks where the file system can
_STEP_BYTES = 16 * 1_048_576


class SourceUnreadable(OSError):
    """The disk can't read a part of the source."""


def copy_durably(source: Path, target: Path, *, on_step: Callable[[], None] = lambda: None) -> None:
    """Copy a file by reflink, or block by block; return after the copy is on the disk.

    Raises:
        SourceUnreadable: the disk can't read the source.
        OSError: there is no room for it, or the disk failed.
    """
    with source.open("rb") as reading, target.open("xb") as writing:
        try:
            fcntl.ioctl(writing, _FICLONE, reading.fileno())
        except OSError:  # another file system, or one without reflinks
            _require_room(target, os.fstat(reading.fileno()).st_size)
            while block := _read(reading):
                writing.write(block)
                writing.flush()
                os.fdatasync(writing.fileno())  # in steps: one at the end could take minutes
                on_step()
        os.fsync(writing.fileno())


def _read(file: BinaryIO) -> bytes:
    try:
        return file.read(_STEP_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:
            raise SourceUnreadable(*error.args) from error
        raise


def _require_room(target: Path, byte_count: int) -> None:
    disk = os.statvfs(target.parent)
    if disk.f_bavail * disk.f_frsize < byte_count + ROOM_BYTES_MIN:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for a copy of {byte_count:,} bytes")


def verify(path: Path, *, on_step: Callable[[], None] = lambda: None) -> str | None:
    """Return what is damaged in a database file, or None. It has to be on the disk."""
    from embedsink.loader.blocks import find_doubtful_blocks

    doubtful = len(find_doubtful_blocks(path, on_step=on_step))
    if not doubtful:
        return None
    # They may be free. Reading every row tells, and takes some fifty times as long.
    from embedsink.store.duckdb_errors import StoreDamaged
    from embedsink.store.verify import read_every_row

    try:
        read_every_row(path, on_step=on_step)
    except StoreDamaged as error:
        return f"{error} (blocks whose checksum does not hold: {doubtful:,})"
    return None


def _is_doubtful(source: Path) -> bool:
    # Not every row: the server has it open. Where all of its blocks are good, the disk damaged the copy alone.
    from embedsink.loader.blocks import find_doubtful_blocks

    try:
        return bool(find_doubtful_blocks(source, on_step=lambda: _say(STEP)))
    except OSError as error:
        return error.errno == errno.EIO


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _damage_in(predecessor: Path) -> str | None:
    """Return why a predecessor is not sound, or None if it is, or if there is none."""
    from embedsink.errors import EmbedsinkError

    try:
        damage = verify(predecessor, on_step=lambda: _say(STEP))
    except FileNotFoundError:
        return None
    except (OSError, EmbedsinkError) as error:
        return f"can't be verified ({error})"
    return damage and f"is damaged ({damage})"


def _run(source: Path, target: Path, predecessor: Path | None = None) -> int:
    started_at = time.monotonic()
    try:
        copy_durably(source, target, on_step=lambda: _say(STEP))
    except SourceUnreadable as error:
        sys.stderr.write(f"{source.name}: {error.strerror}\n")
        return DAMAGED
    _say(COPIED)
    copied_at = time.monotonic()
    import embedsink.loader.blocks  # noqa: F401  not counted: it keeps a busy processor waiting, and not the disk

    import_s = time.monotonic() - copied_at
    try:
        damage = verify(target, on_step=lambda: _say(STEP))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        damage = f"{target.name}: {error.strerror}"  # Where blocks are shared, the source has the same ones.
    if damage:
        sys.stderr.write(f"{damage}\n")
        return DAMAGED if _is_doubtful(source) else 1
    if predecessor and (damage := _damage_in(predecessor)):
        _say(f"{PREDECESSOR_DAMAGED} {damage}")
    _say(f"{VERIFIED} {time.monotonic() - started_at - import_s:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(_run(*map(Path, sys.argv[1:])))
