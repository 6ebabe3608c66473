"""What commands print: results on stdout, everything else on stderr, and nothing that a terminal would obey."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

FAILED = 1
WRONG_USE = 2
COLUMNS_MAX = 100_000
# Integers that name something, and count nothing: they are shown as they are typed.
_NAMES = ("arrival", "deployment")


def say(text: str) -> None:
    """A line for the person at the terminal: on stderr, so that stdout stays the result alone."""
    typer.echo(text, err=True)


def fail(error: Exception | str, *, code: int = FAILED) -> NoReturn:
    """End the program with one red sentence."""
    typer.secho(inert(error), fg=typer.colors.RED, err=True)
    sys.exit(code)


def inert(value: object) -> str:
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
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    listed = [[_cell(value) for value in row] for row in rows]
    for place, column in enumerate(columns):
        are_numbers = all(isinstance(row[place], int | float) for row in listed if row[place] is not None)
        table.add_column(Text(inert(column)), justify="right" if are_numbers and listed else "left", overflow="fold")
    for row in listed:
        table.add_row(*(Text(_shown(value, column)) for column, value in zip(columns, row, strict=True)))
    console = Console()
    if not console.is_terminal:
        console = Console(width=COLUMNS_MAX)
    with console.capture() as printed:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in printed.get().splitlines() if line.strip()))


def _cell(value: object) -> object:
    # What differs from itself is NaN: nothing was measured.
    return None if value is None or value != value else value


def _shown(value: object, column: str) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and not isinstance(value, bool) and column not in _NAMES:
        return f"{value:,}"
    return inert(value)
