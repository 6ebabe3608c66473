"""The journal: acknowledged lines are durable, and lines that can't be stored are refused."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from embedsink.durable_files import rename_new
from embedsink.errors import Unavailable
from embedsink.journal import open_segment
from embedsink.journal import recovery as recovery_module
from embedsink.journal import writer as journal_module
from embedsink.journal.limits import JournalLimits
from embedsink.journal.segment import damage_of_groups, number_of, sealed_bytes_of, trailer
from embedsink.journal.writer import Journal
from embedsink.reasons import Reason
from tests.support.disks import mounted
from tests.support.servers import wait_until

QUICK = JournalLimits(segment_seal_s=0.05, free_bytes_min=0)
MIB = 1_048_576


def line(number: int, size: int = 0) -> bytes:
    """Return a journal line with a number that identifies it."""
    return json.dumps({"kind": "event", "n": number, "filling": "x" * size}).encode() + b"\n"


def numbers(folder: Path) -> list[int]:
    """Return the numbers of all complete lines in a journal folder, in order, without trailers."""
    numbers_found = []
    for segment in sorted(folder.iterdir()):
        content = segment.read_bytes()
        assert damage_of_groups(content) is None
        numbers_found += [json.loads(line)["n"] for line in content.splitlines() if line.startswith(b'{"kind"')]
    return numbers_found


def run(test: Callable[[Journal], Awaitable[None]], journal: Journal) -> None:
    """Run a test on a started journal, then close it."""

    async def started() -> None:
        journal.start()
        try:
            await asyncio.wait_for(test(journal), 20)
        finally:
            await asyncio.wait_for(journal.close(), 20)

    asyncio.run(started())


async def outcome(journal: Journal, lines: bytes) -> Reason | None:
    """Append lines. Return the error, or None when they are durable."""
    try:
        await journal.append(lines)
    except Unavailable as refusal:
        return refusal.reason
    return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def open_journal(folder: Path, limits: JournalLimits = QUICK, **options: object) -> Journal:
    return Journal(folder, damaged_folder=folder.parent / "damaged", limits=limits, **options)  # type: ignore[arg-type]


def test_answered_lines_are_written_and_synced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []

    def fdatasync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())

    monkeypatch.setattr(open_segment, "fdatasync", fdatasync)

    async def test(journal: Journal) -> None:
        for number in range(20):
            await journal.append(line(number))
            assert line(number) in synced[-1]
            assert damage_of_groups(synced[-1]) is None

    run(test, open_journal(folder))


def test_appends_keep_their_order_across_groups_and_segments(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        for start in range(0, 400, 40):
            await asyncio.gather(*[journal.append(line(number)) for number in range(start, start + 40)])
            await asyncio.sleep(0.02)

    run(test, open_journal(folder))
    assert numbers(folder) == list(range(400))
    assert len(list(folder.iterdir())) > 1


def test_appends_during_a_sync_share_the_next_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_segment, "fdatasync", lambda descriptor: time.sleep(0.05))

    async def test(journal: Journal) -> None:
        first = journal.append(line(0))
        await asyncio.sleep(0.02)
        await asyncio.gather(first, *[journal.append(line(number)) for number in range(1, 100)])
        assert journal.counters.group_count == 2

    run(test, open_journal(folder))


def test_appends_in_two_turns_of_the_loop_share_a_group(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        first = journal.append(line(0))
        await asyncio.sleep(0)  # the next turn of the loop
        time.sleep(0.05)  # noqa: ASYNC251  If the committer had been woken, it would have begun by now.
        await asyncio.gather(first, journal.append(line(1)))
        assert journal.counters.group_count == 1

    run(test, open_journal(folder))


def test_an_old_segment_is_sealed_and_reported(folder: Path) -> None:
    sealed = threading.Event()

    async def test(journal: Journal) -> None:
        await journal.append(line(1))
        await asyncio.to_thread(sealed.wait, 5)
        assert len(journal.segments()) == 1

    run(test, open_journal(folder, on_sealed=lambda number: sealed.set()))
    assert [segment.suffix for segment in folder.iterdir()] == [".ndjson"]


def test_a_large_segment_is_sealed(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        for number in range(8):
            await journal.append(line(number, size=2_000))

    run(test, open_journal(folder, JournalLimits(segment_bytes_max=4_096, free_bytes_min=0)))
    assert [segment.stat().st_size > 4_096 for segment in folder.iterdir()].count(True) >= 2
    assert numbers(folder) == list(range(8))


def test_closing_commits_pending_lines_and_seals(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        waiters = [journal.append(line(number)) for number in range(1_000)]
        await journal.close()
        await asyncio.gather(*waiters)

    run(test, open_journal(folder, JournalLimits(free_bytes_min=0)))
    assert numbers(folder) == list(range(1_000))
    assert [segment.suffix for segment in folder.iterdir()] == [".ndjson"]


def test_a_closed_journal_refuses_lines(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        await journal.close()
        assert await outcome(journal, line(1)) is Reason.OVERLOADED

    run(test, open_journal(folder))


def test_a_journal_without_lines_leaves_no_file(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        await asyncio.sleep(0)

    run(test, open_journal(folder))
    assert list(folder.iterdir()) == []


def test_segment_names_never_repeat_even_in_an_emptied_folder(folder: Path) -> None:
    names: list[str] = []

    async def test(journal: Journal) -> None:
        await journal.append(line(1))

    for _ in range(5):
        run(test, open_journal(folder))
        names += [segment.name for segment in folder.iterdir()]
        for segment in folder.iterdir():
            segment.unlink()
    assert len(set(names)) == 5


def test_numbers_continue_after_the_stores_highest(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        await journal.append(line(1))

    run(test, open_journal(folder, after_number=41))
    assert next(folder.iterdir()).name.startswith("000000000042-")


def test_a_slow_disk_limits_pending_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hung = threading.Event()
    monkeypatch.setattr(open_segment, "fdatasync", lambda descriptor: hung.wait(10))
    large_line = line(0, size=1_000)

    async def test(journal: Journal) -> None:
        waiters = [journal.append(large_line) for _ in range(10_000 // len(large_line))]
        assert await outcome(journal, large_line) is Reason.OVERLOADED
        hung.set()
        await asyncio.gather(*waiters)
        assert await outcome(journal, large_line) is None

    run(test, open_journal(folder, JournalLimits(pending_bytes_max=10_000, free_bytes_min=0)))


def test_short_writes_are_continued(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:7]))

    async def test(journal: Journal) -> None:
        await asyncio.gather(*[journal.append(line(number)) for number in range(50)])

    run(test, open_journal(folder))
    assert numbers(folder) == list(range(50))


def test_a_failed_sync_fails_its_group_and_ends_the_journal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fdatasync, write = os.fdatasync, os.write

    def failing(descriptor: int) -> None:
        calls.append("sync")
        if calls.count("sync") == 2:
            raise OSError(errno.EIO, "Input/output error")
        fdatasync(descriptor)

    def recorded(descriptor: int, content: bytes) -> int:
        calls.append("write")
        return write(descriptor, content)

    monkeypatch.setattr(open_segment, "fdatasync", failing)
    monkeypatch.setattr(os, "write", recorded)
    failures: list[str] = []

    async def test(journal: Journal) -> None:
        assert await outcome(journal, line(1)) is None
        outcomes = await asyncio.gather(*[outcome(journal, line(number)) for number in range(2, 20)])
        assert set(outcomes) == {Reason.STORAGE_FAILED}
        assert await outcome(journal, line(20)) is Reason.STORAGE_FAILED
        assert journal.failure is not None

    run(test, open_journal(folder, JournalLimits(free_bytes_min=0), on_failure=lambda: failures.append("disk")))
    assert calls == ["write", "sync", "write", "sync"]
    assert failures == ["disk"]

    # The next start finds the acknowledged lines and no refused ones.
    open_journal(folder)
    assert numbers(folder) == [1]


def test_a_failed_write_fails_its_group_and_ends_the_journal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def failing(descriptor: int, content: bytes) -> int:
        if len(content) < 100:
            raise OSError(errno.EIO, "Input/output error")
        return write(descriptor, content[:-99])

    async def test(journal: Journal) -> None:
        assert await outcome(journal, line(1, size=1_000)) is Reason.STORAGE_FAILED
        assert await outcome(journal, line(2)) is Reason.STORAGE_FAILED

    failures: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing)
        run(test, open_journal(folder, on_failure=lambda: failures.append("disk")))
    assert failures == ["disk"]
    open_journal(folder)
    assert numbers(folder) == []


def test_a_segment_of_probes_alone_has_a_size_limit(folder: Path) -> None:
    def byte_count() -> int:
        while True:
            with contextlib.suppress(FileNotFoundError):  # of a segment that is sealed or deleted meanwhile
                return sum(path.stat().st_size for path in folder.iterdir())

    async def test(journal: Journal) -> None:
        sizes: list[int] = []
        for _ in range(300):
            await journal.append(b"")
            sizes.append(await asyncio.to_thread(byte_count))
        assert max(sizes) < 2 * 4_096

    run(test, open_journal(folder, JournalLimits(segment_bytes_max=4_096, free_bytes_min=0)))
    assert list(folder.iterdir()) == []


def test_probes_of_an_idle_server_create_no_segment(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        for _ in range(3):
            await journal.append(b"")
        await asyncio.sleep(0.1)
        assert journal.segments() == []

    run(test, open_journal(folder, JournalLimits(segment_seal_s=0.01)))
    assert list(folder.iterdir()) == []


def test_a_failed_measurement_of_free_space_ends_the_journal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def test(journal: Journal) -> None:
        monkeypatch.setattr(os, "statvfs", failing)
        assert await eventually(lambda: outcome(journal, line(1)), Reason.STORAGE_FAILED)
        assert journal.failure is not None

    run(test, open_journal(folder))


def test_a_segment_deleted_during_a_measurement_does_not_end_the_journal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Vanished:
        name = "000000000001-00000000.ndjson"

        def stat(self) -> os.stat_result:
            raise FileNotFoundError

    class Entries(list[Vanished]):
        def __enter__(self) -> "Entries":
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda path: Entries([Vanished()]))

    async def test(journal: Journal) -> None:
        assert await outcome(journal, line(1)) is None

    run(test, open_journal(folder))


def test_a_journal_over_its_size_limit_refuses_until_segments_are_deleted(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        assert await eventually(lambda: outcome(journal, line(1, size=2_000)), Reason.STORAGE_LOW)

        async def tidied() -> Reason | None:
            for segment in journal.segments():
                journal.capacity.remove(segment.stat().st_size)
                segment.unlink()
            return await outcome(journal, line(2))

        assert await eventually(tidied, None)

    run(test, open_journal(folder, JournalLimits(segment_seal_s=0.05, journal_bytes_max=1_000, free_bytes_min=0)))


def test_free_space_below_the_minimum_refuses_before_any_write(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        await asyncio.sleep(0.1)
        assert await outcome(journal, line(1)) is Reason.STORAGE_LOW

    run(test, open_journal(folder, JournalLimits(free_bytes_min=2**62)))
    assert list(folder.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return the path of a 2 MiB disk."""
    with mounted(tmp_path / "disk", mebibytes=2) as disk:
        yield disk


