"""The one sheet: title, sections and tiles in the six columns of a wide screen, drawn as SVG."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from embedsink.dashboards.image.chart import chart_svg, spec_with_data
from embedsink.dashboards.image.model import Caption, SectionAnswer
from embedsink.dashboards.image.svg import (
    FONT,
    TEXT_CHARACTERS_MAX,
    card,
    group,
    nested_svg,
    text_line,
    text_width,
    truncate,
    wrap,
)
from embedsink.dashboards.image.text import NONE, display_name, format_change, format_day, format_value
from embedsink.dashboards.labels import NO_DATA
from embedsink.dashboards.model import Chart, Dashboard, Figure, Gauge, Section, Table, Tile
from embedsink.dashboards.theme import Palette

WIDTH = 1_200
MARGIN = 40
GAP = 16
COLUMNS = 6
PADDING = 18
NUMBER_HEIGHT = 118
ROW_HEIGHT = 26
HEAD_HEIGHT = 28
_UNITS = {"_ms": "ms", "_s": "s", "_rate": "share"}
_FIGURES = ("_count", *_UNITS, "_p50", "_p95")
_COLUMN = (WIDTH - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS
_CLICK = re.compile(r" *\bClick [^.]*\.")
_DASHED = "Dashed: the previous period."
_MARKS = {"up": "▲ ", "down": "▼ "}


def draw(dashboard: Dashboard, answers: Mapping[str, SectionAnswer], caption: Caption, palette: Palette) -> str:
    """The whole sheet as SVG that needs nothing else."""
    parts, y = _head(dashboard, answers, caption, palette)
    for section in dashboard.sections:
        if section.id in answers:
            drawn, y = _section(section, answers[section.id], palette, y)
            parts += drawn
    height = round(y + MARGIN)
    return (
        f'<svg class="sheet" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="{FONT}">'
        f'<rect width="{WIDTH}" height="{height}" fill="{palette.desk}"/>{"".join(parts)}</svg>'
    )


def _head(
    dashboard: Dashboard, answers: Mapping[str, SectionAnswer], caption: Caption, palette: Palette
) -> tuple[list[str], float]:
    room = WIDTH - 2 * MARGIN
    zone = ZoneInfo(caption.timezone)
    made = f"made {caption.made_at.astimezone(zone):%-d %b %Y, %H:%M}"
    if caption.snapshot_at:
        made += f", of the snapshot of {caption.snapshot_at.astimezone(zone):%-d %b %Y, %H:%M}"
    spans = [answer.span for answer in answers.values()]
    days = (format_day(min(start for start, _ in spans)), format_day(max(end for _, end in spans) - 1)) if spans else ()
    period = " – ".join(dict.fromkeys(days))
    narrowed = [f"{name} {display_name(value)}" for name, value in caption.narrowed.items()]
    told = " · ".join([f"{period} ({caption.timezone})", *narrowed, made])
    parts = [
        text_line(dashboard.title, MARGIN, MARGIN + 28, size=30, colour=palette.ink, is_bold=True),
        text_line("embedsink", WIDTH - MARGIN, MARGIN + 26, size=14, colour=palette.quiet, is_bold=True, anchor="end"),
        text_line(truncate(dashboard.description, 15, room), MARGIN, MARGIN + 56, size=15, colour=palette.quiet),
        text_line(
            truncate(told, 15, room, is_bold=True), MARGIN, MARGIN + 82, size=15, colour=palette.ink, is_bold=True
        ),
    ]
    return parts, MARGIN + 90.0


def _section(section: Section, answer: SectionAnswer, palette: Palette, y: float) -> tuple[list[str], float]:
    parts = [text_line(section.title, MARGIN, y + 38, size=19, colour=palette.ink, is_bold=True)]
    y += 52
    for row in _rows_of([tile for tile in section.charts if tile.id in answer.charts]):
        height = max(_height(tile, answer) for tile in row)
        x = float(MARGIN)
        for tile in row:
            width = tile.span * _COLUMN + (tile.span - 1) * GAP
            place = _Place(x, y, width, height)
            parts.append(group(tile.title, *_tile(tile, answer, palette, place)))
            x += width + GAP
        y += height + GAP
    return parts, y


def _rows_of(tiles: Sequence[Tile]) -> Iterator[list[Tile]]:
    """Tiles side by side, as many as have room."""
    row: list[Tile] = []
    for tile in tiles:
        if row and sum(one.span for one in row) + tile.span > COLUMNS:
            yield row
            row = []
        row.append(tile)
    if row:
        yield row


@dataclass(frozen=True, slots=True)
class _Place:
    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        return self.x + PADDING

    @property
    def room(self) -> float:
        return self.width - 2 * PADDING


def _height(tile: Tile, answer: SectionAnswer) -> float:
    if isinstance(tile, Figure | Gauge):
        return NUMBER_HEIGHT
    room = tile.span * _COLUMN + (tile.span - 1) * GAP - 2 * PADDING
    head = 2 * PADDING + 20 + 17 * len(_about(tile, answer.charts[tile.id], room))
    if isinstance(tile, Table):
        rows = len(answer.charts[tile.id]["rows"])
        return head + (HEAD_HEIGHT + rows * ROW_HEIGHT + 8 if rows else 110)
    return head + tile.height - 6


def _about(tile: Tile, told: Mapping[str, Any], room: float) -> list[str]:
    # Nobody can click a picture.
    about = _CLICK.sub("", tile.description) if isinstance(tile, Chart | Table) and tile.select else tile.description
    lines = wrap(about, 13, room, lines_max=2) if about else []
    return [*lines, _DASHED] if _is_dashed(tile, told) else lines


def _is_dashed(tile: Tile, told: Mapping[str, Any]) -> bool:
    """Whether there is a line of the period before: one row of it has a place, and no line."""
    if not isinstance(tile, Chart) or tile.compare is None:
        return False
    place = told["columns"].index(tile.compare.x)
    return len({row[place] for row in told["before"]}) > 1


def _tile(tile: Tile, answer: SectionAnswer, palette: Palette, place: _Place) -> Iterator[str]:
    yield card(place.x, place.y, place.width, place.height, ground=palette.ground, line=palette.line)
    told = answer.charts[tile.id]
    if isinstance(tile, Figure | Gauge):
        yield from _number(tile, told, palette, place)
        return
    y = place.y + PADDING + 14
    left_out = _left_out(tile, told)
    room = place.room - (text_width(left_out, 13) + 12 if left_out else 0)
    yield text_line(
        truncate(tile.title, 15, room, is_bold=True), place.left, y, size=15, colour=palette.ink, is_bold=True
    )
    if left_out:
        yield text_line(left_out, place.left + place.room, y, size=13, colour=palette.quiet, anchor="end")
    for text in _about(tile, told, place.room):
        y += 17
        yield text_line(text, place.left, y, size=13, colour=palette.quiet)
    if not told["rows"]:
        yield from _empty(tile, palette, place, y)
    elif isinstance(tile, Table):
        yield from _table(tile, told, palette, place, y + 12)
    else:
        y += 12
        # Down to the end of the card, so that charts side by side stand on one line.
        room = place.y + place.height - PADDING - y
        svg = chart_svg(spec_with_data(tile, told, palette, width=place.room, height=room), tile=tile.id)
        yield nested_svg(svg, place.left, y, name=tile.id)


def _left_out(tile: Tile, told: Mapping[str, Any]) -> str:
    """How many of its rows a table shows, where that is not all."""
    count = told.get("row_count")
    return f"{len(told['rows'])} of {count:,}" if isinstance(tile, Table) and told.get("is_cut") and count else ""


def _number(tile: Figure | Gauge, told: Mapping[str, Any], palette: Palette, place: _Place) -> Iterator[str]:
    titles = wrap(tile.title, 13, place.room, lines_max=2)
    for number, text in enumerate(titles):
        yield text_line(text, place.left, place.y + 30 + 16 * number, size=13, colour=palette.quiet)
    text, size = format_value(told.get("value"), tile.format)[:TEXT_CHARACTERS_MAX], 28.0
    while size > 13 and text_width(text, size, is_bold=True) > place.room:
        size -= 1
    text = truncate(text, size, place.room, is_bold=True)
    yield text_line(text, place.left, place.y + 80, size=size, colour=palette.ink, is_bold=True)
    direction, by = format_change(changed := told.get("change"), told.get("value_before"), tile.format)
    is_good = changed["is_good"] if isinstance(changed, Mapping) else None
    tone = palette.quiet if is_good is None else palette.good if is_good else palette.bad
    if by:
        shown = f"{_MARKS.get(direction, '')}{by}"
        if text_width(shown, 12) > place.room:
            shown = truncate(shown.partition(" from ")[0], 12, place.room)
        yield text_line(shown, place.left, place.y + 102, size=12, colour=tone)


def _empty(tile: Chart | Table, palette: Palette, place: _Place, y: float) -> Iterator[str]:
    middle = place.x + place.width / 2
    y += (place.y + place.height - y) / 2 - 8
    yield text_line(NO_DATA, middle, y, size=14, colour=palette.ink, is_bold=True, anchor="middle")
    for text in wrap(tile.empty.replace("`", ""), 13, place.room * 0.8, lines_max=2) if tile.empty else []:
        y += 19
        yield text_line(text, middle, y, size=13, colour=palette.quiet, anchor="middle")


def _table(tile: Table, told: Mapping[str, Any], palette: Palette, place: _Place, y: float) -> Iterator[str]:
    columns = told["columns"]
    cells = [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in told["rows"]]
    figures = [_are_figures(name, [row[place] for row in told["rows"]]) for place, name in enumerate(columns)]
    titles = [tile.columns.get(name, name.replace("_", " ")) for name in columns]
    widths = _widths(titles, cells, place.room)
    for number, row in enumerate([titles, *cells]):
        is_head = number == 0
        stands = y + 18 + (0 if is_head else HEAD_HEIGHT + (number - 1) * ROW_HEIGHT)
        x = place.left
        for text, width, is_figure in zip(row, widths, figures, strict=True):
            shown = truncate(text, 13, width - 12)
            at, anchor = (x + width - 12, "end") if is_figure else (x, "start")
            yield text_line(shown, at, stands, size=13, colour=palette.quiet if is_head else palette.ink, anchor=anchor)
            x += width
        rule = f'x1="{place.left:.1f}" x2="{place.left + place.room:.1f}" y1="{stands + 9:.1f}" y2="{stands + 9:.1f}"'
        yield f'<line {rule} stroke="{palette.line}"/>'


def _are_figures(name: str, values: Sequence[Any]) -> bool:
    if name == "deployment" or _is_time(name):
        return False
    # A column without any value stands where its values would.
    return name.endswith(_FIGURES) or any(isinstance(value, int | float) for value in values)


def _is_time(name: str) -> bool:
    return name.endswith("_at") or name in ("period_start", "day")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return NONE
    if name == "day":
        return format_day(int(value))
    if _is_time(name):
        return format_value(value, "time")
    if name == "deployment" or not isinstance(value, int | float):
        return display_name(str(value))
    if name.startswith("seconds_"):
        return format_value(value, "s")
    unit = next((format for ending, format in _UNITS.items() if name.endswith(ending)), None)
    return format_value(value, unit or ("count" if isinstance(value, int) else "number"))


def _widths(titles: Sequence[str], cells: Sequence[Sequence[str]], room: float) -> list[float]:
    """As wide as the columns want to be; the widest give way."""
    columns = zip(titles, *cells, strict=True)
    wanted = [min(340.0, max(text_width(text[:TEXT_CHARACTERS_MAX], 13) for text in column) + 18) for column in columns]
    while sum(wanted) > room:
        widest = wanted.index(max(wanted))
        wanted[widest] -= min(8.0, sum(wanted) - room)
    spare = (room - sum(wanted)) / len(wanted)
    return [width + spare for width in wanted]
