"""The conversion of rows column by column, which is faster than row by row."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader
from embedsink.store.view_catalog import Column

# Times in ISO 8601 with Z.
JSON_OPTIONS = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z

Convert = Callable[[Any], Any]


def selected_columns(reader: Reader, selection: str | SelectQuery) -> list[Column]:
    """Return the columns of a view or a query."""
    return reader.selected_columns(selection if isinstance(selection, SelectQuery) else SelectQuery(selection))


def convert_columns(rows: list[tuple[Any, ...]], converts: list[Convert | None]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with each column converted; a column without a function stays as it is."""
    by_column = zip(zip(*rows, strict=True), converts, strict=True)
    converted = (values if convert is None else map(convert, values) for values, convert in by_column)
    return zip(*converted, strict=True)
