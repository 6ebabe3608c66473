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
from embedsink.dashboards.model import Chart, Dashboard, Gauge, NumberTile, Section, Table, Tile
from embedsink.dashboards.theme import Palette

WIDTH = 1_200
MARGIN = 40
GAP = 16
COLUMNS = 6
# Lengths in pixels. A baseline is the distance from the top of its section or tile.
HEAD_HEIGHT = 90.0
SECTION_TITLE_BASELINE = 38
SECTION_TITLE_HEIGHT = 52
PADDING = 18
TITLE_BASELINE = PADDING + 14
LINE_HEIGHT = 17
# The distance of a table or chart from the text above it.
CONTENT_MARGIN = 12
EMPTY_HEIGHT = 116
EMPTY_LINE_HEIGHT = 19
TABLE_HEAD_BASELINE = 18
TABLE_HEAD_HEIGHT = 28
TABLE_PADDING_BOTTOM = 20
ROW_HEIGHT = 26
# The part of a row below the baseline of its text.
ROW_DESCENT = 9
CELL_PADDING = 12
CELL_WIDTH_MAX = 340.0
NUMBER_HEIGHT = 118
NUMBER_TITLE_BASELINE = 30
NUMBER_TITLE_LINE_HEIGHT = 16
NUMBER_BASELINE = 80
CHANGE_BASELINE = 102
# Font sizes.
_TEXT_SIZE = 13
_TITLE_SIZE = 15
_NUMBER_SIZE = 28
_CHANGE_SIZE = 12
# The formats of numeric columns by the ends of their names.
_FORMATS_BY_SUFFIX = {"_ms": "ms", "_s": "s", "_rate": "share"}
_NUMERIC_SUFFIXES = ("_count", *_FORMATS_BY_SUFFIX, "_p50", "_p95")
_COLUMN_WIDTH = (WIDTH - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS
_CLICK_SENTENCE = re.compile(r" *\bClick [^.]*\.")
_DASHED_LINE_NOTE = "The dashed line shows the previous period."
_ARROWS = {"up": "▲ ", "down": "▼ "}


# The fields of `query.TileData` by name.
TileFields = Mapping[str, Any]
# The data of the tiles, by section id and tile id.
DataBySection = Mapping[str, Mapping[str, TileFields]]


@dataclass(frozen=True, slots=True)
class Caption:
    """The line above the tiles: the period, the filters, the time of rendering, and the time of the snapshot.

    Args:
        span: the start and end of the period, in epoch milliseconds of the reader's local time.
        rendered_at: the time of rendering.
        timezone: the time zone of all times.
        filters: the active filters by name.
        snapshot_at: the time of the snapshot that the data comes from; None if it comes from a server.
    """

    span: tuple[int, int]
    rendered_at: datetime
    timezone: str = "UTC"
    filters: Mapping[str, str] = field(default_factory=dict)
    snapshot_at: datetime | None = None

    def summary(self) -> str:
        """Return the caption as one line."""
        zone = ZoneInfo(self.timezone)
        rendered = f"rendered {self.rendered_at.astimezone(zone):%-d %b %Y, %H:%M}"
        if self.snapshot_at:
            rendered += f", snapshot of {self.snapshot_at.astimezone(zone):%-d %b %Y, %H:%M}"
        start_ms, end_ms = self.span
        first_day, last_day = format_day(start_ms), format_day(end_ms - 1)  # The end is exclusive.
        period = first_day if first_day == last_day else f"{first_day} – {last_day}"
        filters = [f"{name} {display_name(value)}" for name, value in self.filters.items()]
        return " · ".join([f"{period} ({self.timezone})", *filters, rendered])


def draw(dashboard: Dashboard, data: DataBySection, caption: Caption, palette: Palette) -> str:
    """Return the dashboard as a self-contained SVG. Sections and tiles without an entry in `data` are omitted."""
    parts = _head_lines(dashboard, caption, palette)
    y = MARGIN + HEAD_HEIGHT
    for section in dashboard.sections:
        if section.id in data:
            section_parts, y = _section_elements(section, data[section.id], palette, y)
            parts += section_parts
    height = round(y + MARGIN)
    return (
        f'<svg class="sheet" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="{FONT}">'
        f'<rect width="{WIDTH}" height="{height}" fill="{palette.page}"/>{"".join(parts)}</svg>'
    )


def _head_lines(dashboard: Dashboard, caption: Caption, palette: Palette) -> list[str]:
    """Return the lines above the tiles: the title, the product name, the description and the caption."""
    width = WIDTH - 2 * MARGIN
    return [
        text_line(dashboard.title, MARGIN, MARGIN + 28, size=30, colour=palette.text, is_bold=True),
        text_line("embedsink", WIDTH - MARGIN, MARGIN + 26, size=14, colour=palette.muted, is_bold=True, anchor="end"),
        text_line(dashboard.description, MARGIN, MARGIN + 56, size=15, colour=palette.muted, width_max=width),
        text_line(caption.summary(), MARGIN, MARGIN + 82, size=15, colour=palette.text, is_bold=True, width_max=width),
    ]


def _section_elements(
    section: Section, data: Mapping[str, TileFields], palette: Palette, y: float
) -> tuple[list[str], float]:
    """Return the elements of a section that begins at `y`, and the y position of the section's end.

    Tiles without an entry in `data` are omitted.
    """
    baseline = y + SECTION_TITLE_BASELINE
    parts = [text_line(section.title, MARGIN, baseline, size=19, colour=palette.text, is_bold=True)]
    y += SECTION_TITLE_HEIGHT
    for row in _tile_rows([tile for tile in section.tiles if tile.id in data]):
        height = max(_height(tile, data[tile.id]) for tile in row)
        x = float(MARGIN)
        for tile in row:
            box = _Box(x, y, _width(tile), height)
            parts.append(group(tile.title, *_tile_elements(tile, data[tile.id], palette, box)))
            x += box.width + GAP
        y += height + GAP
    return parts, y


def _tile_rows(tiles: Sequence[Tile]) -> Iterator[list[Tile]]:
    """Yield rows of tiles. Each row has as many tiles as fit in `COLUMNS` columns."""
    row: list[Tile] = []
    for tile in tiles:
        used_columns = sum(earlier_tile.span for earlier_tile in row)
        if row and used_columns + tile.span > COLUMNS:
            yield row
            row = []
        row.append(tile)
    if row:
        yield row


@dataclass(frozen=True, slots=True)
class _Box:
    """The position and the size of a tile."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        """The left edge of the content."""
        return self.x + PADDING

    @property
    def right(self) -> float:
        """The right edge of the content."""
        return self.x + self.width - PADDING

    @property
    def inner_width(self) -> float:
        """The width of the content."""
        return self.width - 2 * PADDING


def _width(tile: Tile) -> float:
    """Return the width of a tile in pixels, with the gaps between its columns."""
    return tile.span * _COLUMN_WIDTH + (tile.span - 1) * GAP


def _height(tile: Tile, data: TileFields) -> float:
    """Return the height of a tile in pixels."""
    if isinstance(tile, NumberTile | Gauge):
        return NUMBER_HEIGHT
    description = _description_lines(tile, data, _width(tile) - 2 * PADDING)
    text_height = TITLE_BASELINE + LINE_HEIGHT * len(description)
    if isinstance(tile, Chart):
        return text_height + tile.height + PADDING
    if not data["rows"]:
        return text_height + EMPTY_HEIGHT + PADDING
    table_height = TABLE_HEAD_HEIGHT + len(data["rows"]) * ROW_HEIGHT
    return text_height + CONTENT_MARGIN + table_height + TABLE_PADDING_BOTTOM


def _description_lines(tile: Tile, data: TileFields, inner_width: float) -> list[str]:
    """Return the lines of a tile's description, with notes on a dashed line and on daily totals."""
    text = tile.description
    if isinstance(tile, Chart | Table) and tile.select:
        text = _CLICK_SENTENCE.sub("", text)  # An image can't be clicked.
    lines = wrap(text, _TEXT_SIZE, inner_width, lines_max=2) if text else []
    notes = [_DASHED_LINE_NOTE if _has_dashed_line(tile, data) else None, data.get("note")]
    return [*lines, *filter(None, notes)]


def _has_dashed_line(tile: Tile, data: TileFields) -> bool:
    """Return whether a tile is a chart with a line of the previous period. A single point is not a line."""
    if not isinstance(tile, Chart) or tile.compare is None:
        return False
    x_index = data["columns"].index(tile.compare.x)
    previous_x_values = {row[x_index] for row in data["before"]}
    return len(previous_x_values) > 1


def _tile_elements(tile: Tile, data: TileFields, palette: Palette, box: _Box) -> Iterator[str]:
    """Yield the elements of a tile: its card, title, description and content."""
    yield card(box.x, box.y, box.width, box.height, background=palette.card, border=palette.border)
    if isinstance(tile, NumberTile | Gauge):
        yield from _number_elements(tile, data, palette, box)
        return
    y = box.y + TITLE_BASELINE
    row_note = _row_note(tile, data)
    note_width = text_width(row_note, _TEXT_SIZE) + CONTENT_MARGIN if row_note else 0
    title_width = box.inner_width - note_width
    yield text_line(tile.title, box.left, y, size=_TITLE_SIZE, colour=palette.text, is_bold=True, width_max=title_width)
    if row_note:
        yield text_line(row_note, box.right, y, size=_TEXT_SIZE, colour=palette.muted, anchor="end")
    for text in _description_lines(tile, data, box.inner_width):
        y += LINE_HEIGHT
        yield text_line(text, box.left, y, size=_TEXT_SIZE, colour=palette.muted)
    if not data["rows"]:
        yield from _empty_tile_elements(data.get("unavailable") or tile.empty, palette, box, y)
    elif isinstance(tile, Table):
        yield from _table_elements(tile, data, palette, box, y + CONTENT_MARGIN)
    else:
        y += CONTENT_MARGIN
        # A chart fills its card, so that the charts of a row end at the same height.
        height = box.y + box.height - PADDING - y
        svg = chart_svg(spec_with_data(tile, data, palette, width=box.inner_width, height=height), tile=tile.id)
        yield nested_svg(svg, box.left, y, name=tile.id)


def _row_note(tile: Tile, data: TileFields) -> str:
    """Return a note such as `10 of 50` if a table leaves rows out; else an empty text."""
    row_count = data.get("row_count")
    if not isinstance(tile, Table) or not data.get("is_cut") or not row_count:
        return ""
    return f"{len(data['rows'])} of {row_count:,}"


def _number_elements(tile: NumberTile | Gauge, data: TileFields, palette: Palette, box: _Box) -> Iterator[str]:
    """Yield the title, the value and the change of a number. A long value has a smaller font."""
    for index, line in enumerate(wrap(tile.title, _TEXT_SIZE, box.inner_width, lines_max=2)):
        y = box.y + NUMBER_TITLE_BASELINE + NUMBER_TITLE_LINE_HEIGHT * index
        yield text_line(line, box.left, y, size=_TEXT_SIZE, colour=palette.muted)
    value = format_value(data.get("value"), tile.format)[:TEXT_CHARACTERS_MAX]
    size = _NUMBER_SIZE
    while size > _TEXT_SIZE and text_width(value, size, is_bold=True) > box.inner_width:
        size -= 1
    y = box.y + NUMBER_BASELINE
    yield text_line(value, box.left, y, size=size, colour=palette.text, is_bold=True, width_max=box.inner_width)
    yield from _change_elements(tile, data, palette, box)


def _change_elements(tile: NumberTile | Gauge, data: TileFields, palette: Palette, box: _Box) -> Iterator[str]:
    """Yield the change from the previous period, if there is one."""
    change = data.get("change")
    direction, text = format_change(change, data.get("value_before"), tile.format)
    if not text:
        return
    colour = palette.muted  # also of a label such as `no change`
    if isinstance(change, Mapping) and change["is_good"] is not None:
        colour = palette.good if change["is_good"] else palette.bad
    text = _ARROWS.get(direction, "") + text
    if text_width(text, _CHANGE_SIZE) > box.inner_width:
        text = text.partition(" from ")[0]  # Omit the previous value.
    y = box.y + CHANGE_BASELINE
    yield text_line(text, box.left, y, size=_CHANGE_SIZE, colour=colour, width_max=box.inner_width)


def _empty_tile_elements(explanation: str, palette: Palette, box: _Box, y: float) -> Iterator[str]:
    """Yield the texts of a tile without rows, in the middle of the space below `y`."""
    middle = box.x + box.width / 2
    y += (box.y + box.height - y) / 2 - 8  # The first baseline is 8 px above the middle.
    yield text_line(NO_DATA, middle, y, size=14, colour=palette.text, is_bold=True, anchor="middle")
    if explanation:
        without_code_marks = explanation.replace("`", "")
        for line in wrap(without_code_marks, _TEXT_SIZE, box.inner_width * 0.8, lines_max=2):
            y += EMPTY_LINE_HEIGHT
            yield text_line(line, middle, y, size=_TEXT_SIZE, colour=palette.muted, anchor="middle")


def _table_elements(tile: Table, data: TileFields, palette: Palette, box: _Box, y: float) -> Iterator[str]:
    """Yield the rows of a table that begins at `y`: the column titles, and the rows below them."""
    names = data["columns"]
    cells = [[_cell_text(name, value) for name, value in zip(names, row, strict=True)] for row in data["rows"]]
    titles = [tile.columns.get(name, name.replace("_", " ")) for name in names]
    column_values = zip(*data["rows"], strict=True)
    columns = _TableColumns(
        widths=_column_widths(titles, cells, box.inner_width),
        are_right_aligned=[_is_right_aligned(name, values) for name, values in zip(names, column_values, strict=True)],
    )
    baseline = y + TABLE_HEAD_BASELINE
    yield from _table_row_elements(titles, columns, palette.muted, palette, box, baseline)
    baseline += TABLE_HEAD_HEIGHT
    for row in cells:
        yield from _table_row_elements(row, columns, palette.text, palette, box, baseline)
        baseline += ROW_HEIGHT


@dataclass(frozen=True, slots=True)
class _TableColumns:
    widths: list[float]
    are_right_aligned: list[bool]


def _table_row_elements(
    texts: Sequence[str], columns: _TableColumns, colour: str, palette: Palette, box: _Box, baseline: float
) -> Iterator[str]:
    """Yield the cells of a row and the line below it. Numbers are aligned to the right."""
    x = box.left
    for text, width, is_right_aligned in zip(texts, columns.widths, columns.are_right_aligned, strict=True):
        text_width_max = width - CELL_PADDING
        anchor_x, anchor = (x + text_width_max, "end") if is_right_aligned else (x, "start")
        yield text_line(
            text, anchor_x, baseline, size=_TEXT_SIZE, colour=colour, anchor=anchor, width_max=text_width_max
        )
        x += width
    yield rule(box.left, box.right, baseline + ROW_DESCENT, colour=palette.border)


def _is_right_aligned(name: str, values: Sequence[Any]) -> bool:
    """Return whether a column is aligned to the right, as numbers are. Ids and times are not."""
    if name == "deployment" or _is_time(name):
        return False
    # By the name, so that a column of numbers without values is aligned to the right too.
    return name.endswith(_NUMERIC_SUFFIXES) or any(isinstance(value, int | float) for value in values)


def _is_time(name: str) -> bool:
    """Return whether a column of this name contains times."""
    return name.endswith("_at") or name in ("period_start", "day")


def _cell_text(name: str, value: Any) -> str:
    """Return the text of a cell. The name of the column determines the format."""
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
    for suffix, format in _FORMATS_BY_SUFFIX.items():
        if name.endswith(suffix):
            return format_value(value, format)
    return format_value(value, "count" if isinstance(value, int) else "number")


def _column_widths(titles: Sequence[str], cells: Sequence[Sequence[str]], inner_width: float) -> list[float]:
    """Return the widths of a table's columns. The widest columns are reduced until all fit; spare width is shared."""
    widths = []
    for texts in zip(titles, *cells, strict=True):
        longest = max(text_width(text[:TEXT_CHARACTERS_MAX], _TEXT_SIZE) for text in texts)
        # The 6 px are a reserve, because text widths are approximate.
        widths.append(min(CELL_WIDTH_MAX, longest + CELL_PADDING + 6))
    while sum(widths) > inner_width:
        widest = widths.index(max(widths))
        widths[widest] -= min(8.0, sum(widths) - inner_width)  # in steps of 8 px
    spare = (inner_width - sum(widths)) / len(widths)
    return [width + spare for width in widths]
