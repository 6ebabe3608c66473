"""The blocks of a DuckDB file and their checksums, read without opening a database.

    3 headers of 4 KiB │ block 0 │ block 1 │ …      the first 8 bytes of each are a checksum of its other bytes

The newer of the last two headers contains the size and the number of blocks.
"""

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy
from numpy.typing import NDArray

HEADER_BYTES = 4_096
_HEADER_COUNT = 3
_HEADERS_BYTES = _HEADER_COUNT * HEADER_BYTES
CHECKSUM_BYTES = 8
_PIECE_COUNT = 64
_NO_BLOCK = 2**64 - 1
# DuckDB, src/common/checksum.cpp: the seed, xor each 64-bit word times the factor, modulo 2^64.
_SEED = numpy.uint64(5381)
_FACTOR = numpy.uint64(0xBF58476D1CE4E5B9)
BLOCK_BYTES = [2**power for power in range(14, 19)]  # the sizes that DuckDB allows
# This fits into the CPU's cache. Larger reads are slower.
_READ_BYTES = 262_144
_STEP_BYTES = 16 * 1_048_576


@dataclass(frozen=True, slots=True)
class Block:
    """A range of a file: a block, a header, or the missing end of the file."""

    offset: int
    byte_count: int


def find_suspect_blocks(path: Path, *, on_step: Callable[[], None] = lambda: None) -> list[Block]:
    """Return the blocks whose checksum does not match, with headers and missing blocks.

    DuckDB leaves any content in free blocks, so blocks of the free list are omitted. If a part of that list is
    damaged, a suspect block may be free. Then only reading every row shows whether the file is damaged.

    Args:
        path: the file.
        on_step: called after each 16 MiB.

    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            # Read from the disk. The page cache contains what was written, not what the disk stores.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        content = file.read(_HEADERS_BYTES)
        if len(content) < _HEADERS_BYTES:
            return [Block(len(content), _HEADERS_BYTES - len(content))]
        headers = numpy.frombuffer(content, "<u8").reshape(_HEADER_COUNT, -1)
        suspect_headers = [Block(index * HEADER_BYTES, HEADER_BYTES) for index in _mismatches(headers)]
        newer: list[int] = max(headers[1:, :6].tolist(), key=lambda header: header[1])
        free_list, block_count, block_bytes = newer[3:]
        if block_bytes not in BLOCK_BYTES:
            return suspect_headers or [Block(0, _HEADERS_BYTES)]
        suspects = list(_scan_blocks(file, block_count, block_bytes, on_step))
        if suspects and not suspect_headers:
            free = _read_free_list(file, free_list, block_bytes, {block.offset for block in suspects})
            suspects = [block for block in suspects if not _is_free(block, block_bytes, free)]
        return suspect_headers + suspects


def _scan_blocks(file: BinaryIO, block_count: int, block_bytes: int, on_step: Callable[[], None]) -> Iterator[Block]:
    buffer = numpy.empty((_READ_BYTES // block_bytes, block_bytes // 8), "<u8")
    read_count = 0
    while read_count < block_count:
        offset = _HEADERS_BYTES + read_count * block_bytes
        count = min(file.readinto(buffer.data) // block_bytes, block_count - read_count)  # type: ignore[attr-defined]
        if not count:
            yield Block(offset, (block_count - read_count) * block_bytes)
            return
        for index in _mismatches(buffer[:count]):
            yield Block(offset + index * block_bytes, block_bytes)
        read_count += count
        if read_count * block_bytes % _STEP_BYTES < _READ_BYTES:
            on_step()


def _read_free_list(file: BinaryIO, pointer: int, block_bytes: int, suspects: Collection[int]) -> set[int]:
    """Return the numbers of the free blocks; none if a part of their list is suspect.

    DuckDB, src/storage/single_file_block_manager.cpp: the list consists of pieces of blocks, and begins with its
    length. A piece begins with the pointer to the next one: its block number, and in the highest byte its index there.
    """
    piece_bytes = (block_bytes - CHECKSUM_BYTES) // _PIECE_COUNT // 8 * 8
    words: list[int] = []
    while not words or len(words) <= words[0]:
        index, number = divmod(pointer, 1 << 56)
        offset = _HEADERS_BYTES + number * block_bytes
        if pointer == _NO_BLOCK or offset in suspects:
            return set()
        content = os.pread(file.fileno(), piece_bytes, offset + CHECKSUM_BYTES + index * piece_bytes)
        if len(content) < piece_bytes:
            return set()
        pointer, *rest = numpy.frombuffer(content, "<u8").tolist()
        words += rest
    return set(words[1 : words[0] + 1])


def _is_free(block: Block, block_bytes: int, free: Collection[int]) -> bool:
    first, count = (block.offset - _HEADERS_BYTES) // block_bytes, block.byte_count // block_bytes
    return count <= len(free) and all(number in free for number in range(first, first + count))


def has_valid_checksum(block: bytes) -> bool:
    """Return whether the checksum of a block matches."""
    return not _mismatches(numpy.frombuffer(block, "<u8").reshape(1, -1))


def _mismatches(blocks: NDArray[numpy.uint64]) -> list[int]:
    """Return the indexes of the blocks, one per row, whose checksum does not match."""
    products = blocks * _FACTOR
    checksums = numpy.bitwise_xor.reduce(products, axis=1) ^ products[:, 0] ^ _SEED
    indexes: list[int] = numpy.flatnonzero(checksums != blocks[:, 0]).tolist()
    return indexes
