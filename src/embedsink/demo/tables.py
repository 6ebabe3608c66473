"""The ledger and the reports as tables that fit into 80 columns."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from embedsink.demo.send import Account
from embedsink.reasons import Reason

ROWS_SHOWN = 6
BAR_CELLS = 10
_LABEL_CELLS = 19
_COUNT_CELLS = 6
# Every other column holds numbers.
_WORDS = frozenset({"period_start", "surface", "format", "target", "member", "agent_id"})


@dataclass(frozen=True, slots=True)
class Shown:
    """Which columns of a report the demo shows, and under which heading; the rows with most of `largest` come first."""

    name: str
    columns: dict[str, str]
    largest: str
    has_bars: bool = True


SHOWN = (
    Shown(
        "views",
        {
            "period_start": "day",
            "deployment": "deployment",
            "surface": "surface",
            "session_count": "sessions",
            "viewer_count": "viewers",
            "view_count": "views",
        },
        "view_count",
    ),
    Shown(
        "downloads",
        {
            "period_start": "day",
            "deployment": "deployment",
            "format": "format",
            "target": "target",
            "exported_row_count": "rows",
            "download_count": "downloads",
        },
        "download_count",
    ),
    Shown(
        "drilldowns",
        {
            "deployment": "deployment",
            "member": "measure",
            "viewer_count": "viewers",
            "drilldown_count": "drilldowns",
        },
        "drilldown_count",
    ),
    Shown(
        "ai_queries",
        {
            "period_start": "day",
            "deployment": "depl.",
            "surface": "surface",
            "agent_id": "agent",
            "submitted_count": "asked",
            "completed_count": "done",
            "error_count": "failed",
            "abandoned_count": "given up",
            "completed_latency_p50_ms": "p50",
        },
        "submitted_count",
        has_bars=False,
    ),
    Shown(
        "error_rates",
        {
            "period_start": "day",
            "deployment": "depl.",
            "surface": "surface",
            "error_free_session_rate": "error-free",
            "errors_per_view": "per view",
            "fatal_count": "fatal",
            "error_count": "errors",
        },
        "error_count",
    ),
)


def report_table(description: dict[str, Any], rows: list[dict[str, Any]], shown: Shown) -> Group:
    """A report's question and its largest rows, with a bar for what makes them large."""
    rows = sorted(rows, key=lambda row: -(row[shown.largest] or 0))
    most = max((row[shown.largest] for row in rows), default=0)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for column, heading in shown.columns.items():
        style = "bold cyan" if column == shown.largest else ""
        table.add_column(heading, justify="left" if column in _WORDS else "right", style=style, no_wrap=True)
    if shown.has_bars:
        table.add_column("", style="cyan", no_wrap=True)
    for row in rows[:ROWS_SHOWN]:
        cells = [_cell(column, row[column]) for column in shown.columns]
        table.add_row(*cells, *([_bar(row[shown.largest], most)] if shown.has_bars else []))
    title = Text.assemble("  ", (description["title"], "bold"), ("  ·  " + _rest(len(rows), shown), "dim"))
    question = Text("  " + description["question"], "italic")
    return Group(Text(), title, question, Padding(table, (0, 0, 0, 2)))


def ledger_table(account: Account, loaded: dict[str, int], received_count: int) -> Table:
    """Every envelope that was received, and its one outcome; below, why some were quarantined."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(width=_LABEL_CELLS, no_wrap=True)
    table.add_column(width=_COUNT_CELLS, no_wrap=True, justify="right")
    # Only a column that may wrap gives way when the table is too wide; its cells are cut instead.
    table.add_column(style="dim")
    adds_up = sum(loaded.values()) == received_count
    sum_of = "accepted + duplicate + quarantined"
    rows = [
        (
            "sent",
            account.sent_count,
            f"envelopes in {account.delivery_count:,} deliveries, all acknowledged",
            "bold",
        ),
        *_of_others(received_count - account.sent_count),
        ("accepted", loaded["accepted"], "durable, loaded, and counted once", "bold green"),
        ("duplicate", loaded["duplicate"], f"the same id again: {account.retry_count:,} deliveries came twice", "bold"),
        ("quarantined", loaded["quarantined"], "kept, each with its reason:", "bold yellow"),
    ]
    for label, count, remark, style in rows:
        table.add_row(Text(f"  {label}", style), Text(f"{count:,}", style), _cut(remark))
    for reason, count, example in _why(account, loaded["quarantined"], is_alone=received_count == account.sent_count):
        table.add_row(Text(f"    {reason}", "yellow"), Text(f"{count:,}"), _cut(example))
    table.add_row()
    if adds_up:
        table.add_row(Text("  ✓ sum", "bold green"), Text(f"{received_count:,}", "bold green"), f"received = {sum_of}")
    else:
        table.add_row(
            Text("  ✗ sum", "bold red"), Text(f"{sum(loaded.values()):,}", "bold red"), f"{sum_of} is not received"
        )
    return table


def _of_others(count: int) -> list[tuple[str, int, str, str]]:
    return [("sent by others", count, "from the demo's page, or with curl", "bold")] if count else []


def _why(account: Account, quarantined_count: int, *, is_alone: bool) -> list[tuple[str, int, str]]:
    """Reasons, how often and an example. The answers told them, but for the one that only loading finds."""
    rest = str(Reason.ID_CONFLICT) if is_alone else "other reasons"
    sentence = Reason.ID_CONFLICT.sentence if is_alone else "found only when it was loaded, or sent by others"
    reasons = account.rejected + Counter({rest: quarantined_count - account.rejected.total()})
    examples = {rest: sentence} | account.examples
    return [(reason, count, examples[reason]) for reason, count in sorted(reasons.items(), key=_most_first)]


def _cut(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _most_first(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def _rest(count: int, shown: Shown) -> str:
    if count <= ROWS_SHOWN:
        return f"{count} rows"
    return f"{ROWS_SHOWN} of {count} rows, most {shown.columns[shown.largest]} first"


def _bar(count: int, most: int) -> str:
    return "━" * max(1, round(BAR_CELLS * count / most)) if count and most else ""


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _duration(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s"


_WRITTEN: dict[str, Callable[[Any], str]] = {
    "period_start": lambda instant: str(instant)[:10],
    "deployment": str,
    "error_free_session_rate": _percent,
    "errors_per_view": lambda rate: f"{rate:.2f}",
    "completed_latency_p50_ms": _duration,
}


def _cell(column: str, value: Any) -> Text:
    if value is None:
        return Text("–", "dim")
    if column in _WRITTEN:
        return Text(_WRITTEN[column](value))
    return Text(f"{value:,}" if isinstance(value, int) else str(value))
