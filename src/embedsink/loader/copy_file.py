"""A program that copies a database file durably and verifies the copy:

    python -m embedsink.loader.copy_file SOURCE TARGET [PREDECESSOR]

PREDECESSOR is the file that the copy will replace. It is verified too, because it may become the previous snapshot.

The server runs this as a child process, because closing any descriptor of `store.duckdb` inside the server would drop
DuckDB's POSIX lock. The program imports as little as possible, so that it starts in 20 ms.

It prints a line after each bounded step, so that the server can tell a slow copy from a hung one:

    step        16 MiB were copied or verified
    copied      the source is no longer needed
    damaged     the predecessor is damaged; followed by the cause
    verified    the last line; followed by the seconds for which the disk was busy
"""

import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from embedsink.durable_files import free_bytes

# The exit code for a damaged source.
DAMAGED = 3
STEP = "step"
COPIED = "copied"
PREDECESSOR_DAMAGED = "damaged"
VERIFIED = "verified"
# The space that a copy leaves free on its disk: a checkpoint on a full disk breaks the store.
FREE_BYTES_MIN = 4 * 1_048_576
_FICLONE = 0x40049409  # ioctl_ficlone(2): share blocks if the file system supports it
_STEP_BYTES = 16 * 1_048_576


class SourceUnreadable(OSError):
    """The disk failed to read a part of the source."""


def copy_durably(source: Path, target: Path, *, on_step: Callable[[], None] = lambda: None) -> None:
    """Copy a file by reflink if the file system supports it, else in steps. Return when the copy is durable.

    Raises:
        SourceUnreadable: the disk can't read the source.
        OSError: the disk has no space for the copy, or has failed.
    """
    with source.open("rb") as reader, target.open("xb") as writer:
        try:
            fcntl.ioctl(writer, _FICLONE, reader.fileno())
        except OSError:  # another file system, or one without reflinks
            _require_space(target, os.fstat(reader.fileno()).st_size)
            while content := _read_step(reader):
                writer.write(content)
                writer.flush()
                os.fdatasync(writer.fileno())  # Sync in steps: a single sync at the end could take minutes.
                on_step()
        os.fsync(writer.fileno())


def _read_step(file: BinaryIO) -> bytes:
    """Read the next `_STEP_BYTES`. Raise SourceUnreadable if the disk can't read them, OSError for other errors."""
    try:
        return file.read(_STEP_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:
            raise SourceUnreadable(*error.args) from error
        raise


def _require_space(target: Path, byte_count: int) -> None:
    """Raise OSError if the disk has no space for a copy of this size and the reserve `FREE_BYTES_MIN`."""
    if free_bytes(target.parent) < byte_count + FREE_BYTES_MIN:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for a copy of {byte_count:,} bytes")


def verify(path: Path, *, on_step: Callable[[], None] = lambda: None) -> str | None:
    """Return a description of the damage in a durable database file; None if the file is intact."""
    # Import numpy late, so that the program starts in 20 ms.
    from embedsink.loader.blocks import find_suspect_blocks

    suspect_count = len(find_suspect_blocks(path, on_step=on_step))
    if not suspect_count:
        return None
    # The suspect blocks may be free. Only reading every row shows whether the file is damaged. This takes fifty times
    # as long as reading the blocks.
    from embedsink.store.duckdb_errors import StoreDamaged
    from embedsink.store.verify import read_every_row

    try:
        read_every_row(path, on_step=on_step)
    except StoreDamaged as error:
        return f"{error} (blocks whose checksum does not match: {suspect_count:,})"
    return None


def _has_suspect_blocks(source: Path) -> bool:
    """Return whether the source has a block whose checksum does not match, or is unreadable.

    Such a block may be free, which `verify` finds out by opening the database. Here it counts as damage, because the
    server has the source open.
    """
    # Import numpy late, so that the program starts in 20 ms.
    from embedsink.loader.blocks import find_suspect_blocks

    try:
        return bool(find_suspect_blocks(source, on_step=lambda: _print(STEP)))
    except OSError as error:
        return error.errno == errno.EIO  # Other errors, such as too many open files, are not damage.


def _print(line: str) -> None:
    """Print a line to the server at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _predecessor_damage(predecessor: Path) -> str | None:
    """Return the damage in the file that the copy will replace, as the predicate of a sentence.

    Return None if the file is intact or missing.
    """
    # Import late, so that the program starts in 20 ms.
    from embedsink.errors import EmbedsinkError

    try:
        damage = verify(predecessor, on_step=lambda: _print(STEP))
    except FileNotFoundError:
        return None
    except (OSError, EmbedsinkError) as error:
        return f"can't be verified ({error})"
    return f"is damaged ({damage})" if damage else None


def _copy_damage(target: Path) -> str | None:
    """Return the damage in the copy; None if the copy is intact. An unreadable block counts as damage."""
    try:
        return verify(target, on_step=lambda: _print(STEP))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # With a reflink, the source shares the unreadable block. The caller checks the source.
        return f"{target.name}: {error.strerror}"


def _main(source: Path, target: Path, predecessor: Path | None = None) -> int:
    """Copy the source, then verify the copy and its predecessor, which is the file that the copy will replace.

    Print a line for each step, which the server reads from stdout. Return the exit code: 0 after success, `DAMAGED` if
    the source is damaged, and 1 if only the copy is damaged.
    """
    started_at = time.monotonic()
    try:
        copy_durably(source, target, on_step=lambda: _print(STEP))
    except SourceUnreadable as error:
        sys.stderr.write(f"{source.name}: {error.strerror}\n")
        return DAMAGED
    _print(COPIED)
    # Import here what `_copy_damage` needs, so that `disk_busy_s` excludes the import: it uses the CPU, not the disk.
    import_started_at = time.monotonic()
    import embedsink.loader.blocks  # noqa: F401

    import_s = time.monotonic() - import_started_at
    damage = _copy_damage(target)
    if damage:
        sys.stderr.write(f"{damage}\n")
        is_source_damaged = _has_suspect_blocks(source)
        return DAMAGED if is_source_damaged else 1
    predecessor_damage = _predecessor_damage(predecessor) if predecessor else None
    if predecessor_damage:
        _print(f"{PREDECESSOR_DAMAGED} {predecessor_damage}")
    disk_busy_s = time.monotonic() - started_at - import_s
    _print(f"{VERIFIED} {disk_busy_s:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(_main(*map(Path, sys.argv[1:])))
