"""Repair of damaged blocks: copies of a file restore each other, but never with a block of other content."""

import errno
import os
import random
from pathlib import Path

import pytest

from embedsink.data_folder import DataFolder
from embedsink.loader import repair
from embedsink.loader.blocks import find_suspect_blocks
from embedsink.loader.repair import repair_blocks
from tests.loader.test_blocks import HEADERS, database, flipped
from tests.loader.test_loader import add_many, events_in, load_all, opened
from tests.support.stores import make_folder

BLOCK = 65_536


def test_copies_with_damage_in_different_blocks_restore_each_other(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first", "second", "third")]
    intact = database(tmp_path / "file.duckdb")
    for seed in range(5):
        rng = random.Random(seed)
        offsets = [0, 4_096, 8_192, *range(HEADERS, len(intact), BLOCK)]
        rng.shuffle(offsets)
        for turn, path in enumerate(paths):
            content = intact
            for offset in offsets[turn::3]:
                content = flipped(content, offset + rng.choice([0, 7, rng.randrange(4_096)]))
            path.write_bytes(content)
        for path in paths:
            assert repair_blocks(path, [other for other in paths if other != path])
            assert find_suspect_blocks(path) == []


def test_a_block_with_other_content_replaces_no_block(tmp_path: Path) -> None:
    path, other = tmp_path / "file.duckdb", tmp_path / "other.duckdb"
    intact = database(path)
    damaged = flipped(intact, HEADERS + 100)
    path.write_bytes(damaged)
    # a valid block of an older copy at the same offset
    other.write_bytes(intact[:HEADERS] + intact[HEADERS + BLOCK : HEADERS + 2 * BLOCK] + intact[HEADERS + BLOCK :])
    assert repair_blocks(path, [other]) == 0
    assert path.read_bytes() == damaged


def test_a_cut_file_is_not_repaired(tmp_path: Path) -> None:
    path, other = tmp_path / "file.duckdb", tmp_path / "other.duckdb"
    intact = database(other)
    for length in (0, 5_000, HEADERS, HEADERS + 100_000):
        path.write_bytes(intact[:length])
        repair_blocks(path, [other])
        assert path.read_bytes() == intact[:length]


def flip_bits(folder: DataFolder, rng: random.Random, *, count: int) -> None:
    """Flip bits in each database file, never in the same block of two files."""
    paths = (folder.store, folder.snapshot, folder.previous)
    block_count = min(path.stat().st_size for path in paths) // BLOCK - 1
    blocks = rng.sample(range(block_count), count * len(paths))
    for path in paths:
        content = path.read_bytes()
        for _ in range(count):
            content = flipped(content, HEADERS + blocks.pop() * BLOCK + rng.randrange(BLOCK))
        path.write_bytes(content)


def test_store_and_both_snapshots_with_damage_in_different_blocks_lose_nothing(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "data")
    with opened(folder) as loader:
        for number in (1, 2, 3):
            add_many(folder, number, 5_000)
            load_all(loader)
            loader.publish()
    before = events_in(folder.store)
    flip_bits(folder, random.Random(1), count=3)
    with opened(folder) as loader:
        for _ in range(3):
            loader.run_once(is_last=True)
        assert (loader.status.error, loader.status.damaged) == (None, [])
    assert events_in(folder.store) == events_in(folder.snapshot) == before


def test_an_unreadable_file_does_not_stop_a_rebuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    folder = make_folder(tmp_path / "data")
    with opened(folder) as loader:
        for number in (1, 2, 3):
            add_many(folder, number, 1_000)
            load_all(loader)
            loader.publish()
    flip_bits(folder, random.Random(1), count=1)
    monkeypatch.setattr(repair, "repair_blocks", fail)
    with opened(folder) as loader:
        for _ in range(3):
            loader.run_once(is_last=True)
        assert loader.status.error is None
