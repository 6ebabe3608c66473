"""A temporary table with the rows of a view, so that several queries compute the view only once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

# The variables on which the rows of such a view depend, besides the period.
_SCOPE_VARIABLES = ("deployments", "tenants", "surface", "tenant", "internal", "vendor", "now")


@dataclass(frozen=True, slots=True)
class TempTable:
    """A temporary table of one connection with the rows of a view, and a temporary view of the same name over it.

    DuckDB prefers temporary names. So every view that reads the view reads the table instead.

    Args:
        view: the name of the view.
        variables: the session variables when the table is created.
    """

    view: str
    variables: Mapping[str, Any]

    def create(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Store the rows of the view in a temporary table, and hide the view behind a temporary view of the same name.

        The temporary view selects rows of the table by `occurred_at`, because later queries may have a shorter period.
        """
        connection.execute(f"create or replace temp table temp_{self.view} as from {self.view}")
        connection.execute(f"create temp view {self.view} as from temp_{self.view} where is_in_period(occurred_at)")

    def drop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Drop the table and the temporary view, so that the name means the original view again."""
        connection.execute(f"drop view temp.{self.view}")
        connection.execute(f"drop table temp.temp_{self.view}")

    def covers(self, variables: Mapping[str, Any]) -> bool:
        """Return whether the table suffices for these variables: the same scope, and a period within that of the table.

        A bound of None means no limit.
        """
        is_same_scope = all(variables[name] == self.variables[name] for name in _SCOPE_VARIABLES)
        since, since_min = variables["since"], self.variables["since"]
        until, until_max = variables["until"], self.variables["until"]
        is_start_within = since_min is None or (since is not None and since >= since_min)
        is_end_within = until_max is None or (until is not None and until <= until_max)
        return is_same_scope and is_start_within and is_end_within
