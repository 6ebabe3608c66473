"""Whether views heed what sessions' `ready` events say of deployment and tenant (docs/decisions/0014).

Looking for that takes longer to plan than a short report takes to read, and where senders name both themselves there is
nothing to find. So two macros have a plain form, which is the right one until an event lacks something.
"""

import duckdb

from embedsink.sqlfiles import read_sql


def heed_ready_if_needed(connection: duckdb.DuckDBPyConnection) -> bool:
    """Let views heed `ready` events if an event lacks what one may supply. Whether it is so.

    Args:
        connection: to the database, in the transaction that loads events: nobody sees these with the plain form.
    """
    is_needed = _is_needed(connection)
    if is_needed:
        _make(connection, "macros")
    return is_needed


def choose_form(connection: duckdb.DuckDBPyConnection) -> bool:
    """Let views heed `ready` events, or not, as the events need it that are there. Whether they do.

    Args:
        connection: to the database, in a transaction.
    """
    is_needed = _is_needed(connection)
    _make(connection, "macros" if is_needed else "macros/plain")
    return is_needed


def heeds_ready(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether views do now."""
    defined = "select macro_definition from duckdb_functions() where function_name = 'event_between'"
    return any("session_context_between" in sql for (sql,) in connection.execute(defined).fetchall())


def _is_needed(connection: duckdb.DuckDBPyConnection) -> bool:
    found = connection.execute(read_sql("load")["lacking"]).fetchone()
    return bool(found and found[0])


def _make(connection: duckdb.DuckDBPyConnection, folder: str) -> None:
    for name in read_sql("macros/plain"):
        connection.execute(read_sql(folder)[name])
