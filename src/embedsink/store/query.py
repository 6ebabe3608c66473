"""SELECT statements over views."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The temporary table of an expensive page.
TEMP_PAGE = "temp_page"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view: `type` in SQL's words, `comment` from `comment on column`."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class View:
    """A view in the catalog: `comment` from `comment on view`, and its columns in order."""

    comment: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """A SELECT over a view.

    Args:
        view: the name of the view; never text from a client.
        columns: columns in order; None for all.
        limit: the maximum number of rows; None for all.
        is_page: rows ordered by ingest_seq, after the variable `after` and up to the variable `up_to`.
        is_expensive: a page for which a few rows take as long as all. Its rows are stored temporarily.
        where: pairs of column and text; rows must have these values. Not for pages.
        is_by_ingest_seq: rows ordered by ingest_seq, as those of pages always are.
    """

    view: str
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    is_page: bool = False
    is_expensive: bool = False
    where: tuple[tuple[str, str], ...] = ()
    is_by_ingest_seq: bool = False


def select_sql(
    selection: SelectQuery, columns: Sequence[Column], expressions: Mapping[str, str]
) -> tuple[str, list[object]]:
    """Return the statement and its parameters.

    Args:
        selection: a selection of these columns.
        columns: the columns of the catalog, because identifiers can't be parameters.
        expressions: by the SQL type or the name of a column, the expression to select, with {} for the column.
    """
    selected = ", ".join(_column_sql(column, expressions) for column in columns)
    if selection.is_page:
        return f"select {selected} from {page_of(source_of(selection))}", []  # noqa: S608
    sql, parameters = f'select {selected} from "{selection.view}"', list[object]()  # noqa: S608
    for name, text in selection.where:
        parameters.append(text)
        # Compared as text, because DuckDB can't compare a number with other text.
        sql += f" {'where' if len(parameters) == 1 else 'and'} {_quoted(name)}::varchar = ${len(parameters)}"
    if selection.is_by_ingest_seq:
        sql += f" {by_ingest_seq(selection.view)}"
    if selection.limit is not None:
        parameters.append(selection.limit)
        sql += f" limit ${len(parameters)}"
    return sql, parameters


def _column_sql(column: Column, expressions: Mapping[str, str]) -> str:
    name = _quoted(column.name)
    expression = expressions.get(column.name) or expressions.get(column.type)
    return f"{expression.format(name)} as {name}" if expression else name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def source_of(selection: SelectQuery) -> str:
    return TEMP_PAGE if selection.is_expensive else selection.view


def page_of(view: str) -> str:
    return (
        f"\"{view}\" where (getvariable('after') is null or ingest_seq > getvariable('after')::bigint) "
        f"and (getvariable('up_to') is null or ingest_seq <= getvariable('up_to')::bigint) {by_ingest_seq(view)}"
    )


def by_ingest_seq(view: str) -> str:
    """Return an ORDER BY with the view's column, because the selected one may be null."""
    return f'order by "{view}".ingest_seq'
