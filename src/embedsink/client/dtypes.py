"""The dtypes of report columns: the same from a data folder and from a server."""

from typing import Any

import pandas

_TIME: Any = "datetime64[us, UTC]"
_TYPES: dict[str, Any] = {
    "BIGINT": "Int64",
    "INTEGER": "Int64",
    "SMALLINT": "Int64",
    "TINYINT": "Int64",
    "UINTEGER": "Int64",
    "DOUBLE": "float64",
    "FLOAT": "float64",
    "BOOLEAN": "boolean",
    "VARCHAR": "string",
    "UUID": "string",
    "JSON": "string",
    "TIMESTAMP": _TIME,
    "TIMESTAMP WITH TIME ZONE": _TIME,
    "DATE": "datetime64[us]",
}
# The largest integer up to which every integer is exact as a float.
_EXACT_MAX = 2**53
# Columns with few values, in any report.
_CATEGORIES = (
    "surface",
    "payload_surface",
    "type",
    "format",
    "target",
    "status",
    "mode",
    "stage",
    "reason",
)


def with_dtypes(frame: pandas.DataFrame, types: list[str]) -> pandas.DataFrame:
    """Convert each column to the dtype of its SQL type, so that both sources agree, also without rows."""
    # By position, since names may repeat.
    columns = {
        index: _with_dtype(str(frame.columns[index]), frame.iloc[:, index], type_) for index, type_ in enumerate(types)
    }
    return pandas.DataFrame(columns, index=frame.index).set_axis(frame.columns, axis=1)


def _with_dtype(name: str, column: "pandas.Series[Any]", type_: str) -> "pandas.Series[Any]":
    converted: pandas.Series[Any] = column
    if type_ == "TIMESTAMP":
        converted = column.dt.tz_localize("UTC").astype(_TIME)
    elif type_ == "HUGEINT" and (column.isna() | (column.abs() <= _EXACT_MAX)).all():
        converted = column.astype("Int64")  # DuckDB sums integers to 128 bits, which pandas lacks.
    elif type_ == "VARCHAR" and name in _CATEGORIES:
        converted = column.astype("string").astype("category")
    elif type_ in _TYPES:
        converted = column.astype(_TYPES[type_])
    return converted
