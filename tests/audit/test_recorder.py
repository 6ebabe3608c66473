"""The recorder of a server: one fsync for concurrent entries, and one entry for many repetitions."""

import asyncio
import fcntl
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import embedsink.audit.recorder
from embedsink.audit.entry import Action, Entry, Outcome, Via
from embedsink.audit.recorder import ENTRIES_PER_PERIOD, Recorder
from embedsink.audit.trail import AuditTrail, audit_files
from embedsink.data_folder import DataFolder
from embedsink.errors import Unavailable
from embedsink.reasons import Reason


def in_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test. pytest passes the fixtures, because the signature stays."""

    @wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


class CountingTrail(AuditTrail):
    """An audit trail that counts its appends, refuses them while `is_full`, and raises `error`."""

    append_count = 0
    is_full = False
    error: Exception | None = None

    def append(self, entries: Any) -> None:
        self.append_count += 1
        if self.error is not None:
            raise self.error
        if self.is_full:
            raise Unavailable(Reason.STORAGE_LOW, "audit: full.")
        super().append(entries)

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for path in audit_files(self.folder) for line in path.read_bytes().splitlines()]


def export(target: str = "views.csv", *, actor: str = "k_1", address: str = "192.0.2.1", **detail: Any) -> Entry:
    return Entry(action=Action.EXPORT, actor=actor, via=Via.API, target=target, client_address=address, detail=detail)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)


@pytest.fixture
def trail(tmp_path: Path) -> CountingTrail:
    return CountingTrail(DataFolder(tmp_path))


@in_event_loop
async def test_concurrent_entries_share_appends(trail: CountingTrail) -> None:
    recorder = Recorder(trail)
    await asyncio.gather(*(recorder.record(export(actor=f"k_{index}")) for index in range(100)))
    assert len(trail.entries()) == 100
    assert trail.append_count <= 3
    await recorder.close()


@in_event_loop
async def test_repetitions_become_one_entry_with_their_number(trail: CountingTrail) -> None:
    recorder = Recorder(trail)
    for size in range(10):
        await recorder.record(export(bytes=size, parameters={"since": "7d"}))
    await recorder.record(export("errors.csv"))
    assert [entry["count"] for entry in trail.entries()] == [1, 1]
    await recorder.close()
    rest = trail.entries()[-1]
    assert (rest["count"], rest["target"], rest["client_address"]) == (9, "views.csv", "192.0.2.1")
    assert rest["detail"] == {"parameters": {"since": "7d"}, "repeated_within_s": 60.0}


@in_event_loop
async def test_a_runaway_client_leaves_a_bounded_number_of_entries(trail: CountingTrail) -> None:
    recorder = Recorder(trail)
    for index in range(500):
        await recorder.record(export(address=f"192.0.2.{index % 250}"))
    await recorder.record(export(actor="k_2"))  # Other actors are not affected.
    assert len(trail.entries()) == ENTRIES_PER_PERIOD + 1
    await recorder.close()
    entries = trail.entries()
    assert sum(entry["count"] for entry in entries) == 501
    assert len(entries) == ENTRIES_PER_PERIOD + 2
    detail = entries[-1]["detail"]
    assert len(detail["client_addresses"]) == 100
    others = detail["entries_with_other_client_addresses"]
    assert others > 0
    assert sum(detail["client_addresses"].values()) + others == entries[-1]["count"]


@in_event_loop
async def test_the_first_entry_of_each_target_is_written(trail: CountingTrail) -> None:
    recorder = Recorder(trail)
    for index in range(ENTRIES_PER_PERIOD + 5):
        await recorder.record(export(parameters={"limit": index}))
    for _ in range(2):
        await recorder.record(export("analytics.duckdb"))
    written = [(entry["target"], entry["count"]) for entry in trail.entries()]
    assert written == [("views.csv", 1)] * ENTRIES_PER_PERIOD + [("analytics.duckdb", 1)]
    await recorder.close()
    assert trail.entries()[-1]["detail"]["targets"] == {"views.csv": 5, "analytics.duckdb": 1}


@in_event_loop
async def test_a_refused_export_is_not_the_first_of_its_target(trail: CountingTrail) -> None:
    recorder = Recorder(trail)
    for index in range(ENTRIES_PER_PERIOD):
        await recorder.record(export(parameters={"limit": index}))
    trail.is_full = True
    with pytest.raises(Unavailable):
        await recorder.record(export("analytics.duckdb"))
    trail.is_full = False
    await recorder.record(export("analytics.duckdb"))
    assert trail.entries()[-1]["target"] == "analytics.duckdb"
    await recorder.close()


@in_event_loop
async def test_an_unexpected_error_loses_no_count(trail: CountingTrail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.audit.recorder, "PERIOD_S", 0.05)
    recorder = Recorder(trail)
    await recorder.record(export())
    await recorder.record(export())
    trail.error = RuntimeError("can't start new thread")
    await asyncio.sleep(0.2)
    with pytest.raises(RuntimeError):
        await recorder.record(export())
    trail.error = None
    await until(lambda: sum(entry["count"] for entry in trail.entries()) == 2)
    await recorder.record(export())
    await recorder.close()
    assert sum(entry["count"] for entry in trail.entries()) == 3


@in_event_loop
async def test_each_period_ends_with_the_number_of_its_repetitions(
    trail: CountingTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedsink.audit.recorder, "PERIOD_S", 0.05)
    recorder = Recorder(trail)
    await recorder.record(export())
    await recorder.record(export())
    await asyncio.sleep(0.3)  # Two periods: one with a repetition, and one without.
    await recorder.record(export())
    assert [entry["count"] for entry in trail.entries()] == [1, 1, 1]
    assert "repeated_within_s" not in trail.entries()[-1]["detail"]
    await recorder.close()


@in_event_loop
async def test_an_action_that_must_be_recorded_once_is_never_counted(trail: CountingTrail) -> None:
    recorder = Recorder(trail)
    for _ in range(3):
        await recorder.record(Entry(action=Action.PURGE, actor="k_1", via=Via.API))
    assert len(trail.entries()) == 3
    await recorder.close()


@in_event_loop
async def test_what_cannot_be_recorded_is_refused_and_so_are_its_repetitions(trail: CountingTrail) -> None:
    recorder = Recorder(trail)
    trail.is_full = True
    results = await asyncio.gather(*(recorder.record(export()) for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 5
    trail.is_full = False
    await recorder.record(export())
    await recorder.record(export())
    await recorder.close()
    assert [entry["count"] for entry in trail.entries()] == [1, 1]


@in_event_loop
async def test_after_repetitions_that_could_not_be_written_everything_is_refused_until_they_are(
    trail: CountingTrail, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedsink.audit.recorder, "PERIOD_S", 0.5)
    recorder = Recorder(trail)
    await recorder.record(export())
    await recorder.record(export())
    trail.is_full = True
    await until(lambda: bool(caplog.records))
    with pytest.raises(Unavailable):
        await recorder.record(export())
    assert {record.message for record in caplog.records} == {"audit_failed"}
    trail.is_full = False
    await until(lambda: len(trail.entries()) == 2)
    assert [entry["count"] for entry in trail.entries()] == [1, 1]
    await recorder.record(export())
    await recorder.close()


@in_event_loop
async def test_an_action_does_not_wait_long_for_a_disk_that_hangs(
    trail: CountingTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedsink.audit.recorder, "WRITE_S_MAX", 0.05)
    monkeypatch.setattr(embedsink.audit.recorder, "CLOSE_S_MAX", 0.05)
    recorder = Recorder(trail)
    with (trail.folder.parent / "audit.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match=r"takes more than 0\.05 s"):
            await recorder.record(export())
        await recorder.close()
    await until(lambda: len(trail.entries()) == 1)


@in_event_loop
async def test_a_logout_takes_place_even_if_it_cannot_be_recorded(trail: CountingTrail) -> None:
    recorder = Recorder(trail)
    trail.is_full = True
    entry = Entry(action=Action.LOGOUT, actor="k_1", via=Via.PAGE, outcome=Outcome.DONE)
    await recorder.record_or_log(entry)
    await recorder.close()
    assert trail.entries() == []
