"""`scripts/bench`: the command line of the benchmarks."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import abuse, deliveries, ingest, pages, reports, size, start, visible, watched
from bench.results import Result, results_table, write_json
from embedsink.errors import EmbedsinkError

MEASUREMENTS: dict[str, Callable[..., Iterator[Result]]] = {
    "ingest": ingest.measure,
    "deliveries": deliveries.measure,
    "size": size.measure,
    "visible": visible.measure,
    "watched": watched.measure,
    "abuse": abuse.measure,
    "start": start.measure,
    "reports": reports.measure,
    "pages": pages.measure,
}


def _report(results: Iterable[Result], json: Path | None) -> None:
    """Print the results, including those from before an error."""
    # Tables in files and pipes may be wider than 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=140)
    measured: list[Result] = []
    try:
        with console.status("measuring"):
            measured.extend(results)
    finally:
        table, others = reports.reports_table(measured)
        if table.rows:
            console.print(table)
        if others:
            console.print(results_table(others))
        if json is not None:
            write_json(measured, json)


app = typer.Typer(no_args_is_help=True, add_completion=False, result_callback=_report)
for _name, _measure in MEASUREMENTS.items():
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
    for measure in MEASUREMENTS.values():
        yield from measure()


if __name__ == "__main__":
    try:
        app()
    except EmbedsinkError as error:
        sys.exit(f"bench: {error}")
