"""Tables on stdout."""

from collections.abc import Iterable, Sequence

import typer

from embedsink.cli.output import print_message, strip_control

# The width of a time with microseconds and the gap. It also shows enough of a text to recognise it.
TEXT_WIDTH_MIN = 31
# The width of a table that goes to a file or a pipe: no cell is cut or wrapped.
UNLIMITED_WIDTH = 100_000
_COLUMN_GAP = 3
# Integers that identify something. They are shown without thousands separators.
_IDENTIFIERS = ("ingest_seq", "deployment")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. On a terminal, long cells are wrapped."""
    rows = list(rows)
    _print(columns, _cells(columns, rows), _numeric(columns, rows), width=terminal_width() or UNLIMITED_WIDTH)


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], *, width: int) -> None:
    """Print the rows of a report on a terminal, one line each.

    As many columns are shown as fit, and long texts are cut. A single row that does not fit is shown as a list of its
    columns.

    Args:
        columns: the names.
        rows: at least one.
        width: of the terminal, in characters.
    """
    cells, numeric = _cells(columns, rows), _numeric(columns, rows)
    full = _full_widths(columns, cells)
    if len(rows) == 1 and sum(full) > width:
        cells, columns, numeric = list(zip(columns, cells[0], strict=True)), ("column", "value"), [False, False]
        full = _full_widths(columns, cells)
    least = [
        most if is_number else min(most, max(len(column) + _COLUMN_GAP, TEXT_WIDTH_MIN))
        for column, most, is_number in zip(columns, full, numeric, strict=True)
    ]
    count = len(columns)
    while count > 1 and sum(least[:count]) > width:
        count -= 1
    _print(columns[:count], [row[:count] for row in cells], numeric, width=width, is_single_line=True)
    if hidden := columns[count:]:
        print_message(f"Hidden for lack of space: {', '.join(hidden)}. Choose with --columns, or use --format json.")
    if sum(full[:count]) > width:
        print_message("Long texts are cut. --format json shows them completely.")


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or None if stdout is not a terminal."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else None


def _print(
    columns: Sequence[str],
    cells: Iterable[Sequence[str]],
    numeric: Sequence[bool],
    *,
    width: int,
    is_single_line: bool = False,
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, is_number in zip(columns, numeric, strict=False):
        table.add_column(
            Text(strip_control(column)),
            justify="right" if is_number else "left",
            overflow="ellipsis" if is_single_line else "fold",
            # Numbers are never cut: rich shrinks the other columns.
            no_wrap=is_single_line and is_number,
        )
    for row in cells:
        table.add_row(*(Text(cell[:width], no_wrap=True) if is_single_line else Text(cell) for cell in row))
    console = Console(width=width)
    with console.capture() as output:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in output.get().splitlines() if line.strip()))


def _cells(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Sequence[str]]:
    return [[format_value(value, column) for value, column in zip(row, columns, strict=True)] for row in rows]


def format_value(value: object, column: str) -> str:
    """Return a value as one line of text."""
    if _is_missing(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and column not in _IDENTIFIERS:
        return f"{value:,}"
    return strip_control(value).replace("\n", "\\n")


def _numeric(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[bool]:
    return [_is_numeric([row[index] for row in rows]) for index in range(len(columns))]


def _is_numeric(values: Iterable[object]) -> bool:
    known = [value for value in values if not _is_missing(value)]
    return bool(known) and all(isinstance(value, int | float) for value in known)


def _is_missing(value: object) -> bool:
    return value is None or value != value  # NaN differs from itself.


def _full_widths(columns: Sequence[str], cells: Iterable[Sequence[str]]) -> list[int]:
    """Return the width of each column with its gap."""
    from rich.cells import cell_len

    # A longer text is cut anyway, and measuring is slow.
    return [max(cell_len(text[:1_000]) for text in texts) + _COLUMN_GAP for texts in zip(columns, *cells, strict=True)]
