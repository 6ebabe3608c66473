"""What commands print: results on stdout, everything else on stderr, and nothing that a terminal would obey."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NoReturn

import typer

FAILED = 1
WRONG_USE = 2
COLUMNS_MAX = 100_000
# Integers that name something, and count nothing: they are shown as they are typed.
_NAMES = ("ingest_seq", "deployment")


def say(text: str) -> None:
    """A line for the person at the terminal: on stderr, so that stdout stays the result alone."""
    typer.echo(text, err=True)


def fail(error: Exception | str, *, code: int = FAILED) -> NoReturn:
    """End the program with one red sentence."""
    typer.secho(strip_control(error), fg=typer.colors.RED, err=True)
    sys.exit(code)


def strip_control(value: object) -> str:
    """A value as text in which no character commands a terminal: a title may hold an escape sequence."""
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in str(value))


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """A draft that becomes the file at the end, so that half of it never looks like a whole one."""
    part = file.with_name(f"{file.name}.part")
    try:
        yield part
        part.replace(file)
    except OSError as error:
        fail(f"{file}: {error.strerror}. Choose another place.")
    finally:
        part.unlink(missing_ok=True)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: as wide as the terminal, and as wide as it needs where there is none."""
    listed = list(rows)
    numeric = [are_numbers([row[place] for row in listed]) for place in range(len(columns))]
    cells = [[shown(value, column) for value, column in zip(row, columns, strict=True)] for row in listed]
    printed(columns, cells, numeric, width=terminal_width() or COLUMNS_MAX)


def terminal_width() -> int | None:
    """How many characters stand side by side on the terminal; None where results go elsewhere."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else None


def printed(
    columns: Sequence[str],
    cells: Iterable[Sequence[str]],
    numeric: Sequence[bool],
    *,
    widths: Sequence[int] | None = None,
    width: int,
) -> None:
    """Print texts as a table: numbers to the right, every column as wide as it is told or as it needs."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if numeric[place] else "left"
        fixed = None if widths is None else widths[place]
        table.add_column(Text(strip_control(column)), justify=justify, overflow="fold", width=fixed)
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(width=width)
    with console.capture() as drawn:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in drawn.get().splitlines() if line.strip()))


def are_numbers(values: Iterable[object]) -> bool:
    """Whether a column is one of numbers, as far as anything stands in it."""
    known = [value for value in map(_cell, values) if value is not None]
    return bool(known) and all(isinstance(value, int | float) for value in known)


def _cell(value: object) -> object:
    # What differs from itself is NaN: nothing was measured.
    return None if value is None or value != value else value


def shown(value: object, column: str) -> str:
    """A value as a cell of a table: one line of text, in which a sender's line feed is no line of its own."""
    value = _cell(value)
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and not isinstance(value, bool) and column not in _NAMES:
        return f"{value:,}"
    return strip_control(value).replace("\n", "\\n")
