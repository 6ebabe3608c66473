"""The writers of rows as CSV, JSON, NDJSON, Parquet and Arrow, a few thousand rows at a time."""

from collections.abc import Callable, Iterator
from tempfile import TemporaryFile
from typing import IO, Any

import orjson

from embedsink.reports.catalog import type_of
from embedsink.reports.csv_writer import CsvOptions, csv_chunks
from embedsink.reports.format import Format
from embedsink.reports.row_values import JSON_OPTIONS, convert_columns, selected_columns
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader


def write_rows(
    reader: Reader,
    selection: SelectQuery,
    file: IO[bytes],
    format: Format,
    *,
    csv: CsvOptions,
    scratch: Callable[[], IO[bytes]] = TemporaryFile,
) -> None:
    """Write rows to a file.

    Args:
        reader: a reader with the scope.
        selection: the query.
        file: a file with a file descriptor, open for writing.
        format: the file format.
        csv: the options of CSV; other formats ignore them.
        scratch: opens the temporary file that Arrow needs.
    """
    if format is Format.PARQUET:
        reader.write_parquet(selection, file)
    elif format is Format.ARROW:
        reader.write_arrow(selection, file, scratch=scratch)
    elif format is Format.CSV:
        file.writelines(csv_chunks(reader, selection, csv))
    elif format is Format.JSON:
        file.writelines(json_chunks(reader, selection))
    else:
        file.writelines(ndjson_chunks(reader, selection))


def json_chunks(reader: Reader, selection: str | SelectQuery) -> Iterator[bytes]:
    """Yield the chunks of a JSON array with each row as an object. Times are in ISO 8601 with Z."""
    is_first = True
    for objects in _row_objects(reader, selection):
        without_brackets = orjson.dumps(objects, option=JSON_OPTIONS)[len(b"[") : -len(b"]")]
        yield (b"[" if is_first else b",") + without_brackets
        is_first = False
    yield b"[]" if is_first else b"]"  # Without rows, nothing has opened the array.


def ndjson_chunks(reader: Reader, selection: str | SelectQuery) -> Iterator[bytes]:
    """Yield chunks of NDJSON: each row is a JSON object in a line, without nulls, because most columns are null."""
    for objects in _row_objects(reader, selection):
        yield b"".join([_ndjson_line(row) for row in objects])


def _ndjson_line(row: dict[str, Any]) -> bytes:
    """Return a row as a line of JSON without nulls."""
    without_nulls = {name: value for name, value in row.items() if value is not None}
    return orjson.dumps(without_nulls, option=JSON_OPTIONS | orjson.OPT_APPEND_NEWLINE)


def _row_objects(reader: Reader, selection: str | SelectQuery) -> Iterator[list[dict[str, Any]]]:
    """Yield lists of rows as dictionaries for orjson, a few thousand rows at a time."""
    columns = selected_columns(reader, selection)
    names = [column.name for column in columns]
    converters = [_json_fragment if type_of(column) == "json" else None for column in columns]
    for rows in reader.rows(selection):
        yield [dict(zip(names, row, strict=True)) for row in convert_columns(rows, converters)]


def _json_fragment(value: str | None) -> orjson.Fragment | None:
    """Return JSON text from the database as a value that orjson copies without parsing."""
    return None if value is None else orjson.Fragment(value)
