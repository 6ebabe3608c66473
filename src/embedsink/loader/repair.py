"""Repairs damaged copies of one database file: most blocks of one are in the others, too."""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from embedsink.loader.blocks import BLOCK_BYTES, CHECKSUM_BYTES, HEADER_BYTES, Block, find_doubtful_blocks, is_sound


def repair_blocks(path: Path, copies: Iterable[Path], *, on_step: Callable[[], None] = lambda: None) -> int:
    """Replace doubtful blocks of a file by the same blocks of its copies, durably.

    Args:
        path: the file; no program has it open for writing.
        copies: files that were copied from it, or to it, now or earlier.
        on_step: called between bounded steps; what it raises ends the repair.

    Returns:
        The number of blocks that were replaced.

    Raises:
        OSError: a file can't be read or written.
    """
    count = 0
    with contextlib.ExitStack() as opened:
        file = opened.enter_context(path.open("r+b"))
        others = [opened.enter_context(copy.open("rb")) for copy in copies]
        is_header_repaired = True
        while is_header_repaired:  # It may name other blocks.
            doubtful = find_doubtful_blocks(path, on_step=on_step)
            repaired = [block for block in doubtful if _replace(block, file, others)]
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
    """Return whether a block is sound, and what a damaged block was: its checksum or all the rest is the same."""
    if len(content) != len(damaged) or len(content) not in (HEADER_BYTES, *BLOCK_BYTES):
        return False
    is_same = (
        content[:CHECKSUM_BYTES] == damaged[:CHECKSUM_BYTES] or content[CHECKSUM_BYTES:] == damaged[CHECKSUM_BYTES:]
    )
    return is_same and is_sound(content)
