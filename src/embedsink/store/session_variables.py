"""Session variables of a connection to DuckDB. The SQL files read them with `getvariable`."""

from collections.abc import Mapping

import duckdb


def set_variables(connection: duckdb.DuckDBPyConnection, variables: Mapping[str, object]) -> None:
    """Set session variables. Their names are inserted into SQL, so they must not come from a client."""
    for name, value in variables.items():
        connection.execute(f"set variable {name} = $1", [value])
