"""`embedsink export` and `embedsink import`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embedsink.cli.options import (
    DATA,
    Data,
    KeyOption,
    Url,
    WrongUse,
    connect,
    examples,
    source_option,
    suggesting_url,
)
from embedsink.cli.output import FAILED, atomic_write, fail, print_message, strip_control

if TYPE_CHECKING:
    from rich.progress import Progress

    from embedsink.store.reader import Reader
    from embedsink.transfer.bulk_import import ImportCounts

EXPORT_EXAMPLES = examples(
    "embedsink export -o events.ndjson --data data",
    "embedsink export -o events.parquet",
)
IMPORT_EXAMPLES = examples(
    "embedsink import events.ndjson --data data",
    "embedsink import events.ndjson.gz",
    "EMBEDSINK_KEY=es_ingest_… embedsink import events.ndjson --url https://events.example.com",
)
SUFFIXES = (".ndjson", ".csv", ".parquet")


def export_file(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The output file: .ndjson, .csv or .parquet.")
    ],
    data: Data = DATA,
) -> None:
    """Write all raw events of the last snapshot to a file. A running server is not affected.

    .ndjson has every event and action as a delivery, one a line. `import` restores them with their ids and times.
    Rejections, losses and results of dbt syncs are not included; `embedsink backup` has them. .csv and .parquet have
    the rows of the event table. In .csv, text that a spreadsheet would treat as a formula gets an apostrophe.
    """
    if output.suffix not in SUFFIXES:
        raise WrongUse(f"-o {output.name}: the suffix is not a format. Formats: {', '.join(SUFFIXES)}.")
    from embedsink.data_folder import DataFolder
    from embedsink.settings import read_settings
    from embedsink.store.reader import EVERYTHING, open_snapshot

    variables = {**EVERYTHING, "service_name": read_settings().service_name}
    with open_snapshot(DataFolder(data).snapshot, variables) as reader, atomic_write(output) as part:
        _export(reader, part, output.suffix)
    print_message(f"{output}: {output.stat().st_size:,} bytes written.")


def _export(reader: "Reader", part: Path, suffix: str) -> None:
    from embedsink.transfer import export

    with _progress() as progress:
        task = progress.add_task("Exporting", total=None)
        if suffix == ".parquet":
            export.export_parquet(reader, part)
            return
        chunks = export.export_csv(reader) if suffix == ".csv" else export.export_ndjson(reader)
        with part.open("wb") as file:
            for chunk in chunks:
                progress.advance(task, file.write(chunk))


def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="NDJSON of envelopes or deliveries, optionally gzipped.", exists=True, dir_okay=False
        ),
    ],
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Import a file into a data folder that no server has open, or through a server with --url.

    The file is an output of `export`, or has the envelopes and deliveries that a page would send. The rows of GET
    /api/v1/events.ndjson are not envelopes, and are rejected. Invalid envelopes are quarantined with their reason.

    Importing a file again counts no event twice. An import into a data folder retains the receivedAt of deliveries, and
    quarantines each rejection once. Exit code 1 if anything in the file was rejected or could not be imported.
    """
    from embedsink.transfer.bulk_import import ImportCounts

    counts = ImportCounts()
    try:
        if url is not None:
            _import_there(file, url, key, counts)
        else:
            with suggesting_url():
                asyncio.run(_import_here(file, data, counts))
    except BaseException:
        if counts != ImportCounts():
            _print_counts(counts, source_option(data, url))
        raise
    _print_counts(counts, source_option(data, url))
    if counts.rejected or counts.unsent:
        raise typer.Exit(FAILED)


async def _import_here(file: Path, data: Path, counts: "ImportCounts") -> None:
    from embedsink.data_folder import DataFolder
    from embedsink.engine import Engine
    from embedsink.settings import read_settings
    from embedsink.transfer import bulk_import
    from embedsink.transfer.import_file import read_deliveries

    settings = read_settings()
    async with Engine(DataFolder(data), settings) as engine:
        with _open_lines(file, settings.body_bytes_max) as lines:
            await bulk_import.import_to_folder(engine, read_deliveries(lines, engine.rules, is_remote=False), counts)
        print_message("Loading …")
    counts.duplicate = engine.loader.status.duplicate_count
    if engine.loader.status.error:
        fail(f"{engine.loader.status.error}. The journal has all imported events; `embedsink serve` loads them.")


def _import_there(file: Path, url: str, key: str | None, counts: "ImportCounts") -> None:
    from embedsink.settings import read_settings
    from embedsink.transfer import bulk_import
    from embedsink.transfer.import_file import read_deliveries

    client, settings = connect(url, key), read_settings()
    with _open_lines(file, settings.body_bytes_max) as lines:
        bulk_import.import_to_server(client, read_deliveries(lines, settings.rules(), is_remote=True), counts)


def _print_counts(counts: "ImportCounts", source: str) -> None:
    duplicate = f"; {counts.duplicate:,} of these had been imported before" if counts.duplicate else ""
    unsent = f"; {counts.unsent:,} could not be imported" if counts.unsent else ""
    print_message(f"accepted {counts.accepted:,}, rejected {counts.rejected:,}{duplicate}{unsent}.")
    for message in counts.messages:
        print_message(f"  {strip_control(message)}")
    if hidden_count := counts.rejected + counts.unsent - len(counts.messages):
        print_message(f"  … and {hidden_count:,} more.")
    if counts.rejected:
        print_message(f"List the rejections: `embedsink quarantine list {source}`.")
    if counts.unsent:
        print_message("Envelopes that could not be imported are stored in the file only.")


@contextmanager
def _open_lines(file: Path, bytes_max: int) -> Iterator[Iterator[tuple[int, bytes]]]:
    from embedsink.transfer.import_file import read_lines

    with _progress() as progress, progress.open(file, "rb", description="Importing") as opened:
        yield read_lines(opened, bytes_max=bytes_max)


def _progress() -> "Progress":
    """Return a progress bar on stderr, which is shown on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
