"""The format of dashboard files as pydantic models (docs/dashboards.md)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ID_PATTERN = r"^[a-z][a-z0-9-]*$"
COLUMN_PATTERN = r"^[a-z][a-z0-9_]*$"
SIGNED_COLUMN_PATTERN = r"^-?[a-z][a-z0-9_]*$"
Id = Annotated[str, Field(pattern=ID_PATTERN, max_length=64)]
Title = Annotated[str, Field(min_length=1, max_length=100)]
Sentence = Annotated[str, Field(max_length=400)]
Column = Annotated[str, Field(pattern=COLUMN_PATTERN)]
SignedColumn = Annotated[str, Field(pattern=SIGNED_COLUMN_PATTERN)]
TileParameter = Literal["since", "interval", "surface", "tenant"]
Scalar = str | int | bool
Format = Literal["count", "number", "share", "ms", "s", "bytes", "time", "text"]
# The Vega-Lite version of all specs; vl-convert ships several.
VEGA_LITE = "6.4"

# The values of gauges; http/gauges.py computes them.
Measure = Literal["loading_delay_s", "journal_segment_count", "journal_bytes", "snapshot_age_s", "damaged_count"]

# A row with one of these columns belongs to a period. It gets the columns below: the end and the middle of the period,
# and the start and end of its bar.
PERIOD_COLUMNS = ("period_start", "day")
PERIOD_END_COLUMNS = ("period_end", "period_middle", "bar_start", "bar_end")
ROWS_MAX = 5_000
TILES_MAX = 24
SECTIONS_MAX = 12


class _FileObject(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)


class _BaseTile(_FileObject):
    id: Id
    title: Title
    description: Sentence = ""
    # The width of the tile in columns. A wide screen has six columns.
    span: Literal[1, 2, 3, 4, 6] = 3

    @property
    def report_name(self) -> str | None:
        """The report of the tile; None for gauges."""
        return getattr(self, "report", None)


class _ReportTile(_BaseTile):
    report: str
    # Report parameters that override those of the reader.
    parameters: dict[TileParameter, str] = Field(default_factory=dict)
    # Only rows with these values.
    where: dict[Column, Scalar] = Field(default_factory=dict)
    # Only rows in which this column is not zero.
    nonzero: Column | None = None
    # Only rows whose time in this column is more than this number of days before the end of the period.
    older_days: dict[Column, Annotated[int, Field(ge=1, le=3_650)]] = Field(default_factory=dict)


class NumberTile(_ReportTile):
    """A number that is computed from all rows.

    `how` is the computation:
        sum: the sum of `column`.
        ratio: the sum of `column` ÷ the sum of the columns `of`. A minus before a name subtracts its column.
        newest: the greatest value of `column`.
        count: the number of rows.
        distinct: the number of distinct values of `column`.
        only: the value of `column` in a report with one row.

    `times` multiplies the result. `better` is the direction of an improvement.
    """

    kind: Literal["number"]
    how: Literal["sum", "ratio", "newest", "count", "distinct", "only"]
    column: Column | None = None
    of: list[SignedColumn] = Field(default_factory=list)
    times: int = 1
    format: Format = "count"
    better: Literal["up", "down", "neither"] = "neither"
    span: Literal[1, 2, 3, 4, 6] = 1


class Group(_FileObject):
    """Aggregated rows: one for each value of the columns `by`, with the sums and the medians of other columns."""

    by: list[Column] = Field(min_length=1)
    sum: list[Column] = Field(default_factory=list)
    median: list[Column] = Field(default_factory=list)
    # The name of an added column with the number of rows.
    count: Column | None = None

    @property
    def columns(self) -> list[Column]:
        """The columns of the aggregated rows, in order."""
        count = [self.count] if self.count else []
        return [*self.by, *self.sum, *self.median, *count]


class _RowsTile(_ReportTile):
    group: Group | None = None
    # A column; a minus sorts in descending order. Without `sort`, groups are sorted by their first aggregate, and other
    # rows keep the order of the report.
    sort: SignedColumn | None = None
    # The text of an empty tile.
    empty: Sentence = ""


class TopValues(_FileObject):
    """The limit on series: only the values of `column` with the largest sums of `by`."""

    column: Column
    by: Column
    count: int = Field(7, ge=1, le=50)


class Comparison(_FileObject):
    """The dashed line of the previous period: for each value of `x`, the sum of `y`."""

    x: Column
    y: Column


class Marks(_FileObject):
    """Marked times in a chart: the column `at` of a report, with the label `title`."""

    report: str
    at: Column
    title: Title


class Chart(_RowsTile):
    """A Vega-Lite chart. Its spec has no data, because the rows come from the report."""

    kind: Literal["chart"]
    spec: dict[str, Any]
    rows: int = Field(ROWS_MAX, ge=1, le=ROWS_MAX)
    height: int = Field(240, ge=40, le=800)
    # The filter that a click on a mark sets.
    select: Literal["surface", "deployment", "tenant", "period_start"] | None = None
    compare: Comparison | None = None
    leading: TopValues | None = None
    marks: Marks | None = None


class Table(_RowsTile):
    """A table of rows."""

    kind: Literal["table"]
    columns: dict[Column, Title] = Field(min_length=1)
    rows: int = Field(10, ge=1, le=200)
    select: Literal["surface", "deployment", "tenant"] | None = None


class Gauge(_BaseTile):
    """A current value of the server itself."""

    kind: Literal["server"]
    measure: Measure
    format: Format = "count"
    span: Literal[1, 2, 3, 4, 6] = 1


Tile = Annotated[NumberTile | Chart | Table | Gauge, Field(discriminator="kind")]


class Section(_FileObject):
    """Tiles that are requested together. Files name them `charts`."""

    id: Id
    title: Title
    tiles: list[Tile] = Field(alias="charts", min_length=1, max_length=TILES_MAX)


class Dashboard(_FileObject):
    """A dashboard file. Its name is the file name without the suffix."""

    title: Title
    description: Sentence
    # The position in the navigation bar; lower values come first.
    position: int = 100
    sections: list[Section] = Field(min_length=1, max_length=SECTIONS_MAX)

    def section(self, id: str) -> Section | None:
        """Return the section with this id, if any."""
        return next((section for section in self.sections if section.id == id), None)
