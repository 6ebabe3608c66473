"""The ledger and the reports as tables. They fit a terminal of 80 columns."""

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
_LABEL_WIDTH = 19
_COUNT_WIDTH = 6
# The left-aligned columns. All others are numbers.
_TEXT_COLUMNS = frozenset({"period_start", "surface", "format", "target", "member", "agent_id"})


class ReportTable(NamedTuple):
    """The part of a report that the demo shows."""

    name: str
    order_by: str  # the column that sorts the rows, largest first
    columns: dict[str, str]  # the headings by column


class _LedgerRow(NamedTuple):
    label: str
    envelope_count: int
    remark: str
    style: str


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
_FORMATTERS: dict[str, Callable[[Any], str]] = {
    "period_start": lambda instant: str(instant)[:10],
    "deployment": str,
    "error_free_session_rate": lambda share: f"{share:.0%}",
    "errors_per_view": lambda rate: f"{rate:.2f}",
    "completed_latency_p50_ms": lambda milliseconds: f"{milliseconds / 1000:.1f} s",
}


def report_table(description: dict[str, Any], rows: list[dict[str, Any]], layout: ReportTable) -> Group:
    """Return the title, the question and the largest rows of a report.

    Args:
        description: the report's entry in the list of reports.
        rows: all rows of the report.
        layout: the columns to show, and the column that sorts the rows.
    """

    def sort_value(row: dict[str, Any]) -> float:
        value = row[layout.order_by]
        return 0 if value is None else value

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for column, heading in layout.columns.items():
        style = "bold cyan" if column == layout.order_by else ""
        is_text = column in _TEXT_COLUMNS
        table.add_column(heading, justify="left" if is_text else "right", style=style, no_wrap=True)
    for row in sorted(rows, key=sort_value, reverse=True)[:ROWS_SHOWN]:
        table.add_row(*(_cell(column, row[column]) for column in layout.columns))
    row_count_text = f"  ·  {_row_count_text(len(rows), layout)}"
    title = Text.assemble("  ", (description["title"], "bold"), (row_count_text, "dim"))
    question = Text("  " + description["question"], "italic")
    return Group(Text(), title, question, Padding(table, (0, 0, 0, 2)))


def ledger_table(counts: SendCounts, loaded: dict[str, int], received_count: int) -> Table:
    """Return a table: the received envelopes by outcome, the quarantined envelopes by reason, and the sum of all.

    Args:
        counts: the envelopes that the demo sent, by the server's responses.
        loaded: the number of loaded envelopes by outcome.
        received_count: the number of received envelopes, including those of other senders.
    """
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(width=_LABEL_WIDTH, no_wrap=True)
    table.add_column(width=_COUNT_WIDTH, no_wrap=True, justify="right")
    # The last column has no `no_wrap`, so that rich shrinks it on narrow terminals. `_single_line` cuts its cells.
    table.add_column(style="dim")
    for row in _outcome_rows(counts, loaded, received_count):
        table.add_row(
            Text(f"  {row.label}", row.style), Text(f"{row.envelope_count:,}", row.style), _single_line(row.remark)
        )
    for row in _reason_rows(counts, loaded["quarantined"], has_other_senders=received_count != counts.sent):
        table.add_row(Text(f"    {row.label}", row.style), Text(f"{row.envelope_count:,}"), _single_line(row.remark))
    table.add_row()
    loaded_count = sum(loaded.values())
    is_equal = loaded_count == received_count
    mark, style, relation = ("✓", "bold green", "=") if is_equal else ("✗", "bold red", "≠")
    equation = f"received {relation} accepted + duplicate + quarantined"
    table.add_row(Text(f"  {mark} sum", style), Text(f"{loaded_count:,}", style), equation)
    return table


def _outcome_rows(counts: SendCounts, loaded: dict[str, int], received_count: int) -> Iterator[_LedgerRow]:
    """Yield a row for the sent envelopes, a row for other senders if there are any, and a row for each outcome."""
    delivery_remark = f"envelopes in {counts.deliveries:,} deliveries, all acknowledged"
    yield _LedgerRow("sent", counts.sent, delivery_remark, "bold")
    if received_count != counts.sent:
        yield _LedgerRow("other senders", received_count - counts.sent, "the demo page, or curl", "bold")
    yield _LedgerRow("accepted", loaded["accepted"], "durable, loaded and counted once", "bold green")
    retry_remark = f"repeated ids; {counts.retries:,} deliveries were retries"
    yield _LedgerRow("duplicate", loaded["duplicate"], retry_remark, "bold")
    yield _LedgerRow("quarantined", loaded["quarantined"], "stored with a reason:", "bold yellow")


def _reason_rows(counts: SendCounts, quarantined_count: int, *, has_other_senders: bool) -> list[_LedgerRow]:
    """Return a row for each reason of quarantine, the most frequent reason first, with an example as the remark."""
    rows = [_LedgerRow(reason, count, counts.examples[reason], "yellow") for reason, count in counts.rejected.items()]
    # The responses to the demo did not report these envelopes.
    unreported_count = quarantined_count - counts.rejected.total()
    if has_other_senders:
        label, example = "other reasons", "detected by the loader, or from other senders"
    else:
        # Responses report all reasons except id_conflict, which only the loader detects.
        label, example = str(Reason.ID_CONFLICT), Reason.ID_CONFLICT.sentence
    if unreported_count > 0:
        rows.append(_LedgerRow(label, unreported_count, example, "yellow"))
    return sorted(rows, key=lambda row: (-row.envelope_count, row.label))


def _single_line(text: str) -> Text:
    """Return text that is cut with an ellipsis instead of wrapped."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _row_count_text(count: int, layout: ReportTable) -> str:
    """Return how many of the rows of a report are shown, and their order if some are omitted."""
    if count <= ROWS_SHOWN:
        return "1 row" if count == 1 else f"{count} rows"
    return f"{ROWS_SHOWN} of {count} rows, most {layout.columns[layout.order_by]} first"


def _cell(column: str, value: Any) -> Text:
    """Return a value of a column as the text of a table cell. A missing value is a dash."""
    if value is None:
        return Text("–", "dim")
    if column in _FORMATTERS:
        return Text(_FORMATTERS[column](value))
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return Text(text)
