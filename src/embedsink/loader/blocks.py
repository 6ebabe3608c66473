"""The blocks of a DuckDB file and their checksums, read without opening a database.

    3 headers of 4 KiB │ block 0 │ block 1 │ …

Each header and each block begins with a checksum of 8 bytes. DuckDB writes the last two headers alternately. The newer
one contains the size and the number of the blocks.
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
# DuckDB divides the blocks of its free list into this many pieces.
_PIECES_PER_BLOCK = 64
_NO_BLOCK = 2**64 - 1
# DuckDB, src/common/checksum.cpp: the seed, xor each 64-bit word times the factor, modulo 2^64.
_SEED = numpy.uint64(5381)
_FACTOR = numpy.uint64(0xBF58476D1CE4E5B9)
BLOCK_BYTES = [2**power for power in range(14, 19)]  # the sizes that DuckDB allows
# A read of this size fits into the CPU's cache. Larger reads are slower.
_READ_BYTES = 262_144
# `on_step` is called after this many bytes.
_STEP_BYTES = 16 * 1_048_576


@dataclass(frozen=True, slots=True)
class Block:
    """A range of a file: a block, a header, or the missing end of the file."""

    offset: int
    byte_count: int

    @property
    def is_header(self) -> bool:
        """Whether this is a header of the file. Only headers have this size."""
        return self.byte_count == HEADER_BYTES


def find_suspect_blocks(path: Path, *, on_step: Callable[[], None] = lambda: None) -> list[Block]:
    """Return the suspect parts of a file: blocks and headers whose checksum does not match, and missing blocks.

    Free blocks are omitted: the blocks that DuckDB's free list names may have any content. If the free list is
    damaged, they are included. Then only reading every row shows whether the file is damaged.

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
        suspect_headers = [Block(index * HEADER_BYTES, HEADER_BYTES) for index in _mismatch_indexes(headers)]
        # DuckDB writes the last two headers alternately. The newer one has the higher number.
        # Words of a header: checksum, header number, metadata pointer, free list pointer, number of blocks, block size.
        last_two_headers: list[list[int]] = headers[1:, :6].tolist()
        newer_header = max(last_two_headers, key=lambda header: header[1])
        _, _, _, free_list_pointer, block_count, block_bytes = newer_header
        if block_bytes not in BLOCK_BYTES:
            # Without a valid block size, no block can be found. If no header has a wrong checksum, suspect all headers.
            return suspect_headers or [Block(0, _HEADERS_BYTES)]
        suspects = list(_scan_blocks(file, block_count, block_bytes, on_step))
        # A suspect header may have a wrong pointer to the free list.
        if suspects and not suspect_headers:
            suspect_offsets = {block.offset for block in suspects}
            free_numbers = _read_free_list(file, free_list_pointer, block_bytes, suspect_offsets)
            suspects = [block for block in suspects if not _is_free(block, block_bytes, free_numbers)]
        return suspect_headers + suspects


def _scan_blocks(file: BinaryIO, block_count: int, block_bytes: int, on_step: Callable[[], None]) -> Iterator[Block]:
    """Yield each block whose checksum does not match, and the missing end of the file as one block.

    Call this when the headers of the file have been read.
    """
    # One block per row, as words of 8 bytes.
    buffer = numpy.empty((_READ_BYTES // block_bytes, block_bytes // 8), "<u8")
    read_count = 0
    next_step_bytes = _STEP_BYTES
    while read_count < block_count:
        offset = _HEADERS_BYTES + read_count * block_bytes
        unread_count = block_count - read_count
        byte_count = file.readinto(buffer.data)  # type: ignore[attr-defined]
        new_count = min(byte_count // block_bytes, unread_count)  # The file may be longer than its blocks.
        if new_count == 0:
            yield Block(offset, unread_count * block_bytes)
            return
        for index in _mismatch_indexes(buffer[:new_count]):
            yield Block(offset + index * block_bytes, block_bytes)
        read_count += new_count
        if read_count * block_bytes >= next_step_bytes:
            next_step_bytes += _STEP_BYTES
            on_step()


def _read_free_list(file: BinaryIO, pointer: int, block_bytes: int, suspect_offsets: Collection[int]) -> set[int]:
    """Return the numbers of the free blocks; an empty set if a part of the free list is missing or in a suspect block.

    The format is that of DuckDB's src/storage/single_file_block_manager.cpp. The list consists of 64-bit words: the
    number of free blocks, then the number of each one. The words are in pieces, many to a block. Each piece begins with
    a pointer to the next piece. The highest byte of the pointer is the index of that piece in its block. The other
    bytes are the number of the block.
    """
    # A piece has whole words of 8 bytes.
    piece_bytes = (block_bytes - CHECKSUM_BYTES) // _PIECES_PER_BLOCK // 8 * 8
    words: list[int] = []
    # Read pieces until as many words follow the first one as it announces.
    while not words or len(words) - 1 < words[0]:
        piece_index, block_number = divmod(pointer, 1 << 56)
        offset = _HEADERS_BYTES + block_number * block_bytes
        if pointer == _NO_BLOCK or offset in suspect_offsets:
            return set()
        content = os.pread(file.fileno(), piece_bytes, offset + CHECKSUM_BYTES + piece_index * piece_bytes)
        if len(content) < piece_bytes:
            return set()
        pointer, *piece_words = numpy.frombuffer(content, "<u8").tolist()
        words += piece_words
    free_count, *free_numbers = words
    return set(free_numbers[:free_count])


def _is_free(block: Block, block_bytes: int, free_numbers: Collection[int]) -> bool:
    """Return whether a suspect block is free. The missing end of a file is one `Block`, which is free if all are."""
    first_number = (block.offset - _HEADERS_BYTES) // block_bytes
    count = block.byte_count // block_bytes
    # Compare the counts first: the missing end of a file may have a huge number of blocks.
    return count <= len(free_numbers) and all(first_number + index in free_numbers for index in range(count))


def has_valid_checksum(block: bytes) -> bool:
    """Return whether a block matches the checksum in its first 8 bytes."""
    return not _mismatch_indexes(numpy.frombuffer(block, "<u8").reshape(1, -1))


def _mismatch_indexes(blocks: NDArray[numpy.uint64]) -> list[int]:
    """Return the indexes of the blocks whose checksum does not match.

    A checksum is the xor of `_SEED` and the products of all other words and `_FACTOR`, modulo 2^64.

    Args:
        blocks: one block per row, as words of 8 bytes.
    """
    products = blocks * _FACTOR
    # The first word of a block is the stored checksum. A second xor with the product of this word cancels that product.
    checksums = numpy.bitwise_xor.reduce(products, axis=1) ^ products[:, 0] ^ _SEED
    indexes: list[int] = numpy.flatnonzero(checksums != blocks[:, 0]).tolist()
    return indexes
