"""The summary of a period: every report as CSV from one transaction, and a manifest."""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from embedsink.journal.segment import inspect
from embedsink.reports.catalog import report_names
from embedsink.reports.csv_writer import CsvOptions, csv_chunks
from embedsink.reports.scope import parse_scope
from embedsink.reports.zip_export import write_summary
from embedsink.store.database import Store
from embedsink.store.reader import Reader
from tests.support.given import write_segment
from tests.support.stores import open_store

GIVEN: list[dict[str, object]] = [
    {"type": "view"},
    {"type": "download", "rowCount": 7},
    {"type": "drilldown", "member": "=1+1"},
]
SCOPE = parse_scope({"since": "2026-11-01", "timezone": "Europe/Berlin", "interval": "week"}, deployments=["1"])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store.duckdb")
    store.load(inspect(write_segment(tmp_path, GIVEN)))
    yield store
    store.close()


def summary(reader: Reader, csv: CsvOptions | None = None) -> zipfile.ZipFile:
    file = io.BytesIO()
    write_summary(reader, SCOPE, file, csv=csv or CsvOptions())
    return zipfile.ZipFile(file)


def test_a_summary_has_every_report_as_csv(store: Store) -> None:
    with store.reader(SCOPE.variables()) as reader, reader.consistent():
        archive = summary(reader)
        assert archive.testzip() is None
        assert set(archive.namelist()) == {f"{name}.csv" for name in report_names()} | {"manifest.json"}
        for name in report_names():
            assert archive.read(f"{name}.csv") == b"".join(csv_chunks(reader, name))


def test_the_manifest_has_the_scope_and_describes_each_report(store: Store) -> None:
    with store.reader(SCOPE.variables()) as reader:
        manifest = json.loads(summary(reader).read("manifest.json"))
    assert manifest["scope"] == {
        "since": "2026-10-31T23:00:00Z",
        "until": None,
        "surface": None,
        "deployments": [1],
        "tenant": None,
        "vendor": None,
        "internal": None,
        "tenants": None,
        "interval": "week",
        "timezone": "Europe/Berlin",
        "by": [],
        "department": None,
        "group": None,
    }
    assert datetime.fromisoformat(manifest["writtenAt"]).tzinfo is not None
    assert [report["name"] for report in manifest["reports"]] == list(report_names())
    for report in manifest["reports"]:
        assert report["question"].endswith("?")
        assert report["file"] == f"{report['name']}.csv"


def test_csv_options_apply_to_a_summary(store: Store) -> None:
    with store.reader(SCOPE.variables()) as reader:
        assert b"'=1+1" in summary(reader).read("drilldowns.csv")
        plain = summary(reader, CsvOptions(guard=False, bom=True)).read("drilldowns.csv")
    assert plain.startswith(b"\xef\xbb\xbf")
    assert b",=1+1," in plain


def test_a_summary_excludes_events_that_are_loaded_meanwhile(store: Store, tmp_path: Path) -> None:
    def view_count(reader: Reader) -> int:
        text = summary(reader).read("views.csv").decode()
        return sum(int(row["view_count"]) for row in csv.DictReader(io.StringIO(text, newline="")))

    with store.reader(SCOPE.variables()) as reader, reader.consistent():
        assert view_count(reader) == 1
        store.load(inspect(write_segment(tmp_path, [{"type": "view"}], number=2)))
        store.checkpoint()  # A long read does not block the loader.
        assert view_count(reader) == 1
    with store.reader(SCOPE.variables()) as reader:
        assert view_count(reader) == 2
