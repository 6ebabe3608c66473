"""Tables on stdout."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import typer

from embedsink.cli.output import escape_control, print_message

# The width of a time with microseconds, and the gap. Longer texts may be cut to this width.
TEXT_WIDTH_MIN = 31
# The width of a table that goes to a file or a pipe: no cell is cut or wrapped.
UNLIMITED_WIDTH = 100_000
_COLUMN_GAP = 3
# Integers that identify something. They are shown without thousands separators.
_IDENTIFIERS = ("ingest_seq", "deployment")


@dataclass(frozen=True)
class _Column:
    """A column of a table, with its cells as text."""

    name: str
    cells: list[str]
    is_numeric: bool

    @cached_property
    def full_width(self) -> int:
        """The width in characters at which no cell is cut, with the gap to the next column."""
        from rich.cells import cell_len

        # No terminal is wider, so a longer text never fits. Measuring it would be slow.
        measured_characters_max = 1_000
        texts = [self.name, *self.cells]
        return max(cell_len(text[:measured_characters_max]) for text in texts) + _COLUMN_GAP

    @property
    def width_min(self) -> int:
        """The least width in characters, with the gap to the next column. Numbers and the name are never cut."""
        if self.is_numeric:
            return self.full_width
        name_width = len(self.name) + _COLUMN_GAP
        return min(self.full_width, max(name_width, TEXT_WIDTH_MIN))


def print_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with these column names. On a terminal, long cells are wrapped."""
    width = terminal_width()
    _print_columns(_to_columns(names, list(rows)), width=UNLIMITED_WIDTH if width is None else width)


def print_rows(names: Sequence[str], rows: Sequence[Sequence[object]], *, width: int) -> None:
    """Print the rows of a report on a terminal of this width, with one line for each row.

    Long values are truncated, and as many columns are printed as then fit. A single row that does not fit is printed
    with a line for each column.
    """
    columns = _to_columns(names, rows)
    if len(rows) == 1 and _uncut_width(columns) > width:
        columns = _transpose_row(columns)
    visible_columns = _columns_that_fit(columns, width)
    hidden_columns = columns[len(visible_columns) :]
    _print_columns(visible_columns, width=width, is_single_line=True)
    if hidden_columns:
        hidden_names = ", ".join(column.name for column in hidden_columns)
        print_message(f"Columns that do not fit: {hidden_names}. Select columns with --columns, or use --format json.")
    if _uncut_width(visible_columns) > width:
        print_message("Long values are truncated. Use --format json to see them in full.")


def _to_columns(names: Sequence[str], rows: Sequence[Sequence[object]]) -> list[_Column]:
    """Convert rows to columns, with each value as text."""
    columns = []
    for index, name in enumerate(names):
        values = [row[index] for row in rows]
        columns.append(_Column(name, [format_value(value, name) for value in values], _is_numeric(values)))
    return columns


def _transpose_row(columns: Sequence[_Column]) -> list[_Column]:
    """Convert a table with one row to a table with two columns: the names and the values of the given columns."""
    names = [column.name for column in columns]
    values = [column.cells[0] for column in columns]
    return [_Column("column", names, is_numeric=False), _Column("value", values, is_numeric=False)]


def _columns_that_fit(columns: Sequence[_Column], width: int) -> list[_Column]:
    """Return as many of the first columns as fit if each has its least width. Return at least one column."""
    fitting = list(columns)
    while len(fitting) > 1 and sum(column.width_min for column in fitting) > width:
        fitting.pop()
    return fitting


def _uncut_width(columns: Iterable[_Column]) -> int:
    """Return the width in characters at which no cell of these columns is cut."""
    return sum(column.full_width for column in columns)


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or None if stdout is not a terminal."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else None


def _print_columns(columns: Sequence[_Column], *, width: int, is_single_line: bool = False) -> None:
    """Print columns as a table. Long values are truncated if `is_single_line` is set, and wrapped otherwise."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            Text(escape_control(column.name)),
            justify="right" if column.is_numeric else "left",
            overflow="ellipsis" if is_single_line else "fold",
            # rich shrinks only columns without `no_wrap`, so numbers are never cut.
            no_wrap=is_single_line and column.is_numeric,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        if is_single_line:
            # The terminal cuts a single line at its width anyway, and rich is slow with long texts.
            table.add_row(*(Text(cell[:width], no_wrap=True) for cell in row))
        else:
            table.add_row(*map(Text, row))
    console = Console(width=width)
    with console.capture() as output:
        console.print(table)
    _, *lines, _ = output.get().splitlines()  # rich adds an empty line before and after a table.
    typer.echo("\n".join(line.rstrip() for line in lines))


def format_value(value: object, column: str) -> str:
    """Return a value as one line of text, with control characters escaped. A missing value is empty.

    `column` is the name of the column. Identifiers, such as deployments, have no thousands separators.
    """
    if _is_missing(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and column not in _IDENTIFIERS:
        return f"{value:,}"
    return escape_control(value).replace("\n", "\\n")


def _is_numeric(values: Iterable[object]) -> bool:
    """Return whether a column has numbers or booleans, and nothing else apart from missing values."""
    present = [value for value in values if not _is_missing(value)]
    return len(present) > 0 and all(isinstance(value, int | float) for value in present)


def _is_missing(value: object) -> bool:
    return value is None or value != value  # NaN differs from itself.
