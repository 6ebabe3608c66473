"""What a file of `dashboards/` may say, as types (docs/dashboards.md)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[a-z][a-z0-9-]*$"
COLUMN = r"^[a-z][a-z0-9_]*$"
SIGNED_COLUMN = r"^-?[a-z][a-z0-9_]*$"
Name = Annotated[str, Field(pattern=NAME, max_length=64)]
Title = Annotated[str, Field(min_length=1, max_length=100)]
Sentence = Annotated[str, Field(max_length=400)]
Column = Annotated[str, Field(pattern=COLUMN)]
SignedColumn = Annotated[str, Field(pattern=SIGNED_COLUMN)]
OwnParameter = Literal["since", "interval", "surface", "tenant"]
Scalar = str | int | bool
Format = Literal["count", "number", "share", "ms", "s", "bytes", "time", "text"]
# What specs are written in, of those that vl-convert carries.
VEGA_LITE = "6.4"

# What a server knows of itself; http/dashboards.py has each.
Measure = Literal["loading_delay_s", "journal_segment_count", "journal_bytes", "snapshot_age_s", "damaged_count"]

# Rows with one of these are of a period, and get further columns: where it ends, its middle, and the ends of its bar.
PERIOD_COLUMNS = ("period_start", "day")
PERIOD_END_COLUMNS = ("period_end", "period_middle", "bar_start", "bar_end")
ROWS_MAX = 5_000
CHARTS_MAX = 24
SECTIONS_MAX = 12


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Tile(_Part):
    id: Name
    title: Title
    description: Sentence = ""
    # Of the six columns of a wide screen.
    span: Literal[1, 2, 3, 4, 6] = 3

    @property
    def report_name(self) -> str | None:
        """The report that it is made of, if it is made of one."""
        return getattr(self, "report", None)


class _OfReport(_Tile):
    report: str
    # Those of the report, where they are not the reader's choice.
    parameters: dict[OwnParameter, str] = Field(default_factory=dict)
    # Only rows that have these values.
    where: dict[Column, Scalar] = Field(default_factory=dict)
    # Only rows in which this column is more than nothing.
    nonzero: Column | None = None
    # Only rows whose time in this column lies more than so many days before the end of what is seen.
    older_days: dict[Column, Annotated[int, Field(ge=1, le=3_650)]] = Field(default_factory=dict)


class Figure(_OfReport):
    """One number of all rows.

    `sum` adds a column; `ratio` divides its sum by that of `of` (a minus before a name takes it off); `newest` is the
    greatest value; `count` counts rows; `distinct` the different values of a column; `only` is the value of the one
    row, of a report that has no more.
    """

    kind: Literal["number"]
    how: Literal["sum", "ratio", "newest", "count", "distinct", "only"]
    column: Column | None = None
    of: list[SignedColumn] = Field(default_factory=list)
    times: int = 1
    format: Format = "count"
    better: Literal["up", "down", "neither"] = "neither"
    span: Literal[1, 2, 3, 4, 6] = 1


class Group(_Part):
    """Rows put together: one for each value of `by`, with sums of columns that may be added, the greatest first.

    `median` is of columns that may not: the median of those rows that have a value.
    """

    by: list[Column] = Field(min_length=1)
    sum: list[Column] = Field(default_factory=list)
    median: list[Column] = Field(default_factory=list)
    # The name of a column with the number of rows.
    count: Column | None = None

    @property
    def columns(self) -> list[Column]:
        """Those of its rows, in their order."""
        return [*self.by, *self.sum, *self.median, *([self.count] if self.count else [])]


class _Rows(_OfReport):
    group: Group | None = None
    # A column; with a minus before it the greatest come first. Without, the report's own order.
    sort: SignedColumn | None = None
    # What is said where there are none.
    empty: Sentence = ""


class TopValues(_Part):
    """Which rows are drawn where there are too many lines: those of the values of `column` with the most of `by`."""

    column: Column
    by: Column
    count: int = Field(7, ge=1, le=50)


class Comparison(_Part):
    """Where the period before is drawn: the sum of `y` over `x`, as a dashed line."""

    x: Column
    y: Column


class Marks(_Part):
    """Moments that are marked in a chart over time: those of the column `at` of a report, called `title`."""

    report: str
    at: Column
    title: Title


class Chart(_Rows):
    """A Vega-Lite spec without its data: that is the report's rows."""

    kind: Literal["chart"]
    spec: dict[str, Any]
    rows: int = Field(ROWS_MAX, ge=1, le=ROWS_MAX)
    height: int = Field(240, ge=40, le=800)
    # What a click on a mark narrows the page to.
    select: Literal["surface", "deployment", "tenant", "period_start"] | None = None
    compare: Comparison | None = None
    leading: TopValues | None = None
    marks: Marks | None = None


class Table(_Rows):
    """Rows as a table."""

    kind: Literal["table"]
    columns: dict[Column, Title] = Field(min_length=1)
    rows: int = Field(10, ge=1, le=200)
    select: Literal["surface", "deployment", "tenant"] | None = None


class Gauge(_Tile):
    """Something that the server knows of itself, now."""

    kind: Literal["server"]
    measure: Measure
    format: Format = "count"
    span: Literal[1, 2, 3, 4, 6] = 1


Tile = Annotated[Figure | Chart | Table | Gauge, Field(discriminator="kind")]


class Section(_Part):
    """Charts that are asked for together."""

    id: Name
    title: Title
    charts: list[Tile] = Field(min_length=1, max_length=CHARTS_MAX)


class Dashboard(_Part):
    """A file. Its name is the file's."""

    title: Title
    description: Sentence
    # Where it stands in the list.
    place: int = 100
    sections: list[Section] = Field(min_length=1, max_length=SECTIONS_MAX)

    def section(self, id: str) -> Section | None:
        """The section of this id."""
        return next((section for section in self.sections if section.id == id), None)
