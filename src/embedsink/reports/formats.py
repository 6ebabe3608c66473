"""How rows go out: CSV, JSON, NDJSON, Parquet and Arrow, some thousand at a time."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from tempfile import TemporaryFile
from typing import IO, Any
from unicodedata import category

import orjson

from embedsink.reports.catalog import type_of
from embedsink.reports.format import Format
from embedsink.store.query import Column, SelectQuery
from embedsink.store.reader import Reader

# What spreadsheets take for a formula when a cell begins with it; some read the full-width forms as the plain ones.
_FORMULA_SIGNS = frozenset("=+-@＝＋－＠")
# What can't be seen they may take away before they look: these categories of Unicode, and what it has of other
# categories under Default_Ignorable_Code_Point.
_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Zl", "Zp"))
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_CONTROLS = frozenset("\t\r\n")
# Where commas are for decimals, spreadsheets begin cells at semicolons, and heed only quotation marks that begin one.
_CELL_END = re.compile(r"[;|\t\r\n]")
# A field that holds one of these is quoted, so that it stays one cell whatever a program separates cells by.
_QUOTED = re.compile(r'[",;|\t\r\n]')
_JSON_OPTIONS = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Style:
    """What is special about a CSV.

    Args:
        guard: put an apostrophe before text that a spreadsheet would take for a formula.
        bom: begin with a byte-order mark, without which Excel does not read UTF-8.
    """

    guard: bool = True
    bom: bool = False


def write_rows(
    reader: Reader,
    selection: SelectQuery,
    file: IO[bytes],
    format: Format,
    *,
    style: Style,
    scratch: Callable[[], IO[bytes]] = TemporaryFile,
) -> None:
    """Write rows to a file of the system that is open for writing; `scratch` makes another for Arrow."""
    if format is Format.PARQUET:
        reader.write_parquet(selection, file)
    elif format is Format.ARROW:
        reader.write_arrow(selection, file, scratch=scratch)
    elif format is Format.CSV:
        file.writelines(csv_chunks(reader, selection, guard=style.guard, bom=style.bom))
    else:
        file.writelines((json_chunks if format is Format.JSON else ndjson_chunks)(reader, selection))


def csv_chunks(
    reader: Reader, selection: str | SelectQuery, *, guard: bool = True, bom: bool = False
) -> Iterator[bytes]:
    """Rows as CSV (RFC 4180): one header line, times in ISO 8601 with Z, null as nothing.

    Args:
        reader: with the scope.
        selection: of one of our views; check a sender's word with `known_name` and `known_columns`.
        guard, bom: see `Style`.
    """
    columns = _columns(reader, selection)
    mark = "\ufeff" if bom else ""
    yield f"{mark}{','.join([column.name for column in columns])}\r\n".encode()
    converts: list[Convert | None] = [_csv_convert(type_of(column), guard) for column in columns]
    # A line with nothing in it would be no row.
    nothing = '""' if len(columns) == 1 else ""
    for rows in reader.rows(selection):
        yield "".join([f"{','.join(fields) or nothing}\r\n" for fields in _converted(rows, converts)]).encode()


def json_chunks(reader: Reader, selection: str | SelectQuery) -> Iterator[bytes]:
    """Rows as a JSON array of objects, times in ISO 8601 with Z."""
    opening = b"["
    for objects in _objects(reader, selection):
        yield opening + orjson.dumps(objects, option=_JSON_OPTIONS)[1:-1]
        opening = b","
    yield b"[]" if opening == b"[" else b"]"


def ndjson_chunks(reader: Reader, selection: str | SelectQuery) -> Iterator[bytes]:
    """Rows as JSON objects, one a line, nulls left out: of an event's many columns most are null."""
    for objects in _objects(reader, selection):
        told = ({name: value for name, value in one.items() if value is not None} for one in objects)
        yield b"".join([orjson.dumps(one, option=_JSON_OPTIONS | orjson.OPT_APPEND_NEWLINE) for one in told])


def _objects(reader: Reader, selection: str | SelectQuery) -> Iterator[list[dict[str, Any]]]:
    columns = _columns(reader, selection)
    names = [column.name for column in columns]
    converts: list[Convert | None] = [_fragment if type_of(column) == "json" else None for column in columns]
    for rows in reader.rows(selection):
        yield [dict(zip(names, row, strict=True)) for row in _converted(rows, converts)]


def _columns(reader: Reader, selection: str | SelectQuery) -> list[Column]:
    return reader.selected(selection if isinstance(selection, SelectQuery) else SelectQuery(selection))


def _converted(rows: list[tuple[Any, ...]], converts: list[Convert | None]) -> Iterator[tuple[Any, ...]]:
    """The rows with their columns converted, where there is anything to convert: by column, because rows are many."""
    by_column = zip(zip(*rows, strict=True), converts, strict=True)
    converted = (values if convert is None else map(convert, values) for values, convert in by_column)
    return zip(*converted, strict=True)


def _csv_convert(type_: str, guard: bool) -> Convert:
    converts: dict[str, Convert] = {
        "integer": _number,
        "number": _number,
        "boolean": _truth,
        "timestamp": _instant,
        "date": _day,
    }
    return converts.get(type_, _guarded if guard else _plain)


def _guarded(value: Any) -> str:
    text = _text(value)
    if not text:
        return ""
    is_formula = text[0] in _CONTROLS or _begins_formula(text)
    if _CELL_END.search(text):
        text = _CELL_END.sub(lambda end: f"{end[0]}'" if _begins_formula(text, end.end()) else end[0], text)
    return _field(f"'{text}" if is_formula else text)


def _begins_formula(text: str, place: int = 0) -> bool:
    """Whether a cell that begins there would be a formula, also after quotation marks or what can't be seen."""
    while place < len(text):
        one = text[place]
        if one in _FORMULA_SIGNS:
            return True
        if one != '"' and not _is_unseen(one):
            return False
        place += 1
    return False


def _is_unseen(one: str) -> bool:
    # Where a cell may end, the next one is looked at by itself.
    return (category(one) in _UNSEEN_CATEGORIES and one not in _CONTROLS) or _IGNORABLE.match(one) is not None


def _plain(value: Any) -> str:
    return _field(_text(value))


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return orjson.dumps(value, option=_JSON_OPTIONS).decode() if isinstance(value, list | dict) else str(value)


def _number(value: float | None) -> str:
    return "" if value is None else str(value)


def _truth(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"


def _instant(value: datetime | None) -> str:
    return "" if value is None else f"{value.isoformat()}Z"


def _day(value: date | None) -> str:
    return "" if value is None else value.isoformat()


def _fragment(value: str | None) -> orjson.Fragment | None:
    return None if value is None else orjson.Fragment(value)
