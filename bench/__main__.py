"""`scripts/bench`: the command line of the benchmarks."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import abuse, deliveries, ingest, pages, reports, size, start, visible, watched
from bench.results import Result, show, write_json
from bench.wrk import require_wrk
from embedsink.errors import EmbedsinkError

REPOSITORY = Path(__file__).parent.parent
EVENTS = 10_000_000
START_EVENTS = 1_000_000

app = typer.Typer(
    help="Measure every number in README. Speeds are ratios within one run, because the speed of a machine drifts.",
    no_args_is_help=True,
    add_completion=False,
)
# Tables in files and pipes may be wider than 80 columns.
console = Console() if sys.stdout.isatty() else Console(width=140)

Measure = Callable[[], list[Result]]
Seconds = Annotated[float, typer.Option(min=1, help="The length of each burst of load.")]
Rounds = Annotated[int, typer.Option(min=1, help="The number of rounds. The result is their median.")]
Events = Annotated[int, typer.Option(min=1_000, help="The number of events in the store.")]
Days = Annotated[int, typer.Option(min=1, max=90, help="The length of the period on the dashboards.")]
DataRoot = Annotated[Path, typer.Option(help="The folder for temporary data folders. Its disk is measured.")]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the results to this file, with every round.")]


@app.command("ingest")
def run_ingest(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Throughput, latency and CPU time of single events on 64 connections, against an empty handler."""
    _run([lambda: ingest.measure(seconds=seconds, rounds=rounds, root=data_root)], json)


@app.command("deliveries")
def run_deliveries(
    seconds: Seconds = 6, rounds: Rounds = 3, data_root: DataRoot = REPOSITORY, json: Json = None
) -> None:
    """Throughput, memory and loader backlog of deliveries with 100 events, and a check that no event is lost."""
    _run([lambda: deliveries.measure(seconds=seconds, rounds=rounds, root=data_root)], json)


@app.command("size")
def run_size(data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Bytes of an event in the store, after a quarter of a million and after a million events."""
    _run([lambda: size.measure(root=data_root)], json)


@app.command("visible")
def run_visible(data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Seconds from the 202 of an event until a report counts it, under light load."""
    _run([lambda: visible.measure(root=data_root)], json)


@app.command("watched")
def run_watched(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Throughput and latency of single events while ten readers have dashboards open, against none."""
    _run([lambda: watched.measure(seconds=seconds, rounds=rounds, root=data_root)], json)


@app.command("abuse")
def run_abuse(
    names: Annotated[list[str] | None, typer.Argument(help="The attacks to run. Default: all.")] = None,
    seconds: Seconds = 5,
    data_root: DataRoot = REPOSITORY,
    json: Json = None,
) -> None:
    """Latency of honest single events at a steady rate during each attack, and the server's memory."""
    _run([lambda: abuse.measure(seconds=seconds, root=data_root, only=names or [])], json)


@app.command("start")
def run_start(events: Events = START_EVENTS, data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """Seconds of `embedsink --help`, of a server's start, and until the first event after it is visible."""
    _run([lambda: start.measure(event_count=events, root=data_root)], json)


@app.command("reports")
def run_reports(
    names: Annotated[list[str] | None, typer.Argument(help="The reports to run. Default: all.")] = None,
    events: Events = EVENTS,
    data_root: DataRoot = REPOSITORY,
    json: Json = None,
) -> None:
    """Milliseconds of each report over a day, 30 days and all time, against the same SELECT written by hand."""
    _run([lambda: reports.measure(event_count=events, only=names or [], root=data_root)], json, show=reports.show)


@app.command("pages")
def run_pages(
    rounds: Rounds = 3, events: Events = EVENTS, days: Days = 30, data_root: DataRoot = REPOSITORY, json: Json = None
) -> None:
    """Milliseconds until the first paint and until all tiles of each dashboard in Chromium, over 30 days."""
    _run([lambda: pages.measure(event_count=events, days=days, rounds=rounds, root=data_root)], json)


@app.command("all")
def run_all(seconds: Seconds = 6, rounds: Rounds = 5, data_root: DataRoot = REPOSITORY, json: Json = None) -> None:
    """All benchmarks, one after another."""
    _run(
        [
            lambda: ingest.measure(seconds=seconds, rounds=rounds, root=data_root),
            lambda: deliveries.measure(seconds=seconds, rounds=rounds, root=data_root),
            lambda: size.measure(root=data_root),
            lambda: visible.measure(root=data_root),
            lambda: watched.measure(seconds=seconds, rounds=rounds, root=data_root),
            lambda: abuse.measure(seconds=seconds, root=data_root, only=[]),
            lambda: start.measure(event_count=START_EVENTS, root=data_root),
            lambda: reports.measure(event_count=EVENTS, only=[], root=data_root),
            lambda: pages.measure(event_count=EVENTS, days=30, rounds=3, root=data_root),
        ],
        json,
    )


def _run(
    measurements: list[Measure], path: Path | None, *, show: Callable[[list[Result], Console], None] = show
) -> None:
    results: list[Result] = []
    try:
        require_wrk()
        for measure in measurements:
            with console.status("measuring"):
                measured = measure()
            show(measured, console)
            results += measured
    except EmbedsinkError as error:
        console.print(f"[red]bench:[/] {error}", highlight=False)
        raise typer.Exit(1) from None
    finally:
        if path is not None:
            write_json(results, path)


if __name__ == "__main__":
    app()
