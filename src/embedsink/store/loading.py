"""Journal segments to rows: the files of `sql/load/`, one after the other."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from embedsink.segment import Segment
from embedsink.sqlfiles import read_sql


@dataclass(frozen=True, slots=True)
class _Step:
    """A file of `sql/load/`, and what has to have rows for it to be worth its time: most read the segment once more."""

    name: str
    only_with: str | None = None


_STEPS = (
    _Step("line"),
    _Step("incoming"),
    _Step("arrived"),
    _Step("repeated"),
    _Step("event", only_with="arrived where kind = 'event'"),
    _Step("action", only_with="arrived where kind = 'action'"),
    _Step("conflict", only_with="repeated"),
    _Step("rejected", only_with="arrived where kind = 'quarantined'"),
    _Step("conflicting", only_with="conflict"),
    _Step("quarantine", only_with="rejected"),
    _Step("replayed", only_with="arrived where kind = 'replayed'"),
    _Step("loss", only_with="arrived where kind = 'lost'"),
    _Step("sync", only_with="arrived where kind = 'sync'"),
    _Step("loaded_segment"),
)


def load_rows(connection: duckdb.DuckDBPyConnection) -> None:
    """Insert the rows of the segments that the variable `segments` describes, and their names.

    Args:
        connection: to the database, in a transaction, with the variables that `sql/load/` reads.
    """
    for step in _STEPS:
        if step.only_with is None or _has_rows(connection, step.only_with):
            connection.execute(read_sql("load")[step.name])


def described(segments: Sequence[Segment]) -> list[dict[str, object]]:
    """What `sql/load/` has to know of some segments, in their order."""
    return list(map(_described, segments, _lines_before(segments)))


def _described(segment: Segment, lines_before: int) -> dict[str, object]:
    """What sql/load says of a segment; `lines_before` is how many lines the segments have that are read before it."""
    return {
        "path": str(segment.path),
        "name": segment.path.name,
        "number": segment.number,
        "byte_count": segment.byte_count,
        "lines_before": lines_before,
    }


def _lines_before(segments: Sequence[Segment]) -> list[int]:
    return list(itertools.accumulate((segment.count_lines() for segment in segments[:-1]), initial=0))


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    return connection.execute(f"select 1 from {table} limit 1").fetchone() is not None  # noqa: S608  a step's own
