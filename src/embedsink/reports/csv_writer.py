"""The CSV writer, with a guard against formulas in spreadsheets."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from unicodedata import category

import orjson

from embedsink.reports.catalog import type_of
from embedsink.reports.row_values import JSON_OPTIONS, Converter, convert_columns, selected_columns
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader

# A spreadsheet treats a cell that begins with one of these as a formula. Some also accept the full-width forms.
_FORMULA_SIGNS = frozenset("=+-@＝＋－＠")
# A spreadsheet may remove invisible characters first. They are the characters of these Unicode categories, and the
# other characters with the property Default_Ignorable_Code_Point.
_INVISIBLE_CATEGORIES = frozenset(("Cc", "Cf", "Zl", "Zp"))
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_CONTROLS = frozenset("\t\r\n")
# Where the comma is the decimal sign, spreadsheets separate cells by semicolons. They respect only quotation marks that
# begin a cell, so a semicolon within a field may end a cell.
_CELL_END = re.compile(r"[;|\t\r\n]")
# A field with one of these is quoted, so that it stays one cell with any separator.
_NEEDS_QUOTES = re.compile(r'[",;|\t\r\n]')


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """The options of a CSV file.

    Args:
        guard: whether text that a spreadsheet would treat as a formula gets an apostrophe.
        bom: whether the file begins with a byte-order mark, which Excel needs to detect UTF-8.
    """

    guard: bool = True
    bom: bool = False


DEFAULT_OPTIONS = CsvOptions()


def csv_chunks(reader: Reader, selection: str | SelectQuery, options: CsvOptions = DEFAULT_OPTIONS) -> Iterator[bytes]:
    """Yield rows as chunks of CSV (RFC 4180): a header line, times in ISO 8601 with Z, and empty fields for nulls.

    Args:
        reader: a reader with the scope.
        selection: a view, or a query on one. Check names from requests with `check_report_name` and `parse_columns`.
        options: see `CsvOptions`.
    """
    columns = selected_columns(reader, selection)
    bom = "\ufeff" if options.bom else ""
    header = ",".join([column.name for column in columns])
    yield f"{bom}{header}\r\n".encode()
    converters = [_converter_for(type_of(column), guard=options.guard) for column in columns]
    # A parser would skip an empty line, so a single empty field is quoted.
    empty_line = '""' if len(columns) == 1 else ""
    for rows in reader.rows(selection):
        lines = [",".join(fields) or empty_line for fields in convert_columns(rows, converters)]
        yield "".join([f"{line}\r\n" for line in lines]).encode()


def _converter_for(type_: str, *, guard: bool) -> Converter:
    """Return the function that converts values of a type (see `type_of`) to fields. `guard` is that of `CsvOptions`."""
    converters: dict[str, Converter] = {
        "integer": _number_field,
        "number": _number_field,
        "boolean": _boolean_field,
        "timestamp": _timestamp_field,
        "date": _date_field,
    }
    return converters.get(type_, _guarded_field if guard else _verbatim_field)


def _guarded_field(value: Any) -> str:
    """Return a value as a CSV field, with an apostrophe before each part that a spreadsheet could run as a formula."""
    text = _to_text(value)
    if not text:
        return ""

    def guard(cell_end: re.Match[str]) -> str:
        # A spreadsheet may begin a new cell after this character.
        return f"{cell_end[0]}'" if _begins_formula(text, cell_end.end()) else cell_end[0]

    guarded = _CELL_END.sub(guard, text)
    # Some spreadsheets also run formulas after a tab or a line break at the start.
    if text[0] in _CONTROLS or _begins_formula(text):
        guarded = f"'{guarded}"
    return _quoted(guarded)


def _begins_formula(text: str, start: int = 0) -> bool:
    """Return whether a formula begins at `start`.

    Quotation marks and invisible characters before its sign are skipped, because a spreadsheet may remove them.
    """
    for index in range(start, len(text)):
        character = text[index]
        if character in _FORMULA_SIGNS:
            return True
        if character != '"' and not _is_invisible(character):
            return False
    return False


def _is_invisible(character: str) -> bool:
    """Return whether a spreadsheet may remove this character before it reads the cell."""
    if character in _CONTROLS:
        return False  # A control may end a cell, and the next cell is checked separately.
    return category(character) in _INVISIBLE_CATEGORIES or _IGNORABLE.match(character) is not None


def _verbatim_field(value: Any) -> str:
    """Return the field of a text, without a guard against formulas."""
    return _quoted(_to_text(value))


def _quoted(text: str) -> str:
    """Return a text in quotation marks if it contains one, or a character that may separate cells or lines."""
    if not _NEEDS_QUOTES.search(text):
        return text
    escaped_text = text.replace('"', '""')
    return f'"{escaped_text}"'


def _to_text(value: Any) -> str:
    """Return a value as text: empty for None, JSON for lists and objects."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        return orjson.dumps(value, option=JSON_OPTIONS).decode()
    return str(value)


def _number_field(value: float | None) -> str:
    return "" if value is None else str(value)


def _boolean_field(value: bool | None) -> str:
    if value is None:
        return ""
    return "true" if value else "false"


def _timestamp_field(value: datetime | None) -> str:
    return "" if value is None else f"{value.isoformat()}Z"


def _date_field(value: date | None) -> str:
    return "" if value is None else value.isoformat()
