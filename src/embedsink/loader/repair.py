"""The repair of a damaged database file from copies of it, which have most of its blocks."""

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
    """Durably replace damaged blocks of a file with the same blocks from copies of the file.

    Args:
        path: the file; no program has it open for writing.
        copies: files that may have the same blocks: earlier or later copies, or the file from which it was copied.
        on_step: called between bounded steps. An exception from it ends the repair.

    Returns:
        The number of replaced blocks.

    Raises:
        OSError: a file can't be read or written.
    """
    count = 0
    with contextlib.ExitStack() as opened:
        file = opened.enter_context(path.open("r+b"))
        copy_files = [opened.enter_context(copy.open("rb")) for copy in copies]
        while True:
            suspects = find_suspect_blocks(path, on_step=on_step)
            repaired = [block for block in suspects if _repair_block(block, file, copy_files)]
            os.fsync(file.fileno())
            count += len(repaired)
            # A repaired header may refer to other blocks, so check the file again.
            if not any(block.is_header for block in repaired):
                break
    return count


def _repair_block(block: Block, file: BinaryIO, copy_files: Iterable[BinaryIO]) -> bool:
    """Replace a damaged block with the original from the first copy that has it. Return whether a copy has it."""
    # The `Block` of the missing end of a file may be huge, so limit the read. `_is_original` rejects that block.
    damaged = os.pread(file.fileno(), min(block.byte_count, BLOCK_BYTES[-1]), block.offset)
    for copy_file in copy_files:
        content = os.pread(copy_file.fileno(), len(damaged), block.offset)
        if _is_original(content, damaged):
            os.pwrite(file.fileno(), content, block.offset)
            return True
    return False


def _is_original(content: bytes, damaged: bytes) -> bool:
    """Return whether content is a valid block, and equals the damaged block in the checksum or in the other bytes.

    A block that differs in both is another version of the block.
    """
    is_block = len(content) == len(damaged) and len(content) in (HEADER_BYTES, *BLOCK_BYTES)
    if not is_block:
        return False
    has_same_checksum = content[:CHECKSUM_BYTES] == damaged[:CHECKSUM_BYTES]
    has_same_bytes = content[CHECKSUM_BYTES:] == damaged[CHECKSUM_BYTES:]
    return (has_same_checksum or has_same_bytes) and has_valid_checksum(content)
