"""Data frames from DuckDB, and SQL that reads the frames of its caller."""

import warnings
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, cast

import duckdb

if TYPE_CHECKING:
    import pandas


def frame_of(result: duckdb.DuckDBPyConnection) -> tuple["pandas.DataFrame", list[str]]:
    """Return the rows of a result as a data frame, and the SQL type of each column."""
    types = [str(column[1]) for column in result.description or ()]
    with warnings.catch_warnings():
        # DuckDB sets the zone of times in a way that pandas deprecates.
        warnings.filterwarnings("ignore", message="The inplace keyword")
        return result.df(), types


def frame_of_parquet(path: Path) -> tuple["pandas.DataFrame", list[str]]:
    """Read a file of `Reader.write_parquet`, and return what `Reader.frame` returns."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("set timezone = 'UTC'")
        return frame_of(connection.execute("select * from read_parquet($1)", [str(path)]))


def execute_as(
    caller: FrameType | None, connection: duckdb.DuckDBPyConnection, sql: str, parameters: object
) -> duckdb.DuckDBPyConnection | None:
    """Execute SQL so that DuckDB finds missing tables among the variables of `caller`."""
    if caller is None:
        return connection.execute(sql, parameters)
    # DuckDB reads only the variables of the frame that calls it, so the call is made with these variables.
    execute = partial(connection.execute, sql, parameters)
    result = eval("_embedsink_execute()", caller.f_globals, {**caller.f_locals, "_embedsink_execute": execute})  # noqa: S307
    return cast("duckdb.DuckDBPyConnection | None", result)
