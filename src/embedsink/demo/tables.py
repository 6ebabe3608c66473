"""The ledger and the reports as tables of at most 80 columns."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from embedsink.demo.send import SendCounts
from embedsink.reasons import Reason

ROWS_SHOWN = 6
_LABEL_CELLS = 19
_COUNT_CELLS = 6
# All other columns are numbers.
_TEXT_COLUMNS = frozenset({"period_start", "surface", "format", "target", "member", "agent_id"})
_SUM = "accepted + duplicate + quarantined"


class ReportTable(NamedTuple):
    """The columns and headings that the demo shows of a report. Rows are sorted by `order_by`, the largest first."""

    name: str
    order_by: str
    columns: dict[str, str]


_DAY = {"period_start": "day"}
_USE = {"session_count": "sessions", "viewer_count": "viewers", "view_count": "views"}
_EXPORT = {"format": "format", "target": "target", "exported_row_count": "rows", "download_count": "downloads"}
_DRILLDOWN = {"member": "measure", "viewer_count": "viewers", "drilldown_count": "drilldowns"}
_AI = {
    "submitted_count": "submitted",
    "completed_count": "done",
    "error_count": "failed",
    "abandoned_count": "abandoned",
}
_ERRORS = {"errors_per_view": "per view", "fatal_count": "fatal", "error_count": "errors"}
REPORT_TABLES = (
    ReportTable("views", "view_count", {**_DAY, "deployment": "deployment", "surface": "surface", **_USE}),
    ReportTable("downloads", "download_count", {**_DAY, "deployment": "deployment", **_EXPORT}),
    ReportTable("drilldowns", "drilldown_count", {"deployment": "deployment", **_DRILLDOWN}),
    ReportTable(
        "ai_queries",
        "submitted_count",
        {**_DAY, "deployment": "depl.", "surface": "surface", "agent_id": "agent", **_AI}
        | {"completed_latency_p50_ms": "p50"},
    ),
    ReportTable(
        "error_rates",
        "error_count",
        {**_DAY, "deployment": "depl.", "surface": "surface", "error_free_session_rate": "error-free", **_ERRORS},
    ),
)
_FORMATS: dict[str, Callable[[Any], str]] = {
    "period_start": lambda instant: str(instant)[:10],
    "deployment": str,
    "error_free_session_rate": lambda share: f"{share:.0%}",
    "errors_per_view": lambda rate: f"{rate:.2f}",
    "completed_latency_p50_ms": lambda milliseconds: f"{milliseconds / 1000:.1f} s",
}


def report_table(description: dict[str, Any], rows: list[dict[str, Any]], shown: ReportTable) -> Group:
    """Return a report's title, question and largest rows."""
    rows = sorted(rows, key=lambda row: -(row[shown.order_by] or 0))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for column, heading in shown.columns.items():
        style = "bold cyan" if column == shown.order_by else ""
        table.add_column(heading, justify="left" if column in _TEXT_COLUMNS else "right", style=style, no_wrap=True)
    for row in rows[:ROWS_SHOWN]:
        table.add_row(*(_cell(column, row[column]) for column in shown.columns))
    title = Text.assemble("  ", (description["title"], "bold"), ("  ·  " + _row_count(len(rows), shown), "dim"))
    question = Text("  " + description["question"], "italic")
    return Group(Text(), title, question, Padding(table, (0, 0, 0, 2)))


def ledger_table(counts: SendCounts, loaded: dict[str, int], received_count: int) -> Table:
    """Return the received envelopes by outcome, and the reasons of the quarantined ones."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(width=_LABEL_CELLS, no_wrap=True)
    table.add_column(width=_COUNT_CELLS, no_wrap=True, justify="right")
    # Only a column that may wrap shrinks when the table is too wide. `_cut` shortens its cells instead.
    table.add_column(style="dim")
    for label, count, remark, style in _ledger_rows(counts, loaded, received_count):
        table.add_row(Text(f"  {label}", style), Text(f"{count:,}", style), _cut(remark))
    for reason, count, example in _reasons(counts, loaded["quarantined"], is_alone=received_count == counts.sent):
        table.add_row(Text(f"    {reason}", "yellow"), Text(f"{count:,}"), _cut(example))
    table.add_row()
    sum_of_loaded = sum(loaded.values())
    is_equal = sum_of_loaded == received_count
    mark, style, relation = ("✓", "bold green", "=") if is_equal else ("✗", "bold red", "≠")
    table.add_row(Text(f"  {mark} sum", style), Text(f"{sum_of_loaded:,}", style), f"received {relation} {_SUM}")
    return table


def _ledger_rows(
    counts: SendCounts, loaded: dict[str, int], received_count: int
) -> Iterator[tuple[str, int, str, str]]:
    yield "sent", counts.sent, f"envelopes in {counts.deliveries:,} deliveries, all acknowledged", "bold"
    if received_count != counts.sent:
        yield "other senders", received_count - counts.sent, "the demo page, or curl", "bold"
    yield "accepted", loaded["accepted"], "durable, loaded and counted once", "bold green"
    yield "duplicate", loaded["duplicate"], f"repeated ids; {counts.retries:,} deliveries were retries", "bold"
    yield "quarantined", loaded["quarantined"], "stored with a reason:", "bold yellow"


def _reasons(counts: SendCounts, quarantined_count: int, *, is_alone: bool) -> list[tuple[str, int, str]]:
    """Return reasons, counts and examples. The responses contain all reasons but the one that only loading detects."""
    rest = str(Reason.ID_CONFLICT) if is_alone else "other reasons"
    sentence = Reason.ID_CONFLICT.sentence if is_alone else "detected by the loader, or from other senders"
    reasons = counts.rejected + Counter({rest: quarantined_count - counts.rejected.total()})
    examples = {rest: sentence} | counts.examples
    ordered = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(reason, count, examples[reason]) for reason, count in ordered]


def _cut(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _row_count(count: int, shown: ReportTable) -> str:
    if count <= ROWS_SHOWN:
        return f"{count} rows"
    return f"{ROWS_SHOWN} of {count} rows, most {shown.columns[shown.order_by]} first"


def _cell(column: str, value: Any) -> Text:
    if value is None:
        return Text("–", "dim")
    if column in _FORMATS:
        return Text(_FORMATS[column](value))
    return Text(f"{value:,}" if isinstance(value, int) else str(value))
