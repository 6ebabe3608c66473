"""The file formats of rows: the same rows in each, with the types of each format."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import duckdb
import nanoarrow
import pytest
from nanoarrow.ipc import InputStream

from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import EVENT_VIEW, report_names, type_of, visible_columns
from embedsink.reports.csv_writer import CsvOptions
from embedsink.reports.format import Format
from embedsink.reports.format_writers import write_rows
from embedsink.store import arrow
from embedsink.store.database import Store
from embedsink.store.query import SelectQuery
from embedsink.store.reader import ROWS_OF_BATCH, Reader
from tests.support.given import write_segment
from tests.support.stores import open_store

GIVEN: list[dict[str, object]] = [
    {"type": "ready", "at": "09:59", "embedTenant": "acme", "deploymentId": 1},
    {"type": "view", "title": 'a "title", in\r\ntwo lines', "unknown": {"nested": [1, None]}},
    {"type": "view", "at": "10:00:00.123", "viewer": None, "surface": "app"},
    {"type": "download", "rowCount": 7},
    {"type": "drilldown", "member": "=1+1", "value": {"a": 1}},
    {"type": "ai-query", "query": "why?"},
    {"type": "ai-query", "query": "why?", "status": "completed", "at": "10:01"},
    {"type": "error", "message": "-1 is no date", "fatal": True},
    {"lost": {"queue_overflow": 3}},
]
NAMES = [*report_names(), EVENT_VIEW]
# The parsers of CSV cells, by the type of the column.
PARSERS: dict[str, Callable[[str], Any]] = {
    "integer": int,
    "number": float,
    "boolean": {"true": True, "false": False}.__getitem__,
    "timestamp": lambda text: naive(datetime.fromisoformat(text)),
    "date": date.fromisoformat,
    "json": json.loads,
    "string": str,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    store = open_store(folder / "store.duckdb")
    store.load(inspect(write_segment(folder, GIVEN)))
    yield store
    store.close()


@pytest.fixture
def reader(store: Store) -> Iterator[Reader]:
    with store.reader(EVERYTHING.variables()) as reader:
        yield reader


def written(reader: Reader, selection: SelectQuery, format: Format, csv: CsvOptions | None = None) -> bytes:
    with TemporaryFile() as file:
        write_rows(reader, selection, file, format, csv=csv or CsvOptions())
        file.seek(0)
        return file.read()


def naive(moment: datetime) -> datetime:
    assert moment.utcoffset() in (None, timedelta(0))
    return moment.replace(tzinfo=None)


def selection_of(reader: Reader, view: str) -> SelectQuery:
    return SelectQuery(view, visible_columns(reader, view))


def arrow_rows(content: bytes) -> tuple[Any, list[tuple[Any, ...]]]:
    with InputStream.from_readable(io.BytesIO(content)) as stream:
        array = nanoarrow.Array(nanoarrow.c_array_stream(stream))
    return array.schema, list(array.iter_tuples())


def parquet(content: bytes, folder: Path) -> duckdb.DuckDBPyRelation:
    (folder / "rows.parquet").write_bytes(content)
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    return connection.from_parquet(str(folder / "rows.parquet"))


@pytest.mark.parametrize("name", NAMES)
def test_each_format_has_the_same_rows(name: str, reader: Reader, tmp_path: Path) -> None:
    selection = selection_of(reader, name)
    names = list(selection.columns or ())
    listed = json.loads(written(reader, selection, Format.JSON))
    assert [list(row) for row in listed] == [names] * len(listed)
    lines = [json.loads(line) for line in written(reader, selection, Format.NDJSON).splitlines()]
    assert lines == [{name: value for name, value in row.items() if value is not None} for row in listed]
    text = written(reader, selection, Format.CSV, CsvOptions(guard=False)).decode()
    header, *cells = csv.reader(io.StringIO(text, newline=""))
    assert header == names
    assert len(cells) == len(listed)
    stored = parquet(written(reader, selection, Format.PARQUET), tmp_path)
    assert stored.columns == names
    assert len(stored) == len(listed)
    schema, tuples = arrow_rows(written(reader, selection, Format.ARROW))
    assert [field.name for field in schema.fields] == names
    assert len(tuples) == len(listed)
    types = [type_of(column) for column in reader.selected_columns(selection)]
    # Without time zones, for which DuckDB would import pytz.
    bare = ("make_timestamp(epoch_us({}))" if type_ == "timestamp" else "{}" for type_ in types)
    in_parquet = stored.project(", ".join(map(str.format, bare, names))).fetchall()
    for index, (name_of, type_) in enumerate(zip(names, types, strict=True)):
        as_json = [row[name_of] for row in listed]
        if type_ in ("timestamp", "date"):
            as_json = [value and PARSERS[type_](value) for value in as_json]
        assert [cell[index] == "" for cell in cells] == [value is None for value in as_json]
        assert [PARSERS[type_](cell[index]) if cell[index] else None for cell in cells] == as_json
        for values in ([one[index] for one in in_parquet], [one[index] for one in tuples]):
            parsed = [json.loads(value) if type_ == "json" and value else value for value in values]
            assert [naive(value) if isinstance(value, datetime) else value for value in parsed] == as_json


@pytest.mark.parametrize("name", NAMES)
def test_times_are_marked_as_utc(name: str, reader: Reader, tmp_path: Path) -> None:
    selection = selection_of(reader, name)
    times = [column.name for column in reader.selected_columns(selection) if column.type == "TIMESTAMP"]
    stored = parquet(written(reader, selection, Format.PARQUET), tmp_path)
    types = dict(zip(stored.columns, map(str, stored.types), strict=True))
    schema, _ = arrow_rows(written(reader, selection, Format.ARROW))
    fields = {field.name: field for field in schema.fields}
    described = duckdb.connect().execute(
        "select name, logical_type from parquet_schema($1)", [str(tmp_path / "rows.parquet")]
    )
    logical = dict(described.fetchall())
    for time in times:
        assert types[time] == "TIMESTAMP WITH TIME ZONE"
        assert "isAdjustedToUTC=1" in logical[time]
        assert (fields[time].timezone, fields[time].unit.name) == ("UTC", "MICRO")
    assert not {"HUGEINT", "UUID", "JSON", "TIMESTAMP"} & set(types.values())


def test_an_empty_report_has_its_columns(store: Store, tmp_path: Path) -> None:
    with store.reader({**EVERYTHING.variables(), "tenant": "unknown"}) as reader:
        selection = selection_of(reader, "views")
        assert written(reader, selection, Format.JSON) == b"[]"
        assert written(reader, selection, Format.NDJSON) == b""
        assert written(reader, selection, Format.CSV).decode() == ",".join(selection.columns or ()) + "\r\n"
        assert parquet(written(reader, selection, Format.PARQUET), tmp_path).columns == list(selection.columns or ())
        schema, rows = arrow_rows(written(reader, selection, Format.ARROW))
        assert ([field.name for field in schema.fields], rows) == (list(selection.columns or ()), [])


def test_columns_have_the_requested_order(reader: Reader) -> None:
    selection = SelectQuery("views", ("view_count", "surface"))
    assert json.loads(written(reader, selection, Format.JSON)) == [
        {"view_count": 1, "surface": "app"},
        {"view_count": 1, "surface": "dashboard"},
    ]


def test_arrow_is_written_in_batches(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"create view many as select range as ingest_seq from range({2 * ROWS_OF_BATCH + 1})")
        with Reader(connection, EVERYTHING.variables(), resources=ExitStack()) as reader, TemporaryFile() as file:
            reader.write_arrow("many", file)
            file.seek(0)
            with InputStream.from_readable(file) as stream:
                lengths = [array.length for array in nanoarrow.c_array_stream(stream)]
    assert lengths == [ROWS_OF_BATCH, ROWS_OF_BATCH, 1]
    assert list(tmp_path.iterdir()) == []


def test_arrow_batches_have_no_old_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    stream_of = arrow.stream_of

    def counted(rows: object) -> object:
        sent.append(rows)
        return stream_of(rows)

    monkeypatch.setattr(arrow, "stream_of", counted)
    with duckdb.connect() as connection:
        connection.execute("create view one as select 1 as ingest_seq")
        with Reader(connection, EVERYTHING.variables(), resources=ExitStack()) as reader, TemporaryFile() as file:
            reader.write_arrow("one", file)
    assert len(sent) == 1  # tests/store/test_arrow.py tests what the function returns.


def test_a_json_column_is_nested_in_json(reader: Reader) -> None:
    rows = json.loads(written(reader, SelectQuery(EVENT_VIEW, ("type", "value", "extra")), Format.JSON))
    assert {"type": "drilldown", "value": {"a": 1}, "extra": None} in rows
    assert {"nested": [1, None]} in [(row["extra"] or {}).get("unknown") for row in rows]


def test_losses_by_reason_are_a_json_object(reader: Reader) -> None:
    rows = json.loads(written(reader, SelectQuery("completeness", ("lost_by_reason",)), Format.JSON))
    assert [row["lost_by_reason"] for row in rows] == [{"queue_overflow": 3}]
    assert written(reader, SelectQuery("completeness", ("lost_by_reason",)), Format.CSV).endswith(
        b'\r\n"{""queue_overflow"":3}"\r\n'
    )


def test_a_byte_order_mark_is_written_once_at_the_start(reader: Reader) -> None:
    selection = selection_of(reader, "views")
    plain, marked = (written(reader, selection, Format.CSV, CsvOptions(bom=bom)) for bom in (False, True))
    assert marked == b"\xef\xbb\xbf" + plain


def test_the_guard_applies_to_text_only(reader: Reader) -> None:
    selection = SelectQuery(EVENT_VIEW, ("member", "message", "row_count"))
    guarded = written(reader, selection, Format.CSV).decode()
    assert "'=1+1" in guarded
    assert "'-1 is no date" in guarded
    assert "\r\n=1+1" in written(reader, selection, Format.CSV, CsvOptions(guard=False)).decode()
