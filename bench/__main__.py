"""`scripts/bench`: which measurements there are, and what is done with their findings."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import abuse, deliveries, ingest, pages, reports, size, start, visible, watched
from bench.child import BenchError
from bench.finding import Finding, show, write_json
from bench.wrk import require_wrk

REPOSITORY = Path(__file__).parent.parent

app = typer.Typer(
    help="Measure every number that README claims. Speeds are ratios within one run: a machine's own speed drifts.",
    no_args_is_help=True,
    add_completion=False,
)
# Tables into a file or a pipe need not fit 80 columns.
console = Console() if sys.stdout.isatty() else Console(width=140)

Seconds = Annotated[float, typer.Option(min=1, help="Length of each burst of load.")]
Rounds = Annotated[int, typer.Option(min=1, help="How many bursts; of which the median counts.")]
DataRoot = Annotated[Path, typer.Option(help="Where temporary data folders are made: its disk is what is measured.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the findings here too, with every round.")]


@app.command("ingest")
def run_ingest(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Single events, durable, by turns with an empty handler."""
    _run([lambda: ingest.measure(seconds=seconds, rounds=rounds, root=data_root)], json)


@app.command("deliveries")
def run_deliveries(
    seconds: Seconds = 6, rounds: Rounds = 3, data_root: DataRoot = REPOSITORY, json: Json = None
) -> None:
    """Deliveries of 100 events while loading goes on; memory; whether nothing is lost."""
    _run([lambda: deliveries.measure(seconds=seconds, rounds=rounds, root=data_root)], json)


@app.command("size")
def run_size(data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Bytes an event in the store."""
    _run([lambda: size.measure(root=data_root)], json)


@app.command("visible")
def run_visible(data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Seconds from the 202 until a report counts the event."""
    _run([lambda: visible.measure(root=data_root)], json)


@app.command("watched")
def run_watched(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Single events, durable, while ten people look at dashboards, by turns with nobody looking."""
    _run([lambda: watched.measure(seconds=seconds, rounds=rounds, root=data_root)], json)


@app.command("abuse")
def run_abuse(
    names: Annotated[list[str] | None, typer.Argument(help="Attacks; all of them, when none is named.")] = None,
    seconds: Seconds = 5,
    data_root: DataRoot = REPOSITORY,
    json: Json = None,
) -> None:
    """Honest single events at a steady pace, alone and beside each attack."""
    _run([lambda: abuse.measure(seconds=seconds, root=data_root, only=names or [])], json)


@app.command("start")
def run_start(
    events: Annotated[int, typer.Option(min=1_000, help="How many events are made.")] = 1_000_000,
    data_root: DataRoot = REPOSITORY,
    json: Json = None,
) -> None:
    """Seconds until `--help` is printed, until `serve` is ready, and until a new event is visible then."""
    _run([lambda: start.measure(event_count=events, root=data_root)], json)


@app.command("reports")
def run_reports(
    names: Annotated[list[str] | None, typer.Argument(help="Reports; all of them, when none is named.")] = None,
    events: Annotated[int, typer.Option(min=1_000, help="How many events are made.")] = 10_000_000,
    data_root: DataRoot = REPOSITORY,
    json: Json = None,
) -> None:
    """Every report over 10 million events, by turns with the same SELECT typed by hand."""
    _run([lambda: reports.measure(event_count=events, only=names or [], root=data_root)], json, shown_by=reports.show)


@app.command("pages")
def run_pages(
    rounds: Rounds = 3,
    events: Annotated[int, typer.Option(min=1_000, help="How many events are made.")] = 10_000_000,
    days: Annotated[int, typer.Option(min=1, max=90, help="How long the period is that is looked at.")] = 30,
    data_root: DataRoot = REPOSITORY,
    json: Json = None,
) -> None:
    """Every dashboard over 30 days of 10 million events, in Chromium: the first paint, and all tiles."""
    _run([lambda: pages.measure(event_count=events, days=days, rounds=rounds, root=data_root)], json)


@app.command("all")
def run_all(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Everything, one after the other."""
    measurements = [
        lambda: ingest.measure(seconds=seconds, rounds=rounds, root=data_root),
        lambda: deliveries.measure(seconds=seconds, rounds=rounds, root=data_root),
        lambda: size.measure(root=data_root),
        lambda: visible.measure(root=data_root),
        lambda: watched.measure(seconds=seconds, rounds=rounds, root=data_root),
        lambda: abuse.measure(seconds=seconds, root=data_root, only=[]),
        lambda: start.measure(event_count=1_000_000, root=data_root),
        lambda: reports.measure(event_count=10_000_000, only=[], root=data_root),
        lambda: pages.measure(event_count=10_000_000, days=30, rounds=3, root=data_root),
    ]
    _run(measurements, json)


def _run(
    measurements: list[Callable[[], list[Finding]]],
    path: Path | None,
    *,
    shown_by: Callable[[list[Finding], Console], None] = show,
) -> None:
    findings: list[Finding] = []
    try:
        require_wrk()
        for measure in measurements:
            with console.status("measuring"):
                found = measure()
            shown_by(found, console)
            findings += found
    except BenchError as error:
        console.print(f"[red]bench:[/] {error}", highlight=False)
        raise typer.Exit(1) from None
    finally:
        if path is not None:
            write_json(findings, path)


if __name__ == "__main__":
    app()
