"""The import of archives: the same rows, each counted once, and nothing from a damaged archive."""

import asyncio
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from embedsink.archive.archive import Archive
from embedsink.archive.target import open_target
from embedsink.engine import Engine, now_ms
from embedsink.errors import Misconfigured
from embedsink.key_scope import EVERYTHING
from embedsink.settings import Settings
from embedsink.store.archive_reader import open_archive_reader
from embedsink.store.database import Store
from embedsink.store.snapshot_reader import open_snapshot
from embedsink.transfer.archive_import import ArchiveImport
from embedsink.transfer.bulk_import import ImportCounts, import_to_folder
from embedsink.transfer.import_file import read_deliveries
from tests.support.archives import check_archive
from tests.support.object_storage import object_storage
from tests.support.servers import offending_rows
from tests.support.stores import make_folder
from tests.transfer.test_transfer import import_into, view

DAY_MS = 86_400_000
NOT_COMPARED = "ingest_seq, key_id"


def envelope(kind: str, number: int, *, days: int) -> dict[str, Any]:
    event = view(id=f"00000000-0000-4000-8000-{number:012d}", timestamp=now_ms() - days * DAY_MS)
    if kind == "action":
        event |= {"direction": "action", "type": "svc:action:refresh", "payload": {}}
        del event["surface"]
    return event


def deliveries_of_two_months() -> list[dict[str, Any]]:
    """Return two deliveries of different months: events, actions and losses."""
    return [
        {
            "receivedAt": now_ms() - days * DAY_MS,
            "context": {"deployment": 12, "session": f"s{days}", "viewer": "ann@example.com", "vendor": "looker"},
            "events": [
                envelope(kind, 100 * days + index, days=days) for index, kind in enumerate(["event", "event", "action"])
            ],
            "lost": {"queue_overflow": 2, "send_failed": 3},
        }
        for days in (1, 40)
    ]


def write_archive(data: Path, target: str) -> None:
    store = Store(data / "store.duckdb")
    store.open()
    with store.archive_rows() as rows:
        selected = rows.next_range(0)
        assert selected is not None
        Archive(open_target(target)).add(rows, selected)
    store.close()


def import_archive(data: Path, text: str, **settings: Any) -> ImportCounts:
    async def run() -> ImportCounts:
        counts = ImportCounts()
        archive = ArchiveImport(text)
        archive.check()
        async with Engine(make_folder(data), Settings(**settings)) as engine:
            deliveries = read_deliveries(archive.lines("svc"), engine.rules, is_remote=False)
            await import_to_folder(engine, deliveries, counts)
        return counts

    return asyncio.run(run())


def rows(data: Path) -> dict[str, list[Any]]:
    with duckdb.connect(str(data / "store.duckdb"), read_only=True) as connection:
        return {
            table: connection.execute(f"select * exclude ({NOT_COMPARED}) from {table} order by all").fetchall()
            for table in ("event", "action", "loss")
        }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "archive").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "internal.toml").write_text('viewers = ["*@example.com"]\n')
    counts = import_into(tmp_path / "data", deliveries_of_two_months())
    assert (counts.accepted, counts.rejected) == (6, 0)
    write_archive(tmp_path / "data", str(tmp_path / "archive"))
    assert check_archive(tmp_path / "archive") == 10
    return tmp_path / "data"


def test_an_archive_imports_as_the_same_rows(data: Path, tmp_path: Path) -> None:
    expected = rows(data)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "internal.toml").write_text('viewers = ["*@example.com"]\n')
    counts = import_archive(tmp_path / "new", str(tmp_path / "archive"))
    assert (counts.accepted, counts.rejected, counts.messages) == (6, 0, [])
    assert rows(tmp_path / "new") == expected
    assert offending_rows(tmp_path / "new") == {}


def test_a_file_of_an_earlier_version_has_no_vendor(data: Path, tmp_path: Path) -> None:
    [*_, path] = (tmp_path / "archive").glob("*/event*.parquet")
    older = tmp_path / "older.parquet"
    duckdb.sql(f"copy (select * exclude (vendor) from '{path}') to '{older}'")
    with open_archive_reader("svc") as reader:
        assert [json.loads(line)["context"]["vendor"] for line in reader.deliveries("event", path)] == ["looker"] * 2
        contexts = [json.loads(line)["context"] for line in reader.deliveries("event", older)]
    assert [context["viewer"] for context in contexts] == ["ann@example.com"] * 2
    assert not any("vendor" in context for context in contexts)


def test_a_second_import_counts_nothing_after_the_deduplication_window(data: Path, tmp_path: Path) -> None:
    import_archive(tmp_path / "new", str(tmp_path / "archive"), dedup_days=1)
    before = rows(tmp_path / "new")
    with duckdb.connect(str(tmp_path / "new" / "store.duckdb")) as connection:
        connection.execute(
            "insert into journal_hour select (1::bigint << 40) + hour, now() from range(100) hours (hour)"
        )
    import_archive(tmp_path / "new", str(tmp_path / "archive"), dedup_days=1)
    assert rows(tmp_path / "new") == before


