"""pandas data frames from DuckDB's results, and SQL that reads data frames of the notebook."""

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
    sql_types = [str(sql_type) for _name, sql_type, *_ in result.description or ()]
    with warnings.catch_warnings():
        # DuckDB sets the time zone of a column in a way that pandas deprecates.
        warnings.filterwarnings("ignore", message="The inplace keyword")
        return result.df(), sql_types


def frame_of_parquet(path: Path) -> tuple["pandas.DataFrame", list[str]]:
    """Return the rows of a Parquet file as a data frame, and the SQL type of each column."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("set timezone = 'UTC'")  # The times of the frame have the time zone of the session.
        return frame_of(connection.execute("select * from read_parquet($1)", [str(path)]))


def execute_as(
    caller: FrameType | None, connection: duckdb.DuckDBPyConnection, sql: str, parameters: object
) -> duckdb.DuckDBPyConnection | None:
    """Execute SQL that may name variables of a Python frame, such as data frames of a notebook, as tables.

    Return the connection, which has the result of the last statement; None if the SQL is empty.

    Args:
        caller: the Python frame; None if the SQL may name no variables.
        connection: the connection that executes the SQL.
        sql: one or more statements.
        parameters: the parameters of the statements.
    """
    if caller is None:
        return connection.execute(sql, parameters)
    # DuckDB looks for variables only in the frame that calls it, so make the call from a frame with these variables.
    execute = partial(connection.execute, sql, parameters)
    local_variables = {**caller.f_locals, "_embedsink_execute": execute}
    result = eval("_embedsink_execute()", caller.f_globals, local_variables)  # noqa: S307
    return cast("duckdb.DuckDBPyConnection | None", result)
