"""A temporary table with the rows of a view, for several queries that build on the view."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

# The variables on which the rows of such a view depend, apart from the period.
_SCOPE = ("deployments", "surface", "tenant", "now")


@dataclass(frozen=True, slots=True)
class TempTable:
    """The rows of a view in a table of one connection, and the variables at that time.

    The connection resolves temporary names first, so every view that reads this view reads the table.
    """

    view: str
    variables: Mapping[str, Any]

    def create(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the table and a temporary view over it, which selects the period by `occurred_at`."""
        connection.execute(f"create or replace temp table temp_{self.view} as from {self.view}")
        connection.execute(f"create temp view {self.view} as from temp_{self.view} where is_in_period(occurred_at)")

    def drop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Drop both, so that the name means the view again."""
        connection.execute(f"drop view temp.{self.view}")
        connection.execute(f"drop table temp.temp_{self.view}")

    def covers(self, variables: Mapping[str, Any]) -> bool:
        """Return whether the table has all rows of the view for these variables, and no others in their period."""
        since, until = variables["since"], variables["until"]
        first, end = self.variables["since"], self.variables["until"]
        return (
            all(variables[name] == self.variables[name] for name in _SCOPE)
            and (first is None or (since is not None and since >= first))
            and (end is None or (until is not None and until <= end))
        )