def test_a_full_disk_refuses_stores_nothing_and_recovers_automatically(small_disk: Path) -> None:
    folder = small_disk / "journal"
    filling = small_disk / "filling"
    stored: list[int] = []

    async def test(journal: Journal) -> None:
        await journal.append(line(0))
        with filling.open("wb") as file:
            file.write(bytes(MIB))
        outcomes = []
        for number in range(1, 8):
            outcomes.append(await outcome(journal, line(number, size=300_000)))
            if outcomes[-1] is None:
                stored.append(number)
        assert set(outcomes) == {None, Reason.STORAGE_LOW}
        assert journal.failure is None
        filling.unlink()
        assert await eventually(lambda: outcome(journal, line(100)), None)

    run(test, open_journal(folder, JournalLimits(free_bytes_min=0)))
    assert numbers(folder) == [0, *stored, 100]


async def eventually(measure: Callable[[], Awaitable[object]], expected: object, timeout_s: float = 5) -> bool:
    """Return whether the result becomes the expected one in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if await measure() == expected:
            return True
        await asyncio.sleep(0.05)
    return False


def test_without_a_free_descriptor_senders_retry_and_the_server_continues(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(journal: Journal) -> None:
        with monkeypatch.context() as patch:

            def no_more(*_: object) -> int:
                raise OSError(errno.EMFILE, "Too many open files")

            patch.setattr(os, "open", no_more)
            patch.setattr(os, "scandir", no_more)
            assert await outcome(journal, line(1)) is Reason.OVERLOADED
        assert await outcome(journal, line(2)) is None
        assert journal.failure is None

    run(test, open_journal(folder))
    assert numbers(folder) == [2]


def test_segment_numbers_have_no_gap_after_runs_without_lines(folder: Path) -> None:
    async def probe(journal: Journal) -> None:
        await journal.append(b"")

    async def probe_and_take_in(journal: Journal) -> None:
        await journal.append(b"")
        await journal.append(line(1))

    for test in (probe_and_take_in, probe, probe, probe_and_take_in):
        run(test, open_journal(folder))
        # as after a kill that follows a probe
        (folder / "000000000099-00000000.open").touch()
    assert sorted(map(number_of, folder.glob("*.ndjson"))) == [1, 2]


def test_a_bug_in_the_committer_ends_the_journal_and_answers_all_waiters(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    async def test(journal: Journal) -> None:
        monkeypatch.setattr(journal_module, "trailer", lambda lines: 1 // 0)
        waiters = [asyncio.ensure_future(outcome(journal, line(number))) for number in range(3)]
        assert await asyncio.gather(*waiters) == [Reason.STORAGE_FAILED] * 3
        assert await outcome(journal, line(4)) is Reason.STORAGE_FAILED
        assert failed == ["failed"]

    run(test, open_journal(folder, on_failure=lambda: failed.append("failed")))


def test_the_name_of_a_sealed_segment_contains_its_size(folder: Path) -> None:
    numbers_sealed: list[int] = []

    async def test(journal: Journal) -> None:
        for number in range(3):
            await journal.append(line(number))
            await asyncio.to_thread(wait_until, lambda: not open_segments(folder), description="it is sealed")

    run(test, open_journal(folder, on_sealed=numbers_sealed.append))
    assert numbers_sealed == [1, 2, 3]
    assert [sealed_bytes_of(path.name) for path in sorted(folder.iterdir())] == [
        path.stat().st_size for path in sorted(folder.iterdir())
    ]


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_missing_folder_ends_the_journal_and_stores_nothing(folder: Path, how: str) -> None:
    failures: list[str] = []

    async def test(journal: Journal) -> None:
        assert await outcome(journal, line(1)) is None
        await asyncio.to_thread(take_away, folder, how)
        assert await eventually(lambda: outcome(journal, line(2)), Reason.STORAGE_FAILED)
        assert failures == ["failed"]

    run(test, open_journal(folder, JournalLimits(free_bytes_min=0), on_failure=lambda: failures.append("failed")))
    assert not folder.exists() or not list(folder.iterdir())


def take_away(folder: Path, how: str) -> None:
    moved_folder = folder.rename(folder.with_name("elsewhere"))
    if how == "deleted":
        shutil.rmtree(moved_folder)
    if how == "replaced":
        folder.mkdir()


def open_segments(folder: Path) -> list[Path]:
    return list(folder.glob("*.open"))


def test_an_idle_journal_detects_a_missing_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_IDLE_CHECK_S", 0.05)
    failed = threading.Event()

    async def test(journal: Journal) -> None:
        await asyncio.to_thread(folder.rmdir)
        assert await asyncio.to_thread(failed.wait, 10)

    run(test, open_journal(folder, on_failure=failed.set))


def test_lines_in_a_deleted_segment_are_not_acknowledged(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        assert await outcome(journal, line(1)) is None
        for path in open_segments(folder):
            await asyncio.to_thread(path.unlink)
        assert await outcome(journal, line(2)) is Reason.STORAGE_FAILED
        assert "the open segment was deleted" in str(journal.failure)

    run(test, open_journal(folder, JournalLimits(free_bytes_min=0)))


def test_lines_in_a_truncated_segment_are_not_acknowledged(folder: Path) -> None:
    async def test(journal: Journal) -> None:
        assert await outcome(journal, line(1)) is None
        [path] = open_segments(folder)
        await asyncio.to_thread(os.truncate, path, 0)
        assert await outcome(journal, line(2)) is Reason.STORAGE_FAILED
        assert "the open segment was changed by another program" in str(journal.failure)
        assert b"\0" not in path.read_bytes()

    run(test, open_journal(folder, JournalLimits(free_bytes_min=0)))


def test_a_segment_is_sealed_when_the_disk_has_space_for_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = threading.Event()
    is_full = threading.Event()
    is_full.set()

    def rename(source: Path, target: Path) -> None:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        rename_new(source, target)

    monkeypatch.setattr(open_segment, "rename_new", rename)

    async def test(journal: Journal) -> None:
        assert await outcome(journal, line(1)) is None
        assert await eventually(lambda: outcome(journal, line(2)), Reason.STORAGE_LOW)
        assert len(open_segments(folder)) == 1
        is_full.clear()
        assert await asyncio.to_thread(sealed.wait, 10)
        assert await eventually(lambda: outcome(journal, line(3)), None)

    run(test, open_journal(folder, on_sealed=lambda number: sealed.set()))
    assert set(numbers(folder)) >= {1, 3}


def test_a_segment_deferred_on_a_full_disk_is_recovered_when_space_is_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    (folder / "000000000004-00000000.open").write_bytes(line(1) + trailer(line(1)) + b"torn")
    sealed: list[int] = []

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(recovery_module, "write_durably", full)
        journal = open_journal(folder, on_sealed=sealed.append)

    async def test(journal: Journal) -> None:
        await asyncio.to_thread(wait_until, lambda: sealed == [4], description="it is recovered")
        await journal.append(line(2))

    run(test, journal)
    assert sealed == [4, 5]
    assert numbers(folder) == [1, 2]
    assert journal.capacity.byte_count == sum(path.stat().st_size for path in folder.iterdir())
