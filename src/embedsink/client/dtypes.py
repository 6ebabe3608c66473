"""The pandas dtypes of report columns. A data folder and a server give the same dtypes."""

from typing import Any

import pandas

_TIME: Any = "datetime64[us, UTC]"
_DTYPES: dict[str, Any] = {
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
# A float represents each integer up to this one exactly.
_EXACT_INTEGER_MAX = 2**53
# Columns with few distinct values, in any report.
_CATEGORICAL_COLUMNS = (
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


def with_dtypes(frame: pandas.DataFrame, sql_types: list[str]) -> pandas.DataFrame:
    """Return a frame with each column converted to the dtype of its SQL type.

    A frame without rows gets the same dtypes as a frame with rows.
    """
    # Use positions as keys: the names of SQL columns may repeat.
    columns = {}
    for index, sql_type in enumerate(sql_types):
        columns[index] = _convert(frame.iloc[:, index], str(frame.columns[index]), sql_type)
    return pandas.DataFrame(columns, index=frame.index).set_axis(frame.columns, axis=1)


def _convert(column: "pandas.Series[Any]", name: str, sql_type: str) -> "pandas.Series[Any]":
    """Return a column with the dtype of its SQL type.

    A column is returned unchanged if its SQL type has no dtype, or if converting could change an integer.
    """
    converted: pandas.Series[Any] = column
    if sql_type == "TIMESTAMP":
        converted = column.dt.tz_localize("UTC").astype(_TIME)
    elif sql_type == "HUGEINT" and _is_exact_as_float(column):
        # DuckDB's sums of integers have 128 bits. pandas has no such type, so DuckDB converts the sums to floats.
        converted = column.astype("Int64")
    elif sql_type == "VARCHAR" and name in _CATEGORICAL_COLUMNS:
        converted = column.astype("string").astype("category")
    elif sql_type in _DTYPES:
        converted = column.astype(_DTYPES[sql_type])
    return converted


def _is_exact_as_float(column: "pandas.Series[Any]") -> bool:
    """Return whether floats represent all integers of a column exactly. Missing values don't count."""
    return bool((column.isna() | (column.abs() <= _EXACT_INTEGER_MAX)).all())
