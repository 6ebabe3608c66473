"""The writers of rows as CSV, JSON, NDJSON, Parquet and Arrow, a few thousand rows at a time."""

from collections.abc import Callable, Iterator
from tempfile import TemporaryFile
from typing import IO, Any

import orjson

from embedsink.reports.catalog import type_of
from embedsink.reports.csv_writer import CsvOptions, csv_chunks
from embedsink.reports.format import Format
from embedsink.reports.row_values import JSON_OPTIONS, Convert, convert_columns, selected_columns
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
        file: a file of the operating system, open for writing.
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
    else:
        file.writelines((json_chunks if format is Format.JSON else ndjson_chunks)(reader, selection))


def json_chunks(reader: Reader, selection: str | SelectQuery) -> Iterator[bytes]:
    """Yield rows as a JSON array of objects, with times in ISO 8601 with Z."""
    opening = b"["
    for objects in _objects(reader, selection):
        yield opening + orjson.dumps(objects, option=JSON_OPTIONS)[1:-1]
        opening = b","
    yield b"[]" if opening == b"[" else b"]"


def ndjson_chunks(reader: Reader, selection: str | SelectQuery) -> Iterator[bytes]:
    """Yield rows as JSON objects, one a line, without nulls: most columns of an event are null."""
    for objects in _objects(reader, selection):
        compact = ({name: value for name, value in row.items() if value is not None} for row in objects)
        yield b"".join([orjson.dumps(row, option=JSON_OPTIONS | orjson.OPT_APPEND_NEWLINE) for row in compact])


def _objects(reader: Reader, selection: str | SelectQuery) -> Iterator[list[dict[str, Any]]]:
    columns = selected_columns(reader, selection)
    names = [column.name for column in columns]
    converts: list[Convert | None] = [_fragment if type_of(column) == "json" else None for column in columns]
    for rows in reader.rows(selection):
        yield [dict(zip(names, row, strict=True)) for row in convert_columns(rows, converts)]


def _fragment(value: str | None) -> orjson.Fragment | None:
    return None if value is None else orjson.Fragment(value)
