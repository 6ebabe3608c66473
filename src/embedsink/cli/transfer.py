"""`embedsink export` and `embedsink import`: raw events out and in."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embedsink.cli.options import DATA, Data, KeyOption, Url, examples, or_through_a_server, same_place, server_at
from embedsink.cli.output import FAILED, fail, say, strip_control, written_whole

if TYPE_CHECKING:
    from rich.progress import Progress

    from embedsink.store.reader import Reader
    from embedsink.transfer.bulk_import import Sums

EXPORT_EXAMPLES = examples(
    "embedsink export -o events.ndjson --data data",
    "embedsink export -o events.parquet",
)
IMPORT_EXAMPLES = examples(
    "embedsink import events.ndjson --data data",
    "embedsink import events.ndjson.gz",
    "EMBEDSINK_KEY=es_ingest_… embedsink import events.ndjson --url https://engine.example.com",
)
SUFFIXES = (".ndjson", ".csv", ".parquet")


def export_file(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write to this .ndjson, .csv or .parquet file.")
    ],
    data: Data = DATA,
) -> None:
    """Write all raw events to a file, as of the last snapshot. A running server is not disturbed.

    .ndjson holds every event and action as a delivery, one a line; `import` takes them back with their ids and times.
    What was rejected or lost, and results of dbt syncs, are not in it: `embedsink backup` has all of it. .csv and
    .parquet hold the rows of the event table; in .csv, text that a spreadsheet would take for a formula gets an
    apostrophe.
    """
    if output.suffix not in SUFFIXES:
        there_are = ", ".join(SUFFIXES)
        raise typer.BadParameter(f"-o {output.name}: does not say what to write. End it with one of {there_are}.")
    from embedsink.data_folder import DataFolder
    from embedsink.settings import read_settings
    from embedsink.store.reader import EVERYTHING, open_snapshot

    variables = {**EVERYTHING, "service_name": read_settings().service_name}
    with open_snapshot(DataFolder(data).snapshot, variables) as reader, written_whole(output) as part:
        _export(reader, part, output.suffix)
    say(f"{output}: {output.stat().st_size:,} bytes written.")


def _export(reader: "Reader", part: Path, suffix: str) -> None:
    from embedsink.transfer import bulk_import

    with _progress() as progress:
        task = progress.add_task("Exporting", total=None)
        if suffix == ".parquet":
            bulk_import.export_parquet(reader, part)
            return
        export = bulk_import.export_csv if suffix == ".csv" else bulk_import.export_ndjson
        with part.open("wb") as file:
            export(reader, file, lambda count: progress.advance(task, count))


def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="NDJSON of envelopes or deliveries, also in gzip.", exists=True, dir_okay=False
        ),
    ],
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Take in a file, into a data folder that no server has open, or through a server with --url.

    It takes what `export` writes, or anything that a page could send. The rows of GET /api/v1/events.ndjson are no
    envelopes, and are rejected.
    What is not valid is quarantined with its reason, as if a page had sent it. Every envelope counts once, however
    often the file is imported. Locally each delivery's receivedAt is kept, and what is rejected is quarantined once.
    Exit code 1 when anything in the file did not get in: it was rejected, or could not be sent.
    """
    from embedsink.transfer.bulk_import import Sums

    sums = Sums()
    try:
        if url is not None:
            _import_there(file, url, key, sums)
        else:
            with or_through_a_server():
                asyncio.run(_import_here(file, data, sums))
    except BaseException:
        if sums != Sums():
            _tell(sums, same_place(data, url))
        raise
    _tell(sums, same_place(data, url))
    if sums.rejected or sums.unsent:
        raise typer.Exit(FAILED)


async def _import_here(file: Path, data: Path, sums: "Sums") -> None:
    from embedsink.data_folder import DataFolder
    from embedsink.engine import Engine
    from embedsink.settings import read_settings
    from embedsink.transfer import bulk_import
    from embedsink.transfer.import_file import read_deliveries

    settings = read_settings()
    async with Engine(DataFolder(data), settings) as engine:
        with _reading(file, settings.body_bytes_max) as lines:
            await bulk_import.import_here(engine, read_deliveries(lines, engine.rules, is_remote=False), sums)
        say("Loading …")
    sums.repeated = engine.loader.status.duplicate_count
    if engine.loader.status.trouble:
        fail(f"{engine.loader.status.trouble}. Everything is in the journal; `embedsink serve` loads it.")


def _import_there(file: Path, url: str, key: str | None, sums: "Sums") -> None:
    from embedsink.settings import read_settings
    from embedsink.transfer import bulk_import
    from embedsink.transfer.import_file import read_deliveries

    remote, settings = server_at(url, key), read_settings()
    with _reading(file, settings.body_bytes_max) as lines:
        bulk_import.import_there(remote, read_deliveries(lines, settings.rules(), is_remote=True), sums)


def _tell(sums: "Sums", where: str) -> None:
    repeated = f"; {sums.repeated:,} of them were there already" if sums.repeated else ""
    unsent = f"; {sums.unsent:,} could not be sent" if sums.unsent else ""
    say(f"accepted {sums.accepted:,}, rejected {sums.rejected:,}{repeated}{unsent}.")
    for reason in sums.reasons:
        say(f"  {strip_control(reason)}")
    if hidden := sums.rejected + sums.unsent - len(sums.reasons):
        say(f"  … and {hidden:,} more.")
    if sums.rejected:
        say(f"`embedsink quarantine list {where}` shows what was rejected.")
    if sums.unsent:
        say("What could not be sent is in the file alone.")


@contextmanager
def _reading(file: Path, bytes_max: int) -> Iterator[Iterator[tuple[int, bytes]]]:
    from embedsink.transfer.numbered_lines import opened_lines

    with _progress() as progress:
        task = progress.add_task("Importing", total=file.stat().st_size)
        with opened_lines(file, bytes_max=bytes_max, on_read=lambda count: progress.advance(task, count)) as lines:
            yield lines


def _progress() -> "Progress":
    """A bar on stderr where a person looks, and nothing where nobody does."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
