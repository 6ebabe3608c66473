"""Runs of ids: loads decide as if they compared their ids with all stored ones, and read only what may contain them."""

import errno
import json
import mmap
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from shutil import copyfile
from uuid import UUID, uuid4

import duckdb
import pytest

from embedsink.ingest.records import delivery_lines, replay_line
from embedsink.journal.segment import Segment, inspect, trailer
from embedsink.loader import disk_space
from embedsink.loader.loader import Loader
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.protocol.validation import parse
from embedsink.store import id_runs
from embedsink.store.database import Store
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.expiry import RetentionLimit
from embedsink.store.id_runs import FREE_BYTES_MIN, FREE_BYTES_TO_ADD, IdRuns
from embedsink.store.insert import first_ingest_seq
from embedsink.store.limits import StoreLimits
from tests.support.envelopes import ID, RECEIVED_AT, event_or_action, view
from tests.support.given import write_segment
from tests.support.loaded_store import LoadedStore, ledger
from tests.support.redaction import storable
from tests.support.stores import make_folder, open_store

HOUR_MS = 3_600_000
RUN_ROWS = 4
IDS = [str(UUID(int=number << 96 | 0x4000 << 64 | 1 << 63)) for number in range(50)]
STORED = """
select ingest_seq from event
where ingest_seq >= $1 and event_id in (select id from compared_id where kind = 'event')
union all
select ingest_seq from action
where ingest_seq >= $1 and action_id in (select id from compared_id where kind = 'action')
"""
REPEATED = "select event_id from event group by event_id having count(*) > 1"


def segment_name(number: int) -> str:
    return f"{number:012d}-00000000.ndjson"


def use_small_runs(store: Store) -> IdRuns:
    """Let a store add runs of a few ids."""
    store._id_runs = IdRuns(store.path.parent, rows=RUN_ROWS)
    return store._id_runs


def add_runs(store: Store) -> int:
    """Add as many runs as possible; return their number."""
    count = 0
    while store.add_id_run():
        count += 1
    return count


@pytest.fixture
def filled(loaded_store: LoadedStore) -> LoadedStore:
    """Load twelve events in four segments, and add three runs with the ids of them all."""
    use_small_runs(loaded_store.store)
    for number in range(4):
        loaded_store.bodies([view(id=event_id) for event_id in IDS[number * 3 : number * 3 + 3]])
    assert add_runs(loaded_store.store) == 3
    return loaded_store


