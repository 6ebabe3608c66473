"""The retention with an archive on a real server, which is killed in every step."""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.archives import archived_rows, check_archive
from tests.support.disks import mounted
from tests.support.envelopes import event_or_action, view
from tests.support.kills import is_killed, kill_at
from tests.support.servers import RunningServer, offending_rows, running_server, wait_until
from tests.support.stores import make_folder

OFTEN = """
import embedsink.retention_schedule as schedule
import embedsink.store.expiry as expiry
schedule.INTERVAL_S = 0.3
expiry.EXPIRED_AT_ONCE = 400
"""
# The server is killed before each file, each rename and each deletion.
STEPS = ("ArchiveRows.write", "FolderTarget.add", "Store.expire", "Store.finish_expiry")
IMPORTS = """
from embedsink.archive.target import FolderTarget
from embedsink.store.archive_rows import ArchiveRows
from embedsink.store.database import Store
"""
# Refuses to erase while a file exists.
NO_ERASURE = """
import os
import embedsink.erasure.erasures as erasures
from embedsink.loader.erasure import StoreErasure
from embedsink.store.duckdb_errors import StoreRefused
erasures.RETRY_AFTER_S = erasures.RETRY_AFTER_S_MAX = 0.3
erase = StoreErasure.erase

def erase_unless_refused(*arguments, **options):
    if os.path.exists("{refusal}"):
        raise StoreRefused("test")
    return erase(*arguments, **options)

StoreErasure.erase = erase_unless_refused
"""
# A deployment whose events are never deleted.
KEPT_DEPLOYMENT = 12
MONTH_MS = 31 * 86_400_000