def test_events_that_are_still_stored_count_once(data: Path, tmp_path: Path) -> None:
    expected = rows(data)
    (data / "internal.toml").unlink()  # The marks of internal people are not a conflict.
    import_archive(data, str(tmp_path / "archive"))
    assert rows(data) == expected
    with open_snapshot(data / "store.duckdb", EVERYTHING.variables()) as reader:
        assert reader.dicts("quarantine_in_scope") == []


def test_a_month_or_a_file_can_be_imported(data: Path, tmp_path: Path) -> None:
    months = sorted(path.parent for path in (tmp_path / "archive").glob("*/manifest.json"))
    assert len(months) == 2
    assert import_archive(tmp_path / "one", f"{months[0]}/").accepted == 3
    [file] = months[0].glob("action-*.parquet")
    assert import_archive(tmp_path / "two", str(file)).accepted == 1
    assert len(rows(tmp_path / "two")["action"]) == 1


def test_files_that_are_in_no_manifest_are_named(data: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    [first, second] = sorted(path.parent for path in archive.glob("*/manifest.json"))
    assert ArchiveImport(str(archive)).unlisted == []
    (first / "manifest.json").unlink()
    names = sorted(f"{first.name}/{path.name}" for path in first.glob("*.parquet"))
    assert ArchiveImport(str(archive)).unlisted == names
    assert ArchiveImport(str(second)).unlisted == []


def test_a_repeated_loss_report_imports_with_its_whole_count(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    delivery = deliveries_of_two_months()[0] | {"lost": {"queue_overflow": 2}}
    import_into(tmp_path / "data", [delivery])
    import_into(tmp_path / "data", [delivery | {"lost": {"queue_overflow": 5}}])
    assert [row[-2:][0] for row in rows(tmp_path / "data")["loss"]] == [2, 3]
    write_archive(tmp_path / "data", str(tmp_path / "archive"))
    import_archive(tmp_path / "new", str(tmp_path / "archive"))
    assert rows(tmp_path / "new") == rows(tmp_path / "data")


def test_an_archive_in_object_storage_is_imported(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "buckets" / "bucket").mkdir(parents=True)
    with object_storage(tmp_path / "buckets") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        write_archive(data, "s3://bucket/archive")
        assert import_archive(tmp_path / "new", "s3://bucket/archive").accepted == 6
        [month, _] = sorted(path.name for path in (tmp_path / "buckets" / "bucket" / "archive").iterdir())
        assert import_archive(tmp_path / "month", f"s3://bucket/archive/{month}").accepted == 3
    assert {table: len(found) for table, found in rows(tmp_path / "new").items()} == {
        "event": 4,
        "action": 2,
        "loss": 4,
    }


def test_nothing_is_imported_from_a_damaged_archive(data: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    [file, *_] = sorted(archive.glob("*/event-*.parquet"), reverse=True)
    content = file.read_bytes()
    file.write_bytes(content[:-20] + b"x" + content[-19:])
    with pytest.raises(Misconfigured, match=r"its SHA-256 is not that of the manifest\. Nothing was imported\."):
        ArchiveImport(str(archive)).check()
    file.unlink()
    with pytest.raises(Misconfigured, match=r"is missing\. Nothing was imported\. Put the file back\."):
        ArchiveImport(str(archive)).check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"archive": 2}, "is from a newer version"),
        ({"files": [{}]}, "is not the manifest of an archive"),
        ({"schema": "9999_future"}, 'has the schema "9999_future", which is newer'),
        ({"name": "../../secret.parquet"}, "is not the name of a file of an archive"),
        ({"bytes": "many"}, "is not the manifest of an archive"),
        ({"schema": [1]}, "is not the manifest of an archive"),
    ],
)
def test_a_wrong_manifest_is_refused(data: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    manifest = next((tmp_path / "archive").glob("*/manifest.json"))
    content = json.loads(manifest.read_bytes())
    part = content if change.keys() & content.keys() else content["files"][0]
    part |= change
    manifest.write_text(json.dumps(content))
    with pytest.raises(Misconfigured, match=message):
        ArchiveImport(str(tmp_path / "archive"))


def test_the_table_of_a_manifest_is_not_used(data: Path, tmp_path: Path) -> None:
    # A foreign manifest must not run SQL.
    for manifest in (tmp_path / "archive").glob("*/manifest.json"):
        content = json.loads(manifest.read_bytes())
        for entry in content["files"]:
            entry["table"] = f"event; copy (select 1) to '{tmp_path / 'stolen'}'; truncate event"
        manifest.write_text(json.dumps(content))
    counts = import_archive(tmp_path / "new", str(tmp_path / "archive"))
    assert (counts.accepted, counts.rejected) == (6, 0)
    assert not (tmp_path / "stolen").exists()


def test_rows_are_numbered_through_all_files(data: Path, tmp_path: Path) -> None:
    archive = ArchiveImport(str(tmp_path / "archive"))
    numbers = [number for number, _ in archive.lines("svc")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(archive.files) > 2


def test_what_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"has no manifest\.json, so it is not an archive"):
        ArchiveImport(str(tmp_path))
    (tmp_path / "2026-08").mkdir()
    file = tmp_path / "2026-08" / f"event-{1:019d}-{2:019d}.parquet"
    file.touch()
    with pytest.raises(Misconfigured, match="is not in the manifest of its folder"):
        ArchiveImport(str(file))
