"""The layout of an image: title, sections and tiles in six columns, as SVG."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from embedsink.dashboards.image.chart import chart_svg, spec_with_data
from embedsink.dashboards.image.svg import (
    FONT,
    TEXT_CHARACTERS_MAX,
    card,
    group,
    nested_svg,
    rule,
    text_line,
    text_width,
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
_NUMERIC_SUFFIXES = ("_count", *_UNITS, "_p50", "_p95")
_COLUMN = (WIDTH - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS
_CLICK = re.compile(r" *\bClick [^.]*\.")
_DASHED = "Dashed: the previous period."
_MARKS = {"up": "▲ ", "down": "▼ "}


# The data of a tile: the members of `ChartAnswer` by name.
TileData = Mapping[str, Any]
# By section id and tile id.
Answers = Mapping[str, Mapping[str, TileData]]


@dataclass(frozen=True, slots=True)
class Caption:
    """The lines above the tiles: period, filters, time of rendering, and time of the snapshot, if any.

    Args:
        span: the start and end of the period, in epoch milliseconds of the reader's local time.
        made_at: the time of rendering.
        timezone: the time zone of all times.
        filters: the active filters by name.
        snapshot_at: the time of the snapshot that the data comes from.
    """

    span: tuple[int, int]
    made_at: datetime
    timezone: str = "UTC"
    filters: Mapping[str, str] = field(default_factory=dict)
    snapshot_at: datetime | None = None

    def summary(self) -> str:
        """Return the caption as one line."""
        zone = ZoneInfo(self.timezone)
        rendered = f"rendered {self.made_at.astimezone(zone):%-d %b %Y, %H:%M}"
        if self.snapshot_at:
            rendered += f", snapshot of {self.snapshot_at.astimezone(zone):%-d %b %Y, %H:%M}"
        period = " – ".join(dict.fromkeys((format_day(self.span[0]), format_day(self.span[1] - 1))))
        filters = [f"{name} {display_name(value)}" for name, value in self.filters.items()]
        return " · ".join([f"{period} ({self.timezone})", *filters, rendered])


def draw(dashboard: Dashboard, answers: Answers, caption: Caption, palette: Palette) -> str:
    """Return the dashboard as a self-contained SVG."""
    parts, y = _head(dashboard, caption, palette), MARGIN + 90.0
    for section in dashboard.sections:
        if section.id in answers:
            drawn, y = _section(section, answers[section.id], palette, y)
            parts += drawn
    height = round(y + MARGIN)
    return (
        f'<svg class="sheet" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="{FONT}">'
        f'<rect width="{WIDTH}" height="{height}" fill="{palette.page}"/>{"".join(parts)}</svg>'
    )


def _head(dashboard: Dashboard, caption: Caption, palette: Palette) -> list[str]:
    width = WIDTH - 2 * MARGIN
    return [
        text_line(dashboard.title, MARGIN, MARGIN + 28, size=30, colour=palette.text, is_bold=True),
        text_line("embedsink", WIDTH - MARGIN, MARGIN + 26, size=14, colour=palette.muted, is_bold=True, anchor="end"),
        text_line(dashboard.description, MARGIN, MARGIN + 56, size=15, colour=palette.muted, width_max=width),
        text_line(caption.summary(), MARGIN, MARGIN + 82, size=15, colour=palette.text, is_bold=True, width_max=width),
    ]


def _section(section: Section, answers: Mapping[str, TileData], palette: Palette, y: float) -> tuple[list[str], float]:
    parts = [text_line(section.title, MARGIN, y + 38, size=19, colour=palette.text, is_bold=True)]
    y += 52
    for row in _rows_of([tile for tile in section.charts if tile.id in answers]):
        height = max(_height(tile, answers[tile.id]) for tile in row)
        x = float(MARGIN)
        for tile in row:
            box = _Box(x, y, _width(tile), height)
            parts.append(group(tile.title, *_tile(tile, answers[tile.id], palette, box)))
            x += box.width + GAP
        y += height + GAP
    return parts, y


def _rows_of(tiles: Sequence[Tile]) -> Iterator[list[Tile]]:
    """Yield the rows of tiles that fit the columns."""
    row: list[Tile] = []
    for tile in tiles:
        if row and sum(one.span for one in row) + tile.span > COLUMNS:
            yield row
            row = []
        row.append(tile)
    if row:
        yield row


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        return self.x + PADDING

    @property
    def inner_width(self) -> float:
        return self.width - 2 * PADDING


def _width(tile: Tile) -> float:
    return tile.span * _COLUMN + (tile.span - 1) * GAP


def _height(tile: Tile, data: TileData) -> float:
    if isinstance(tile, Figure | Gauge):
        return NUMBER_HEIGHT
    head = 2 * PADDING + 20 + 17 * len(_description(tile, data, _width(tile) - 2 * PADDING))
    if isinstance(tile, Table):
        rows = len(data["rows"])
        return head + (HEAD_HEIGHT + rows * ROW_HEIGHT + 8 if rows else 110)
    return head + tile.height - 6


def _description(tile: Tile, data: TileData, inner_width: float) -> list[str]:
    # An image can't be clicked.
    text = _CLICK.sub("", tile.description) if isinstance(tile, Chart | Table) and tile.select else tile.description
    lines = wrap(text, 13, inner_width, lines_max=2) if text else []
    return [*lines, _DASHED] if _is_dashed(tile, data) else lines


def _is_dashed(tile: Tile, data: TileData) -> bool:
    """Return whether the chart has a line of the previous period. A single point has no line."""
    if not isinstance(tile, Chart) or tile.compare is None:
        return False
    index = data["columns"].index(tile.compare.x)
    return len({row[index] for row in data["before"]}) > 1


def _tile(tile: Tile, data: TileData, palette: Palette, box: _Box) -> Iterator[str]:
    yield card(box.x, box.y, box.width, box.height, background=palette.card, line=palette.border)
    if isinstance(tile, Figure | Gauge):
        yield from _number(tile, data, palette, box)
        return
    y = box.y + PADDING + 14
    row_note = _row_note(tile, data)
    width = box.inner_width - (text_width(row_note, 13) + 12 if row_note else 0)
    yield text_line(tile.title, box.left, y, size=15, colour=palette.text, is_bold=True, width_max=width)
    if row_note:
        yield text_line(row_note, box.left + box.inner_width, y, size=13, colour=palette.muted, anchor="end")
    for text in _description(tile, data, box.inner_width):
        y += 17
        yield text_line(text, box.left, y, size=13, colour=palette.muted)
    if not data["rows"]:
        yield from _empty(tile, palette, box, y)
    elif isinstance(tile, Table):
        yield from _table(tile, data, palette, box, y + 12)
    else:
        y += 12
        # Charts fill the card, so that neighbours share a baseline.
        height = box.y + box.height - PADDING - y
        svg = chart_svg(spec_with_data(tile, data, palette, width=box.inner_width, height=height), tile=tile.id)
        yield nested_svg(svg, box.left, y, name=tile.id)


def _row_note(tile: Tile, data: TileData) -> str:
    """Return the number of shown rows if a table leaves some out."""
    count = data.get("row_count")
    return f"{len(data['rows'])} of {count:,}" if isinstance(tile, Table) and data.get("is_cut") and count else ""


def _number(tile: Figure | Gauge, data: TileData, palette: Palette, box: _Box) -> Iterator[str]:
    titles = wrap(tile.title, 13, box.inner_width, lines_max=2)
    for number, text in enumerate(titles):
        yield text_line(text, box.left, box.y + 30 + 16 * number, size=13, colour=palette.muted)
    text, size = format_value(data.get("value"), tile.format)[:TEXT_CHARACTERS_MAX], 28.0
    while size > 13 and text_width(text, size, is_bold=True) > box.inner_width:
        size -= 1
    yield text_line(text, box.left, box.y + 80, size=size, colour=palette.text, is_bold=True, width_max=box.inner_width)
    direction, by = format_change(changed := data.get("change"), data.get("value_before"), tile.format)
    is_good = changed["is_good"] if isinstance(changed, Mapping) else None
    tone = palette.muted if is_good is None else palette.good if is_good else palette.bad
    if by:
        shown = f"{_MARKS.get(direction, '')}{by}"
        if text_width(shown, 12) > box.inner_width:
            shown = shown.partition(" from ")[0]
        yield text_line(shown, box.left, box.y + 102, size=12, colour=tone, width_max=box.inner_width)


def _empty(tile: Chart | Table, palette: Palette, box: _Box, y: float) -> Iterator[str]:
    middle = box.x + box.width / 2
    y += (box.y + box.height - y) / 2 - 8
    yield text_line(NO_DATA, middle, y, size=14, colour=palette.text, is_bold=True, anchor="middle")
    for text in wrap(tile.empty.replace("`", ""), 13, box.inner_width * 0.8, lines_max=2) if tile.empty else []:
        y += 19
        yield text_line(text, middle, y, size=13, colour=palette.muted, anchor="middle")


def _table(tile: Table, data: TileData, palette: Palette, box: _Box, y: float) -> Iterator[str]:
    columns = data["columns"]
    cells = [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in data["rows"]]
    numeric = [_is_numeric(name, [row[index] for row in data["rows"]]) for index, name in enumerate(columns)]
    titles = [tile.columns.get(name, name.replace("_", " ")) for name in columns]
    widths = _widths(titles, cells, box.inner_width)
    right = box.left + box.inner_width
    baseline, colour = y + 18, palette.muted
    for row in [titles, *cells]:
        x = box.left
        for text, width, is_numeric in zip(row, widths, numeric, strict=True):
            at, anchor = (x + width - 12, "end") if is_numeric else (x, "start")
            yield text_line(text, at, baseline, size=13, colour=colour, anchor=anchor, width_max=width - 12)
            x += width
        yield rule(box.left, right, baseline + 9, colour=palette.border)
        baseline += ROW_HEIGHT if colour == palette.text else HEAD_HEIGHT
        colour = palette.text


def _is_numeric(name: str, values: Sequence[Any]) -> bool:
    if name == "deployment" or _is_time(name):
        return False
    # Align an empty column as its values would be.
    return name.endswith(_NUMERIC_SUFFIXES) or any(isinstance(value, int | float) for value in values)


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
    default = "count" if isinstance(value, int) else "number"
    return format_value(value, next((format for suffix, format in _UNITS.items() if name.endswith(suffix)), default))


def _widths(titles: Sequence[str], cells: Sequence[Sequence[str]], inner_width: float) -> list[float]:
    """Return the column widths: the natural widths, with the widest columns reduced to fit."""
    columns = zip(titles, *cells, strict=True)
    widths = [min(340.0, max(text_width(text[:TEXT_CHARACTERS_MAX], 13) for text in column) + 18) for column in columns]
    while sum(widths) > inner_width:
        widest = widths.index(max(widths))
        widths[widest] -= min(8.0, sum(widths) - inner_width)
    spare = (inner_width - sum(widths)) / len(widths)
    return [width + spare for width in widths]
