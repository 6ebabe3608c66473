"""SELECT statements over views."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embedsink.store.view_catalog import Column

# The name of the temporary table for the rows of an expensive page.
TEMP_PAGE = "temp_page"


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """A SELECT over a view.

    Args:
        view: the name of the view; never text from a client.
        columns: columns in order; None for all.
        limit: the maximum number of rows; None for all.
        is_page: whether to select a page: rows after the variable `after` and up to `up_to`, ordered by ingest_seq.
        is_expensive: whether a page is stored in a temporary table, because a few rows take as long as all.
        where: pairs of a column and the text that its value must equal. Not for pages.
        is_by_ingest_seq: whether to order the rows by ingest_seq. Pages always are.
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
        selection: the view and the rows to select.
        columns: the columns to select. They come from the catalog, because identifiers can't be parameters.
        expressions: the expressions to select instead of columns, by the name or the SQL type of the column. An
            expression has {} for the column.
    """
    column_list = ", ".join(_column_sql(column, expressions) for column in columns)
    if selection.is_page:
        # SQL variables select the rows of a page, so there are no parameters.
        return f"select {column_list} from {page_from_clause(page_source(selection))}", []  # noqa: S608
    sql = f'select {column_list} from "{selection.view}"'  # noqa: S608
    parameters: list[object] = []
    for name, text in selection.where:
        parameters.append(text)
        keyword = "where" if len(parameters) == 1 else "and"
        # Compare as text: DuckDB raises an error if it compares a number with text that is not a number.
        sql += f" {keyword} {quoted(name)}::varchar = ${len(parameters)}"
    if selection.is_by_ingest_seq:
        sql += f" {order_by_ingest_seq(selection.view)}"
    if selection.limit is not None:
        parameters.append(selection.limit)
        sql += f" limit ${len(parameters)}"
    return sql, parameters


def _column_sql(column: Column, expressions: Mapping[str, str]) -> str:
    """Return the column for a SELECT, or its expression under the column's name."""
    quoted_name = quoted(column.name)
    for name_or_type in (column.name, column.type):
        if name_or_type in expressions:
            expression = expressions[name_or_type].format(quoted_name)
            return f"{expression} as {quoted_name}"
    return quoted_name


def quoted(name: str) -> str:
    """Return an identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def page_source(selection: SelectQuery) -> str:
    """Return the relation with the rows of a page: a temporary table for an expensive page, else the view."""
    return TEMP_PAGE if selection.is_expensive else selection.view


def page_from_clause(view: str) -> str:
    """Return the text after FROM for a page in order: the rows after the variable `after` and up to `up_to`."""
    return (
        f"\"{view}\" where (getvariable('after') is null or ingest_seq > getvariable('after')::bigint) "
        f"and (getvariable('up_to') is null or ingest_seq <= getvariable('up_to')::bigint) {order_by_ingest_seq(view)}"
    )


def order_by_ingest_seq(view: str) -> str:
    """Return an ORDER BY clause with the view before ingest_seq: scoped keys select null under the plain name."""
    return f'order by "{view}".ingest_seq'
