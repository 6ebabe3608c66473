"""A view that a reader works out once, because several of its questions build on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

# What its rows depend on, but for the period.
_SCOPE = ("deployments", "surface", "tenant", "now")


@dataclass(frozen=True, slots=True)
class TempTable:
    """Rows of a view, in a table of one connection alone, and what the variables were.

    The connection finds what is of its own before what is everybody's; so do all views that build on this one.
    """

    view: str
    variables: Mapping[str, Any]

    def make(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Work it out, and stand in for it. Its rows are the same in every period that their `occurred_at` lies in."""
        connection.execute(f"create or replace temp table kept_{self.view} as from {self.view}")
        connection.execute(f"create temp view {self.view} as from kept_{self.view} where is_in_period(occurred_at)")

    def drop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Give way to the view itself."""
        connection.execute(f"drop view temp.{self.view}")
        connection.execute(f"drop table temp.kept_{self.view}")

    def holds(self, variables: Mapping[str, Any]) -> bool:
        """Whether it has all rows that the view would have for these variables, and no others in their period."""
        since, until = variables["since"], variables["until"]
        first, end = self.variables["since"], self.variables["until"]
        return (
            all(variables[name] == self.variables[name] for name in _SCOPE)
            and (first is None or (since is not None and since >= first))
            and (end is None or (until is not None and until <= end))
        )
