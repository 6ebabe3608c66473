"""What is read of a view, and its SQL."""

from collections.abc import Mapping
from dataclasses import dataclass

# Where a page lies that was dear to find.
KEPT_PAGE = "kept_page"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view: `type` in SQL's words, `comment` from `comment on column`."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class View:
    """What the catalog has of a view: `comment` from `comment on view`, and its columns in order."""

    comment: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """What is read of a view.

    Args:
        view: its name; one of ours, never a sender's text.
        columns: these of its columns, in this order; None for all.
        limit: the first so many rows; None for all.
        is_page: in the order of ingest_seq, after the variable `after` and up to the variable `up_to`.
        is_expensive: of a page, whether a few rows take as long to find as all: it is found once, and kept meanwhile.
        where: only rows whose columns, written as text, are these; of what is no page.
        is_by_ingest_seq: in the order of ingest_seq; a page always is.
    """

    view: str
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    is_page: bool = False
    is_expensive: bool = False
    where: tuple[tuple[str, str], ...] = ()
    is_by_ingest_seq: bool = False


def column_sql(column: Column, expressions: Mapping[str, str]) -> str:
    name = '"' + column.name.replace('"', '""') + '"'
    expression = expressions.get(column.type)
    return f"{expression.format(name)} as {name}" if expression else name


def source_of(selection: SelectQuery) -> str:
    return KEPT_PAGE if selection.is_expensive else selection.view


def page_of(view: str) -> str:
    return (
        f"\"{view}\" where (getvariable('after') is null or ingest_seq > getvariable('after')::bigint) "
        f"and (getvariable('up_to') is null or ingest_seq <= getvariable('up_to')::bigint) {by_ingest_seq(view)}"
    )


def by_ingest_seq(view: str) -> str:
    """Return the clause that orders by the view's own column: one that is shown as null has the same name."""
    return f'order by "{view}".ingest_seq'