def settings(archive: Path) -> dict[str, Any]:
    return {
        "EMBEDSINK_RETENTION_DAYS": "7",
        "EMBEDSINK_RETENTION_DAYS_BY_DEPLOYMENT": f"{KEPT_DEPLOYMENT}=0",
        "EMBEDSINK_DAILY_TOTALS": "off",
        "EMBEDSINK_SNAPSHOT_INTERVAL_S": "0.2",
        "EMBEDSINK_ARCHIVE": str(archive),
    }


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with 600 events of two months and 6 losses, all of ten days ago, and 10 new events.

    It also has 42 events of ten days ago whose session belongs to `KEPT_DEPLOYMENT`, as only its `ready` event says.
    """
    data = make_folder(tmp_path_factory.mktemp("original") / "data").path
    now_ms = round(datetime.now(UTC).timestamp() * 1_000)
    for count, has_loss in ((600, True), (10, False)):
        with running_server(data) as server:
            key = server.key()
            events = [view({"title": f"{number}", "novel": number}) for number in range(count)]
            for event in events[::2] if has_loss else []:
                event["timestamp"] = now_ms - MONTH_MS
            for start in range(0, count, 100):
                delivery: dict[str, Any] = {
                    "context": {"deployment": 1, "session": "s"},
                    "events": events[start : start + 100],
                }
                delivery |= {"lost": {"queue_overflow": 1}} if has_loss else {}
                assert server.post(delivery, key=key).status == 202
                if has_loss:
                    kept = {
                        "context": {"session": "kept"},
                        "events": [event_or_action("event:ready"), *map(view, [{}] * 6)],
                    }
                    assert server.post(kept, key=key).status == 202
            server.stop()
        if has_loss:
            with duckdb.connect(str(data / "store.duckdb")) as connection:
                connection.execute("update loaded_segment set loaded_at = loaded_at - to_days(10)")
    return data


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "data")
    (tmp_path / "archive").mkdir()
    return tmp_path / "data"


def ids(data: Path) -> set[str]:
    with duckdb.connect(str(data / "store.duckdb"), read_only=True) as connection:
        return {str(event_id) for (event_id,) in connection.execute("select event_id from event").fetchall()}


def deleted_count(data: Path) -> int:
    with duckdb.connect(str(data / "store.duckdb"), read_only=True) as connection:
        [(count,)] = connection.execute("select sum(deleted_count) from loaded_segment").fetchall()
        return int(count or 0)


def is_logged(server: RunningServer, event: str) -> bool:
    return f'"{event}"'.encode() in server.log.read_bytes()


def finish(data: Path, archive: Path) -> None:
    """Run a server until it has archived and deleted all old events."""
    with running_server(data, injected=OFTEN, **settings(archive)) as server:
        admin = server.key("admin")

        def is_finished() -> bool:
            response = server.get("/api/v1/events.csv?columns=viewer&limit=1000", key=admin)
            return response.status == 200 and response.body.count(b"\n") == 1 + 10 + 42

        wait_until(is_finished, description="the old events are deleted")
        server.stop()


def judge(data: Path, archive: Path, all_ids: set[str]) -> None:
    """Check that each event is in the store or in the archive, as the ledger says."""
    archived = [str(row["event_id"]) for row in archived_rows(archive)]
    assert len(archived) == len(set(archived)) == 600
    assert len(ids(data)) == 10 + 42
    assert set(archived) | ids(data) == all_ids
    assert check_archive(archive) == 606
    assert deleted_count(data) == 600
    assert offending_rows(data) == {}


def test_old_events_are_archived_before_they_are_deleted(data: Path, tmp_path: Path) -> None:
    all_ids = ids(data)
    finish(data, tmp_path / "archive")
    judge(data, tmp_path / "archive", all_ids)
    assert len([path for path in (tmp_path / "archive").iterdir() if path.is_dir()]) == 2
    assert sum(row["lost_count"] for row in archived_rows(tmp_path / "archive", "loss")) == 6


def test_a_kill_in_any_step_loses_and_doubles_nothing(data: Path, tmp_path: Path) -> None:
    all_ids = ids(data)
    step = 0
    was_killed = True
    while was_killed:
        step += 1
        attempt, archive = tmp_path / f"data-{step}", tmp_path / f"archive-{step}"
        shutil.copytree(data, attempt)
        archive.mkdir()
        was_killed = is_killed(
            attempt,
            OFTEN + kill_at(step, STEPS, imports=IMPORTS),
            is_finished=lambda server: is_logged(server, "events_expired"),
            **settings(archive),
        )
        # All deleted events are in the archive.
        archived = {str(row["event_id"]) for row in archived_rows(archive)}
        assert all_ids - ids(attempt) <= archived
        finish(attempt, archive)
        judge(attempt, archive, all_ids)
    assert step > 10


def test_no_event_is_archived_while_an_erasure_is_pending(data: Path, tmp_path: Path) -> None:
    all_ids = ids(data)
    archive, refusal = tmp_path / "archive", tmp_path / "refusal"
    refusal.touch()
    injected = NO_ERASURE.format(refusal=refusal)
    with running_server(data, injected=injected) as server:
        erasure = server.post({"viewer": "ann"}, path="/api/v1/erasures", key=server.key("admin"))
        assert erasure.status == 202
        server.stop()
    with running_server(data, injected=OFTEN + injected, **settings(archive)) as server:
        wait_until(
            lambda: server.log.read_bytes().count(b'"erasure_delayed"') > 5, description="retries of the erasure"
        )
        assert not is_logged(server, "events_archived")
        refusal.unlink()
        wait_until(lambda: is_logged(server, "events_archived"), description="events are archived after the erasure")
        server.stop()
    finish(data, archive)
    judge(data, archive, all_ids)


def test_nothing_is_deleted_while_the_archive_is_missing(data: Path, tmp_path: Path) -> None:
    all_ids = ids(data)
    (tmp_path / "archive").rmdir()
    with running_server(data, injected=OFTEN, **settings(tmp_path / "archive")) as server:
        wait_until(lambda: is_logged(server, "archive_failed"), description="the failure is logged")
        assert b"does not exist. Create the folder, or mount its disk. No event is deleted." in server.log.read_bytes()
        wait_until(lambda: is_logged(server, "archive_unusable"), description="the check at the start is logged")
        server.stop()
    assert ids(data) == all_ids
    assert not (tmp_path / "archive").exists()
    (tmp_path / "archive").mkdir()
    finish(data, tmp_path / "archive")
    judge(data, tmp_path / "archive", all_ids)


def damage_manifest(archive: Path) -> Path:
    manifest = next(archive.glob("*/manifest.json"))
    manifest.write_text('{"archive":1,"files":[{"na')
    return manifest


def damage_file(archive: Path) -> Path:
    file = archive / "2026-01" / f"event-{0:019d}-{2**62:019d}.parquet"
    file.parent.mkdir()
    file.write_bytes(b"PAR1 not really")
    return file


def truncate_file(archive: Path) -> Path:
    # The metadata is complete, but the rows are not.
    original = max(archive.glob("*/event-*.parquet"), key=lambda path: path.stat().st_size)
    content = original.read_bytes()
    metadata_bytes = int.from_bytes(content[-8:-4], "little") + 8
    file = archive / "2026-01" / f"event-{0:019d}-{2**62:019d}.parquet"
    file.parent.mkdir()
    file.write_bytes(content[:100] + content[-metadata_bytes:])
    return file


@pytest.mark.parametrize("damage", [damage_manifest, damage_file, truncate_file])
def test_a_damaged_archive_delays_only_the_deletion(data: Path, tmp_path: Path, damage: Callable[[Path], Path]) -> None:
    all_ids, archive = ids(data), tmp_path / "archive"
    shutil.copytree(data, tmp_path / "copy")
    finish(tmp_path / "copy", archive)
    damaged = damage(archive)
    if damage is damage_manifest:  # It is read when files are missing in it.
        for file in damaged.parent.glob("*.parquet"):
            file.unlink()
    with running_server(data, injected=OFTEN, **settings(archive)) as server:
        wait_until(lambda: is_logged(server, "archive_failed"), description="the failure is logged")
        wait_until(lambda: server.log.read_bytes().count(b'"archive_failed"') > 2, description="it is retried")
        assert server.get("/readyz").status == 200
        assert damaged.name.encode() in server.log.read_bytes()
        for event in ("loader_failed", "store_damaged", "retention_delayed"):
            assert not is_logged(server, event)
        server.stop()
    assert ids(data) == all_ids


def test_fields_are_deleted_while_the_archive_is_missing(data: Path, tmp_path: Path) -> None:
    all_ids = ids(data)
    (tmp_path / "archive").rmdir()
    with running_server(
        data, injected=OFTEN, EMBEDSINK_EXTRA_RETENTION_DAYS="7", **settings(tmp_path / "archive")
    ) as server:
        wait_until(lambda: is_logged(server, "fields_expired"), description="the fields are deleted")
        server.stop()
    assert ids(data) == all_ids
    with duckdb.connect(str(data / "store.duckdb"), read_only=True) as connection:
        assert connection.execute("select count(*) from event where extra is not null").fetchall() == [(10,)]


def test_nothing_is_deleted_while_the_archive_is_full(data: Path, tmp_path: Path) -> None:
    all_ids = ids(data)
    with mounted(tmp_path / "small", mebibytes=1) as small:
        (small / "filler").write_bytes(b"x" * (1_048_576 - 16_384))
        with running_server(data, injected=OFTEN, **settings(small)) as server:
            wait_until(lambda: is_logged(server, "archive_failed"), description="the failure is logged")
            assert b"is full. Free space on it. No event is deleted." in server.log.read_bytes()
            server.stop()
        assert ids(data) == all_ids
        (small / "filler").unlink()
        finish(data, small)
        judge(data, small, all_ids)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_of_another_user_is_refused_with_one_sentence(tmp_path: Path) -> None:
    from embedsink.archive.target import ArchiveFailed, FolderTarget

    folder = tmp_path / "archive"
    folder.mkdir(mode=0o700)
    for path in (folder, *folder.parents):
        if path.is_relative_to("/tmp/pytest-of-root"):
            path.chmod(0o755)
    folder.chmod(0o555)
    os.seteuid(65_534)
    try:
        with (
            pytest.raises(ArchiveFailed, match="can't be read and written by this user"),
            FolderTarget(folder).locked(),
        ):
            pass
    finally:
        os.seteuid(0)
