"""Whether views heed what sessions' `ready` events say of deployment and tenant (docs/decisions/0014).

Looking for that takes longer to plan than a short report takes to read, and where senders name both themselves there is
nothing to find. So two macros have a plain form, which is the right one until an event lacks something.
"""

from dataclasses import dataclass

import duckdb

from embedsink.store.sql_files import read_sql

_LINE_BITS = 32


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands in events. Once a `ready` is needed, views heed it."""

    lacks_deployment: bool
    names_deployment: bool
    lacks_tenant: bool
    names_tenant: bool

    @property
    def is_needed(self) -> bool:
        """Whether some event lacks what a `ready` may supply."""
        return (self.lacks_deployment and self.names_deployment) or (self.lacks_tenant and self.names_tenant)

    def with_more(self, more: "Seen") -> "Seen":
        """Of both."""
        return Seen(
            self.lacks_deployment or more.lacks_deployment,
            self.names_deployment or more.names_deployment,
            self.lacks_tenant or more.lacks_tenant,
            self.names_tenant or more.names_tenant,
        )


def heed_ready(connection: duckdb.DuckDBPyConnection, seen: Seen | None, *, loaded_from: int) -> Seen:
    """Let views heed `ready` events if an event lacks what one may supply.

    Args:
        connection: to the database, in the transaction that loads events: nobody sees these with the plain form.
        seen: of all that was there before; without, all is looked at.
        loaded_from: the lowest number of the segments that are loaded.

    Returns:
        What is true once the transaction is committed.
    """
    if seen is not None and seen.is_needed:
        return seen
    seen = see_all(connection) if seen is None else seen.with_more(_look(connection, loaded_from << _LINE_BITS))
    if seen.is_needed and not heeds_ready(connection):
        _make(connection, "macros")
    return seen


def see_all(connection: duckdb.DuckDBPyConnection) -> Seen:
    """Return what stands in all events. Where views heed `ready` already, nothing is read."""
    return Seen(True, True, True, True) if heeds_ready(connection) else _look(connection, 0)


def choose_form(connection: duckdb.DuckDBPyConnection) -> None:
    """Let views heed `ready` events, or not, as the events need it that are there; in a transaction."""
    _make(connection, "macros" if _look(connection, 0).is_needed else "macros/plain")


def heeds_ready(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether views do now."""
    defined = "select macro_definition from duckdb_functions() where function_name = 'event_between'"
    return any("session_context_between" in sql for (sql,) in connection.execute(defined).fetchall())


def _look(connection: duckdb.DuckDBPyConnection, first_arrival: int) -> Seen:
    connection.execute("set variable looked_from = $1", [first_arrival])
    found = connection.execute(read_sql("load")["lacking"]).fetchone() or (True,) * 4
    return Seen(*found)


def _make(connection: duckdb.DuckDBPyConnection, folder: str) -> None:
    for name in read_sql("macros/plain"):
        connection.execute(read_sql(folder)[name])
