"""Rows of a report on a terminal: whole columns, as many as there is room for, and a word on what is left out."""

from collections.abc import Sequence

import typer

from embedsink.cli.output import are_numbers, printed, say, shown

# An instant with microseconds has room in it, and of a text one sees what it is. No row is higher than these lines.
TEXT_WIDTH_MIN = 28
LINES_MAX = 3
# What stands between two columns.
_GAP = 3


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], *, width: int) -> None:
    """Print the rows of a report so that they fit; one row that is too wide stands as a list.

    Args:
        columns: their names.
        rows: at least one.
        width: how many characters there are side by side.
    """
    cells = [[shown(value, column) for value, column in zip(row, columns, strict=True)] for row in rows]
    wanted = [max(map(_width_of, column)) for column in zip(columns, *cells, strict=True)]
    if len(rows) == 1 and sum(wanted) + _GAP * len(wanted) > width:
        _show_one(columns, cells[0], width)
        return
    numeric = [are_numbers([row[place] for row in rows]) for place in range(len(columns))]
    widths = _fitting(columns, wanted, numeric, width)
    kept = range(len(widths))
    cut = [[_cut(row[place], widths[place]) for place in kept] for row in cells]
    printed([columns[place] for place in kept], cut, [numeric[place] for place in kept], widths=widths, width=width)
    if left_out := columns[len(widths) :]:
        say(f"There is no room for {', '.join(left_out)}. Choose with --columns, or see all of it: --format json.")
    if any(whole[place] != one[place] for whole, one in zip(cells, cut, strict=True) for place in kept):
        say("Long texts are cut. --format json has them whole.")


def _show_one(columns: Sequence[str], cells: Sequence[str], width: int) -> None:
    names = max(map(len, columns))
    for column, cell in zip(columns, cells, strict=True):
        typer.echo(f"{column:<{names}}  {_cut(cell, max(TEXT_WIDTH_MIN, width - names - 2))}".rstrip())


def _fitting(columns: Sequence[str], wanted: Sequence[int], numeric: Sequence[bool], width: int) -> list[int]:
    """The widths of as many of the first columns as there is room for; long texts get what is left over."""
    least = [
        most if is_number else min(most, max(len(column), TEXT_WIDTH_MIN))
        for column, most, is_number in zip(columns, wanted, numeric, strict=True)
    ]
    count = len(least)
    while count > 1 and sum(least[:count]) + _GAP * count > width:
        count -= 1
    widths = [min(one, max(1, width - _GAP)) for one in least[:count]]
    spare = width - sum(widths) - _GAP * count
    # Those that lack least first, so that what they leave is the others'.
    lacking = sorted(range(count), key=lambda place: wanted[place] - widths[place])
    for number, place in enumerate(lacking):
        more = min(wanted[place] - widths[place], max(0, spare) // (count - number))
        widths[place] += more
        spare -= more
    return widths


def _width_of(text: str) -> int:
    from rich.cells import cell_len

    # What is longer is cut anyway, and measuring takes time.
    return cell_len(text[:1_000])


def _cut(text: str, width: int) -> str:
    """As much of a text as stands in a few lines of this width."""
    room = width * LINES_MAX
    if _width_of(text) <= room:
        return text
    from rich.cells import set_cell_size

    return f"{set_cell_size(text[:room], room - 1)}…"
