"""Block checksums: they match in every file that DuckDB writes, and detect a flipped bit in a used block."""

import contextlib
import random
from pathlib import Path

import duckdb
import pytest

from embedsink.loader.blocks import find_suspect_blocks
from embedsink.loader.copy_file import verify
from tests.support.stores import open_store

HEADERS = 3 * 4_096


def database(path: Path, *, block_bytes: int = 65_536) -> bytes:
    """Write a file with used and free blocks."""
    with duckdb.connect() as connection:
        connection.execute(f"attach '{path}' as file (block_size {block_bytes}); use file")
        for statement in (
            "create table gone as select range as number, md5(range::varchar) as text from range(40_000)",
            "create table kept as from gone",
            "drop table gone",
            "insert into kept from kept limit 1_000",
        ):
            connection.execute(statement)
            connection.execute("checkpoint file")
    return path.read_bytes()


def flipped(content: bytes, offset: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ 16]) + content[offset + 1 :]


@pytest.mark.parametrize("block_bytes", [16_384, 65_536, 262_144])
def test_every_checksum_matches_in_files_of_any_block_size(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "file.duckdb"
    database(path, block_bytes=block_bytes)
    assert find_suspect_blocks(path) == []
    assert verify(path) is None


def test_every_checksum_of_a_store_matches(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb")
    store.close()
    assert find_suspect_blocks(store.path) == []


def test_a_flipped_bit_outside_free_blocks_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "file.duckdb"
    intact = database(path)
    rng = random.Random(1)
    offsets = [*range(0, HEADERS, 1_111), *(rng.randrange(HEADERS, len(intact)) for _ in range(60))]
    for offset in offsets:
        path.write_bytes(flipped(intact, offset))
        assert find_suspect_blocks(path) or is_readable(path), f"offset {offset:,}"


def test_truncated_free_blocks_are_not_suspect_but_truncated_used_ones_are(tmp_path: Path) -> None:
    path = tmp_path / "file.duckdb"
    with duckdb.connect() as connection:
        connection.execute(f"attach '{path}' as file (block_size 65536); use file")
        for statement in (
            "create table kept as select range as number from range(1_000)",
            "create table gone as select md5(range::varchar) as text from range(100_000)",
            "drop table gone",
        ):
            connection.execute(statement)
            connection.execute("checkpoint file")
    content = path.read_bytes()
    assert len(content) < HEADERS + 4 * 65_536, "DuckDB has cut off the free blocks, and its header still has them"
    assert find_suspect_blocks(path) == []
    path.write_bytes(content[:-65_536])
    assert find_suspect_blocks(path)


@pytest.mark.parametrize("length", [0, 5_000, HEADERS, HEADERS + 65_536, HEADERS + 100_000])
def test_missing_blocks_are_suspect(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file.duckdb"
    path.write_bytes(database(path)[:length])
    assert find_suspect_blocks(path)
    assert verify(path) is not None


def test_a_block_of_zeros_is_suspect(tmp_path: Path) -> None:
    path = tmp_path / "file.duckdb"
    intact = database(path)
    path.write_bytes(intact[:HEADERS] + bytes(65_536) + intact[HEADERS + 65_536 :])
    assert len(find_suspect_blocks(path)) == 1


def test_damage_in_free_blocks_is_ignored_and_in_used_blocks_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "file.duckdb"
    intact = database(path)
    is_damaged = {}
    for block in range((len(intact) - HEADERS) // 65_536):
        path.write_bytes(flipped(intact, HEADERS + block * 65_536 + 1_000))
        is_damaged[block] = verify(path) is not None
        assert is_damaged[block] is not is_readable(path), f"block {block}"
        assert is_damaged[block] is bool(find_suspect_blocks(path)), "without reading every row"
    assert set(is_damaged.values()) == {False, True}


def is_readable(path: Path) -> bool:
    with contextlib.suppress(duckdb.Error), duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("select count(distinct hash(kept)) from kept").fetchall()
        return True
    return False
