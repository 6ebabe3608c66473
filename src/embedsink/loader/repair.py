"""Repair of a damaged database file from copies of it, which share most of its blocks."""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from embedsink.loader.blocks import (
    BLOCK_BYTES,
    CHECKSUM_BYTES,
    HEADER_BYTES,
    Block,
    find_suspect_blocks,
    has_valid_checksum,
)


def repair_blocks(path: Path, copies: Iterable[Path], *, on_step: Callable[[], None] = lambda: None) -> int:
    """Replace suspect blocks of a file by the same blocks of its copies, durably.

    Args:
        path: the file; no program has it open for writing.
        copies: files that are, or were, copies of it or its source.
        on_step: called between bounded steps. An exception from it ends the repair.

    Returns:
        The number of replaced blocks.

    Raises:
        OSError: a file can't be read or written.
    """
    count = 0
    with contextlib.ExitStack() as opened:
        file = opened.enter_context(path.open("r+b"))
        others = [opened.enter_context(copy.open("rb")) for copy in copies]
        is_header_repaired = True
        while is_header_repaired:  # A repaired header may refer to other blocks.
            suspects = find_suspect_blocks(path, on_step=on_step)
            repaired = [block for block in suspects if _replace(block, file, others)]
            os.fsync(file.fileno())
            count += len(repaired)
            is_header_repaired = any(block.byte_count == HEADER_BYTES for block in repaired)
    return count


def _replace(block: Block, file: BinaryIO, others: Iterable[BinaryIO]) -> bool:
    damaged = os.pread(file.fileno(), min(block.byte_count, BLOCK_BYTES[-1]), block.offset)
    for other in others:
        content = os.pread(other.fileno(), len(damaged), block.offset)
        if _is_original(content, damaged):
            os.pwrite(file.fileno(), content, block.offset)
            return True
    return False


def _is_original(content: bytes, damaged: bytes) -> bool:
    """Return whether a valid block is the original of a damaged one: the checksum or the rest is equal."""
    if len(content) != len(damaged) or len(content) not in (HEADER_BYTES, *BLOCK_BYTES):
        return False
    is_same = (
        content[:CHECKSUM_BYTES] == damaged[:CHECKSUM_BYTES] or content[CHECKSUM_BYTES:] == damaged[CHECKSUM_BYTES:]
    )
    return is_same and has_valid_checksum(content)