class CheckedRuns(IdRuns):
    """Runs of a few ids. At each load, they check that the ranges to compare contain all stored ids of the load.

    Args:
        folder: the folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, rows=RUN_ROWS)
        self.run_count_max = 0
        self.found_count = 0  # the stored ids in runs

    def ranges_to_compare(self, connection: duckdb.DuckDBPyConnection, compared_from: int) -> list[tuple[int, int]]:
        self.run_count_max = max(self.run_count_max, len(self._runs))
        ranges = super().ranges_to_compare(connection, compared_from)
        assert all(start >= compared_from for start, _ in ranges)
        assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
        for (seq,) in connection.execute(STORED, [compared_from]).fetchall():
            assert any(start <= seq < end for start, end in ranges), f"{seq} is not in {ranges}"
            self.found_count += any(run.start <= seq < run.end for run in self._runs)
        return ranges


class History:
    """Random loads of few ids into a store, with everything that happens to a store meanwhile.

    Args:
        folder: an empty folder.
        hash_sql: the hash of an id, which may have collisions.
        seed: the seed of the history.
    """

    def __init__(self, folder: Path, hash_sql: str, *, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._number = 0
        self._now = RECEIVED_AT
        self._loads_since_checkpoint: list[list[Segment]] = []
        self.store = open_store(folder / "store.duckdb", StoreLimits(dedup_days=1))
        self.store._load_connection().execute(f"create or replace macro id_hash_of(id) as {hash_sql}")
        self.runs = CheckedRuns(folder)
        self.store._id_runs = self.runs
        self._checkpoint()

    def step(self) -> None:
        """Do what may happen next."""
        if self._random.random() < 0.5:
            self._pass_hours(self._random.randint(1, 12))
        steps = [self._load, self._load_late, self._expire, self._reopen, self._lose_rows_since_checkpoint]
        self._random.choices(steps, weights=[12, 4, 1, 1, 1])[0]()

    def _pass_hours(self, count: int) -> None:
        """Begin journal hours, as loads of other events would."""
        began_at = datetime(1970, 1, 1) + timedelta(milliseconds=self._now)
        self.store._load_connection().execute(
            "insert into journal_hour select $1::bigint, $2::timestamp + to_hours(unnest(range(1, $3::bigint + 1)))",
            [first_ingest_seq(self._number), began_at, count],
        )
        self._now += count * HOUR_MS

    def _load(self) -> None:
        self._number += 2
        self._load_segments([self._segment(self._number)])

    def _load_late(self) -> None:
        """Load a new segment, and one before other loaded ones."""
        late = self._random.randrange(self._number // 2 + 1) * 2 + 1
        if not (self._folder / segment_name(late)).exists():
            self._number += 2
            self._load_segments([self._segment(late), self._segment(self._number)])

    def _segment(self, number: int) -> Segment:
        """Write a segment of random envelopes: new, resent, imported or replayed."""
        key_id = self._random.choices(["k_1", "import"], weights=[9, 1])[0]
        kinds = self._random.choices(
            ["event:navigate", "action:navigate"], weights=[3, 1], k=self._random.randint(2, 6)
        )
        body = json.dumps([event_or_action(kind, id=self._random.choice(IDS)) for kind in kinds]).encode()
        lines = [delivery_lines(storable(parse(body, self._now)), key_id=key_id, new_id=uuid4)]
        if self._random.random() < 0.1:
            age_ms = self._random.randrange(60) * HOUR_MS
            lines.append(replay_line(str(uuid4()), received_at=self._now - age_ms))
        path = self._folder / segment_name(number)
        path.write_bytes(b"".join(line + trailer(line) for line in lines))
        return inspect(path)

    def _load_segments(self, segments: list[Segment]) -> None:
        self.store.load(*segments)
        self._loads_since_checkpoint.append(segments)
        add_runs(self.store)
        if self._random.random() < 0.1:
            self._checkpoint()

    def _expire(self) -> None:
        below = first_ingest_seq(self._random.randint(0, self._number // 2))
        self.store.expire(RetentionLimit(below, {}))

    def _checkpoint(self) -> None:
        self.store.checkpoint()
        copyfile(self.store.path, self._folder / "saved")
        self._loads_since_checkpoint = []

    def _reopen(self) -> None:
        self._checkpoint()
        self.store.open()

    def _lose_rows_since_checkpoint(self) -> None:
        """Continue with the file of the last checkpoint, as after a kill, and load the later segments again."""
        self.store.close()
        copyfile(self._folder / "saved", self.store.path)
        self.store.open()
        loads, self._loads_since_checkpoint = self._loads_since_checkpoint, []
        for segments in loads:
            self._load_segments(segments)


@pytest.mark.parametrize(
    ("hash_sql", "seed"),
    [("hash(id)", 1), ("hash(id) & 7", 2), ("7::ubigint", 3)],
    ids=["real_hashes", "many_collisions", "only_collisions"],
)
def test_no_history_hides_a_stored_id(tmp_path: Path, hash_sql: str, seed: int) -> None:
    history = History(tmp_path, hash_sql, seed=seed)
    for _ in range(25):
        history.step()
    repeated = history.store._load_connection().execute(REPEATED).fetchall()
    assert history.runs.run_count_max >= 5
    assert history.runs.found_count >= 5
    assert repeated, "no id was accepted again after its window"
    history.store.close()


def ranges(store: Store, *ids: str) -> list[tuple[int, int]]:
    """Return the ranges of `ingest_seq` that a load with these ids would read."""
    connection = store._load_connection()
    connection.execute("create or replace temp table compared_id (kind varchar, id uuid)")
    connection.executemany("insert into compared_id values ('event', $1)", [[event_id] for event_id in ids])
    return store._id_runs.ranges_to_compare(connection, 0)


def test_a_load_reads_only_new_ids_and_the_runs_with_its_hashes(filled: LoadedStore) -> None:
    seqs = [seq for (seq,) in filled.query("select ingest_seq from event order by ingest_seq")]
    unread = seqs[-1] + 1
    assert ranges(filled.store, str(uuid4())) == [(unread, (1 << 63) - 1)]
    # The run begins after the previous run, and not with its first event.
    assert ranges(filled.store, str(uuid4()), IDS[5]) == [(seqs[3] + 1, seqs[7] + 1), (unread, (1 << 63) - 1)]


def test_repeated_ids_in_a_run_and_after_it_are_duplicates_or_conflicts(filled: LoadedStore) -> None:
    filled.bodies(view(id=IDS[12]))
    bodies = [view(id=IDS[0]), view(id=IDS[12]), view({"path": "/other"}, id=IDS[1]), view(id=IDS[13])]
    assert filled.bodies(bodies) == ledger(4, accepted=1, duplicate=2, quarantined=1, conflict=1)


def test_the_ids_of_a_segment_loaded_late_are_known(loaded_store: LoadedStore) -> None:
    use_small_runs(loaded_store.store)
    for number in (1, 3, 4):
        loaded_store.count = number - 1
        loaded_store.bodies([view(id=event_id) for event_id in IDS[number * 4 : number * 4 + 4]])
    assert add_runs(loaded_store.store) == 3
    loaded_store.count = 1
    loaded_store.bodies(view(id=ID))
    loaded_store.count = 4
    assert loaded_store.bodies(view(id=ID)) == ledger(1, duplicate=1)


def test_an_expired_id_counts_again(filled: LoadedStore) -> None:
    filled.store.expire(RetentionLimit(first_ingest_seq(2), {}))
    assert filled.bodies(view(id=IDS[0]), view(id=IDS[3])) == ledger(2, accepted=1, duplicate=1)


def test_an_erased_id_counts_again_and_its_hash_is_gone(filled: LoadedStore) -> None:
    filled.bodies({"context": {"viewer": "ann"}, "events": [view(id=event_id) for event_id in IDS[12:16]]})
    add_runs(filled.store)
    person = Person("ann").variables(Privacy(secrets=[bytes(32)]))
    filled.store.erase([person], filled.folder / "draft.duckdb")
    assert (filled.store._id_runs._runs, filled.store._id_runs._file) == ([], None)
    assert filled.bodies(view(id=IDS[12]), view(id=IDS[0])) == ledger(2, accepted=1, duplicate=1)


def test_runs_leave_no_file_and_end_with_the_connection(filled: LoadedStore) -> None:
    assert {path.name for path in filled.folder.iterdir() if path.suffix != ".ndjson"} == {"store.duckdb"}
    filled.store.close()
    assert filled.store._id_runs._file is None
    filled.store.open()
    assert ranges(filled.store, str(uuid4())) == [(0, (1 << 63) - 1)]
    # Until the first load, the deduplication window is unknown.
    assert add_runs(filled.store) == 0
    assert filled.bodies(view(id=IDS[0])) == ledger(1, duplicate=1)
    assert add_runs(filled.store) == 3


def test_salvaged_ids_are_known(filled: LoadedStore, tmp_path: Path) -> None:
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = LoadedStore(other_folder)
    other.count = filled.count
    other.bodies(view(id=ID))
    other.store.checkpoint()
    other.store.close()
    # Its number follows on those of the store, so that no segment is missing.
    filled.store.salvage([other.store.path], journal_numbers=[])
    assert filled.store._id_runs._runs == []
    filled.count += 1
    assert filled.bodies(view(id=ID)) == ledger(1, duplicate=1)


def test_runs_before_the_window_make_room_in_the_file(filled: LoadedStore) -> None:
    runs = filled.store._id_runs
    connection = filled.store._load_connection()
    size = os.fstat(runs._file_descriptor()).st_size
    for number in range(10):
        filled.bodies([view() for _ in range(RUN_ROWS)])
        connection.execute("set variable dedup_window_from = $1", [first_ingest_seq(number + 2)])
        assert runs.add(connection)
    assert len(runs._runs) <= 6
    assert os.fstat(runs._file_descriptor()).st_size <= 2 * size
    assert filled.bodies(view(id=IDS[0]), view(id=IDS[11])) == ledger(2, duplicate=2)


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error_number: int) -> Iterator[None]:
    """Let a system call fail in this block."""

    def fail(*args: object, **named: object) -> None:
        raise OSError(error_number, os.strerror(error_number))

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        yield


def test_without_disk_space_loads_read_all_ids(filled: LoadedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.bodies([view(id=event_id) for event_id in IDS[12:16]])
    with failing(monkeypatch, os, "pwrite", errno.ENOSPC), pytest.raises(StoreRefused, match="No space left"):
        filled.store.add_id_run()
    assert filled.bodies(view(id=IDS[0]), view(id=IDS[12])) == ledger(2, duplicate=2)
    assert add_runs(filled.store) == 4
    assert filled.bodies(view(id=IDS[0]), view(id=IDS[12])) == ledger(2, duplicate=2)


def test_a_disk_that_is_low_on_space_has_no_runs(filled: LoadedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.bodies([view(id=event_id) for event_id in IDS[12:16]])
    for free, run_count in ((FREE_BYTES_TO_ADD - 1, 3), (FREE_BYTES_MIN, 3), (FREE_BYTES_MIN - 1, 0)):
        with monkeypatch.context() as patch:
            patch.setattr(id_runs, "free_bytes", lambda _, free=free: free)
            assert not filled.store.add_id_run()
            filled.store.delete_id_runs_if_disk_is_low()
        assert len(filled.store._id_runs._runs) == run_count
    assert filled.store._id_runs._file is None
    assert filled.bodies(view(id=IDS[0])) == ledger(1, duplicate=1)
    assert add_runs(filled.store) == 4


def test_without_mapped_files_loads_read_all_ids(filled: LoadedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, mmap, "mmap", errno.ENODEV):
        assert filled.bodies(view(id=IDS[0]), view()) == ledger(2, accepted=1, duplicate=1)
        with pytest.raises(StoreRefused, match="No such device"):
            filled.store.add_id_run()
    assert add_runs(filled.store) == 3


def test_a_run_ends_before_either_kind_has_too_many_ids(loaded_store: LoadedStore) -> None:
    runs = use_small_runs(loaded_store.store)
    loaded_store.bodies([view() for _ in range(RUN_ROWS * 3)])
    loaded_store.bodies([event_or_action("action:refresh", id=event_id) for event_id in IDS[:RUN_ROWS]])
    assert loaded_store.store.add_id_run()
    assert [run.byte_count for run in runs._runs] == [RUN_ROWS * 8]


def test_if_runs_fail_rollups_continue_and_the_log_names_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_folder(tmp_path / "data")
    store = Store(folder.store, StoreLimits(rollup_from_count=2))
    use_small_runs(store)
    loader = Loader(folder, store)
    loader.open_store()
    with failing(monkeypatch, mmap, "mmap", errno.ENODEV):
        for number in (1, 2, 3):
            events = [{"type": "view", "id": 9 * number + index} for index in range(9)]
            write_segment(folder.journal, events, number=number)
            loader.run_once(is_last=False)
    assert [record.message for record in caplog.records] == ["id_run_delayed"]
    assert store._load_connection().execute("select count(*) from rollup_batch").fetchall() == [(3,)]
    loader.close()


def test_the_loader_adds_runs_and_deletes_them_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path / "data")
    store = Store(folder.store)
    runs = use_small_runs(store)
    loader = Loader(folder, store)
    loader.open_store()
    write_segment(folder.journal, [{"type": "view", "id": number} for number in range(9)], number=1)
    loader.run_once(is_last=False)
    assert len(runs._runs) == 2
    with monkeypatch.context() as patch:
        for module in (id_runs, disk_space):
            patch.setattr(module, "free_bytes", lambda _: 0)
        loader.run_once(is_last=False)
    assert "are free on its disk" in str(loader.status.load_error)
    assert runs._runs == []
    loader.close()


def test_a_loader_without_space_for_runs_loads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path / "data")
    store = Store(folder.store)
    runs = use_small_runs(store)
    loader = Loader(folder, store)
    loader.open_store()
    with failing(monkeypatch, os, "pwrite", errno.ENOSPC):
        for number in (1, 2):
            write_segment(folder.journal, [{"type": "view", "id": number * 9 + n} for n in range(9)], number=number)
            loader.run_once(is_last=False)
    assert (loader.status.load_error, runs._runs) == (None, [])
    assert store.ledger.last_segment_number() == 2
    loader.close()
