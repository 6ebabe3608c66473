"""`scripts/bench`: the command line of the benchmarks."""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import (
    abuse,
    deduplication,
    deliveries,
    growth,
    ingest,
    pages,
    reports,
    size,
    start,
    tokens,
    visible,
    watched,
)
from bench.results import Result, results_table, write_json
from embedsink.errors import EmbedsinkError

BENCHMARKS: dict[str, Callable[..., Iterator[Result]]] = {
    "ingest": ingest.measure,
    "tokens": tokens.measure,
    "deliveries": deliveries.measure,
    "deduplication": deduplication.measure,
    "size": size.measure,
    "visible": visible.measure,
    "watched": watched.measure,
    "abuse": abuse.measure,
    "start": start.measure,
    "reports": reports.measure,
    "pages": pages.measure,
    "growth": growth.measure,
}


# The width of tables in files and pipes, where rich would assume 80 columns.
FILE_COLUMNS = 140


def _report(results: Iterable[Result], json: Path | None) -> None:
    """Print the results. After an error, print those that were measured before it."""
    console = Console() if sys.stdout.isatty() else Console(width=FILE_COLUMNS)
    measured: list[Result] = []
    try:
        with console.status("measuring"):
            measured.extend(results)
    finally:
        table, other_results = reports.reports_table(measured)
        if table.rows:
            console.print(table)
        if other_results:
            console.print(results_table(other_results))
        if json is not None:
            write_json(measured, json)


app = typer.Typer(no_args_is_help=True, add_completion=False, result_callback=_report)
for _name, _measure in BENCHMARKS.items():
    app.command(_name)(_measure)


@app.callback()
def read_options(
    json: Annotated[Path | None, typer.Option(help="Also write the results to this file, with every round.")] = None,
) -> None:
    """Measure the numbers in docs/benchmarks.md.

    Speeds are ratios within one run, because the speed of a machine drifts.
    """


@app.command("all")
def measure_all() -> Iterator[Result]:
    """Run all benchmarks with their default options, one after another."""
    for measure in BENCHMARKS.values():
        yield from measure()


def _exit_on_signal(number: int, _: object) -> None:
    """Exit with an exception, so that each context manager stops its server and deletes its data folder."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        app()
    except EmbedsinkError as error:
        sys.exit(f"bench: {error}")
