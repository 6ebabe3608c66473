"""The lines of a file with their numbers, also of one that gzip has compressed; none takes more memory than it may."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from embedsink.errors import EmbedsinkError

# What RFC 1952 begins a file with; no JSON does.
_GZIP_START = b"\x1f\x8b"


@contextmanager
def opened_lines(
    path: Path, *, bytes_max: int, on_read: Callable[[int], None]
) -> Iterator[Iterator[tuple[int, bytes]]]:
    """The lines of a file, also of one that gzip has compressed, be it named so or not.

    Args:
        path: the file.
        bytes_max: the longest line that is read whole.
        on_read: told how many more bytes of the file were read.
    """
    with path.open("rb") as file:
        is_compressed = file.read(len(_GZIP_START)) == _GZIP_START
        file.seek(0)
        if not is_compressed:
            yield read_lines(file, bytes_max=bytes_max, on_read=on_read)
            return
        with gzip.open(file) as unpacked:
            yield _told_by_place(read_lines(unpacked, bytes_max=bytes_max, on_read=lambda count: None), file, on_read)


def _told_by_place(
    lines: Iterator[tuple[int, bytes]], file: BinaryIO, on_read: Callable[[int], None]
) -> Iterator[tuple[int, bytes]]:
    """The same lines; `on_read` is told of the compressed bytes behind them."""
    number = place = 0
    try:
        for number, line in lines:
            yield number, line
            on_read(file.tell() - place)
            place = file.tell()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise EmbedsinkError(
            f"line {number + 1:,}: the file is compressed by gzip, and damaged or cut off there ({error}). "
            "What was accepted before stays. Get the file whole, and import it: nothing counts twice."
        ) from None


def read_lines(
    file: BinaryIO | gzip.GzipFile, *, bytes_max: int, on_read: Callable[[int], None]
) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1; one beyond the limit is cut a byte beyond it."""
    number = 0
    while line := file.readline(bytes_max + 2):
        number += 1
        on_read(len(line))
        content, is_whole = line.removesuffix(b"\n").removesuffix(b"\r"), line.endswith(b"\n")
        while not is_whole and (rest := file.readline(bytes_max)):
            on_read(len(rest))
            is_whole = rest.endswith(b"\n")
        if content.strip():
            yield number, content.strip() if len(content) <= bytes_max else content[: bytes_max + 1]
