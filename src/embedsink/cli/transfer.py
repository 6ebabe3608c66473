"""`embedsink export` and `embedsink import`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embedsink.audit.entry import Action
from embedsink.cli.archive_export import export_to_archive
from embedsink.cli.options import (
    DATA,
    UNKNOWN_VIEWER,
    Data,
    KeyOption,
    OneDeployment,
    Since,
    Until,
    Url,
    UsageError,
    as_of_phrase,
    connect,
    examples,
    snapshot_time,
    source_option,
    suggesting_url,
)
from embedsink.cli.output import FAILED, atomic_write, escape_control, fail, print_message
from embedsink.cli.recording import recorded

if TYPE_CHECKING:
    from rich.progress import Progress

    from embedsink.settings import Settings
    from embedsink.store.reader import Reader
    from embedsink.transfer.bulk_import import ImportCounts

EXPORT_EXAMPLES = examples(
    "embedsink export -o events.ndjson --data data",
    "embedsink export -o events.parquet",
    "embedsink export --viewer u_42 -o person.zip",
    "embedsink export --archive /var/archive --until 2026-07-01",
)
IMPORT_EXAMPLES = examples(
    "embedsink import events.ndjson --data data",
    "embedsink import events.ndjson.gz",
    "embedsink import /var/archive/2026-08 --data data",
    "EMBEDSINK_KEY=es_ingest_… embedsink import events.ndjson --url https://events.example.com",
)
SUFFIXES = (".ndjson", ".csv", ".parquet")
PERSON_SUFFIX = ".zip"


def export_file(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The output file: .ndjson, .csv or .parquet; with --viewer, .zip."
        ),
    ] = None,
    archive: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Write an archive to this folder or s3:// URL instead.")
    ] = None,
    viewer: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Write what is stored about this person instead.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="TEXT", help="With --viewer: only in this tenant.")] = None,
    deployment: OneDeployment = None,
    since: Since = None,
    until: Until = None,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Write all raw events of the last snapshot to a file. A running server is not affected.

    .ndjson has every event and action as a delivery, one per line. `import` restores them with their ids and times.
    Rejections, losses and results of dbt syncs are not exported; `embedsink backup` includes them. .csv and .parquet
    have the rows of the event table. In .csv, text that a spreadsheet would treat as a formula gets an apostrophe.

    With --viewer, a ZIP has what the last snapshot has about one person: events, actions, rejections, losses, and the
    user in the directory. Hashed viewers are found too. docs/privacy.md lists what it lacks.

    With --archive, the events, actions and losses that an archive lacks are added to it, as the retention does with
    EMBEDSINK_ARCHIVE. --since and --until limit them by their times. --url archives the snapshot of a server; its key
    must have no scope. `import` restores an archive.
    """
    if archive is not None:
        if output is not None or viewer is not None:
            raise UsageError("--archive: is an output of its own. Omit -o and --viewer.")
        export_to_archive(archive, data, since=since, until=until, url=url, key=key)
        return
    _refuse_archive_options(viewer, since=since, until=until, url=url)
    if output is None:
        raise UsageError("-o: is missing. Name the output file, or an archive with --archive.")
    if viewer is not None:
        _export_person(output, viewer, tenant, deployment, data)
        return
    if tenant is not None or deployment is not None:
        raise UsageError("--tenant, --deployment: apply to --viewer only. Add it, or omit them.")
    _export_events(output, data)


def _refuse_archive_options(viewer: str | None, **options: object) -> None:
    """Raise UsageError if options of an archive are given without one."""
    if viewer is not None and options["url"] is not None:
        raise UsageError(
            "--url: an access request needs the data folder. Run it on the server's machine, with --data. A running "
            "server is not affected."
        )
    if any(option is not None for option in options.values()):
        raise UsageError("--since, --until, --url: apply to --archive only. Add it, or omit them.")


def _export_events(output: Path, data: Path) -> None:
    """Write all raw events of the last snapshot to a file, and print its size."""
    if output.suffix not in SUFFIXES:
        raise UsageError(f"-o {output.name}: the suffix is not a format. Formats: {', '.join(SUFFIXES)}.")
    from embedsink.data_folder import DataFolder
    from embedsink.key_scope import EVERYTHING
    from embedsink.settings import read_settings
    from embedsink.store.snapshot_reader import open_snapshot

    variables = {**EVERYTHING.variables(), "service_name": read_settings().service_name}
    folder = DataFolder(data)
    with (
        open_snapshot(folder.snapshot, variables) as reader,
        recorded(folder, Action.EXPORT, target=f"events{output.suffix}", is_required=False),
        atomic_write(output) as temporary,
    ):
        _export(reader, temporary, output.suffix)
    print_message(f"{output}: {output.stat().st_size:,} bytes written.")


def _export_person(output: Path, viewer: str, tenant: str | None, deployment: int | None, data: Path) -> None:
    """Write everything about a person to a ZIP, and print what was found."""
    if output.suffix != PERSON_SUFFIX:
        raise UsageError(f"-o {output.name}: with --viewer, the output is a ZIP. Use the suffix {PERSON_SUFFIX}.")
    if not viewer:
        raise UsageError("--viewer: is empty. Give the id that the host page sends.")
    from embedsink.audit.changes import secret_file_of
    from embedsink.data_folder import DataFolder
    from embedsink.privacy.person import Person
    from embedsink.privacy.redaction import Privacy
    from embedsink.settings import read_settings
    from embedsink.store.snapshot_reader import open_snapshot
    from embedsink.transfer.access_request import write_person

    folder = DataFolder(data)
    privacy = Privacy(secrets=secret_file_of(folder).read())
    if tenant == "":
        raise UsageError("--tenant: is empty. Give a tenant, or omit the option.")
    person = Person.within(viewer, tenant=tenant, deployment=deployment)
    settings = read_settings()
    variables = {
        **person.variables(privacy),
        "service_name": settings.service_name,
        # Another viewer who was erased may have sent the events without a viewer.
        "excludes_formerly_shared": True,
    }
    # The audit trail says that a person's data was exported, but not whose.
    with (
        open_snapshot(folder.snapshot, variables) as reader,
        recorded(folder, Action.EXPORT, target=f"person{PERSON_SUFFIX}", is_required=False),
        atomic_write(output, mode=0o600) as temporary,
        temporary.open("wb") as file,
    ):
        counts = write_person(reader, person, privacy, file, snapshot_at=snapshot_time(data))
    found = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    waiting = f"wait {settings.snapshot_interval_s:g} s if a server runs, or run `embedsink snapshot`, and export again"
    print_message(f"{output}: {found}, {as_of_phrase(data, None)}. For later events, {waiting}.")
    if not any(counts.values()):
        print_message(UNKNOWN_VIEWER)


def _export(reader: "Reader", path: Path, suffix: str) -> None:
    """Write all events to a file in the format of this suffix, with a progress bar."""
    from embedsink.transfer import export

    with _progress_bar() as progress:
        task = progress.add_task("Exporting", total=None)
        if suffix == ".parquet":
            export.export_parquet(reader, path)
            return
        chunks = export.export_csv(reader) if suffix == ".csv" else export.export_ndjson(reader)
        with path.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
                progress.advance(task, len(chunk))


def import_file(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="NDJSON of envelopes or deliveries, optionally gzipped; or an archive."),
    ],
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Import a file into a data folder that no server has open, or through a server with --url.

    The file is an .ndjson output of `export`, or has the envelopes and deliveries that a page would send. The rows of
    GET /api/v1/events.ndjson are not envelopes, and are rejected. Invalid envelopes are quarantined with their reason.

    Importing a file again counts no event twice. An import into a data folder retains the receivedAt of deliveries, and
    does not quarantine a rejection again, except an id conflict. The exit code is 1 if anything in the file was
    rejected or could not be imported.

    An archive is a folder or an s3:// URL of EMBEDSINK_ARCHIVE or of `export --archive`, a month in it, or a .parquet
    file in it. Its checksums are compared first. It can only be imported into a data folder: only then are its events
    compared with all stored ones.
    """
    from embedsink.transfer.archive_import import is_archive
    from embedsink.transfer.bulk_import import ImportCounts

    counts = ImportCounts()
    try:
        if is_archive(file):
            _refuse_url(file, url)
            with suggesting_url():
                asyncio.run(_import_archive(file, data, counts))
        elif url is not None:
            _import_to_server(_regular_file(file), url, key, counts)
        else:
            with suggesting_url():
                asyncio.run(_import_file(_regular_file(file), data, counts))
    except BaseException:
        # Print the counts so far, even after Ctrl-C.
        has_counts = counts != ImportCounts()
        if has_counts:
            _print_counts(counts, source_option(data, url))
        raise
    _print_counts(counts, source_option(data, url))
    if counts.rejected or counts.unsent:
        raise typer.Exit(FAILED)


def _regular_file(text: str) -> Path:
    """Return the path of a file to import, or raise a usage error."""
    file = Path(text)
    if not file.exists():
        raise UsageError(f"{text}: does not exist.")
    if not file.is_file():
        # Ctrl-C can't interrupt a thread that reads a pipe.
        raise UsageError(f"{file}: is a pipe or a device. Write its content to a regular file, and import that.")
    return file


def _refuse_url(file: str, url: str | None) -> None:
    """Raise a usage error if an archive is imported through a server, which compares ids with recent events only."""
    if url is not None:
        raise UsageError(
            f"--url: {file} is an archive, and a server would count events twice that it has received earlier. Stop "
            "the server, and use --data."
        )


async def _import_file(file: Path, data: Path, counts: "ImportCounts") -> None:
    """Import a file of NDJSON into a data folder, and update `counts` during the import."""
    from embedsink.settings import read_settings

    settings = read_settings()
    with _numbered_lines(file, settings.body_bytes_max) as lines:
        await _import_lines(lines, data, settings, counts, target=file.name)


async def _import_archive(text: str, data: Path, counts: "ImportCounts") -> None:
    """Import an archive into a data folder, and update `counts` during the import."""
    from embedsink.settings import read_settings
    from embedsink.transfer.archive_import import ArchiveImport

    settings = read_settings()
    archive = ArchiveImport(text)
    if archive.unlisted:
        print_message(
            f"Warning: files that are in no manifest are not imported: {', '.join(archive.unlisted)}. "
            "If a manifest is lost, restore it, or import each of these months from another copy."
        )
    print_message(f"Checking {len(archive.files):,} files with {archive.row_count:,} rows …")
    archive.check()
    await _import_lines(archive.lines(settings.service_name), data, settings, counts, target=text)


async def _import_lines(
    lines: Iterator[tuple[int, bytes]], data: Path, settings: "Settings", counts: "ImportCounts", *, target: str
) -> None:
    """Import numbered lines into a data folder, and update `counts` during the import.

    Exit with an error message if an imported event could not be loaded.
    """
    from embedsink.data_folder import DataFolder
    from embedsink.engine import Engine
    from embedsink.transfer import bulk_import
    from embedsink.transfer.import_file import read_deliveries
    from embedsink.transfer.late_events import count_late_events

    async with Engine(DataFolder(data), settings) as engine:
        # The counts are those of the file, so first load what the journal already has.
        if not bulk_import.has_loaded_journal(engine) and not engine.loader.status.error:
            print_message("Loading earlier events …")
            await bulk_import.wait_for_earlier_events(engine)
        has_loaded_earlier_events = bulk_import.has_loaded_journal(engine)
        status = engine.loader.status
        earlier_duplicate_count, earlier_conflict_count = status.duplicate_count, status.conflict_count
        earlier_number = engine.journal.last_number
        with recorded(engine.folder, Action.IMPORT, target=target):
            await bulk_import.import_to_folder(engine, read_deliveries(lines, engine.rules, is_remote=False), counts)
        print_message("Loading …")
    if has_loaded_earlier_events and bulk_import.has_loaded_journal(engine):
        counts.add_loaded(
            duplicate_count=status.duplicate_count - earlier_duplicate_count,
            conflict_count=status.conflict_count - earlier_conflict_count,
        )
    else:
        print_message("Duplicates and id conflicts were not counted, because the loader has not loaded all events.")
    if status.error:
        fail(f"{status.error} The journal has all imported events; `embedsink serve` loads them.")
    late_count = count_late_events(engine.folder.snapshot, after_number=earlier_number)
    if late_count:
        print_message(
            f"Events of days that already have daily totals: {late_count:,}. Reports by day read the totals, and don't "
            "count these events (docs/reports.md)."
        )


def _import_to_server(file: Path, url: str, key: str | None, counts: "ImportCounts") -> None:
    """Import a file through a server, and update `counts` during the import."""
    from embedsink.settings import read_settings
    from embedsink.transfer import bulk_import
    from embedsink.transfer.import_file import read_deliveries

    client = connect(url, key)
    settings = read_settings()
    with _numbered_lines(file, settings.body_bytes_max) as lines:
        bulk_import.import_to_server(client, read_deliveries(lines, settings.rules(), is_remote=True), counts)


def _print_counts(counts: "ImportCounts", source: str) -> None:
    """Print the counts and the first error messages of an import.

    Args:
        counts: the counts and messages.
        source: the option for suggested commands, such as `--data data`.
    """
    unsent_note = f"; {counts.unsent:,} could not be imported" if counts.unsent else ""
    print_message(f"accepted {counts.accepted:,}, rejected {counts.rejected:,}{unsent_note}.")
    if counts.conflict:
        print_message(f"  id_conflict: {counts.conflict:,} with the id of an earlier, different envelope.")
    for message in counts.messages:
        print_message(f"  {escape_control(message)}")
    unlisted_count = counts.rejected + counts.unsent - counts.conflict - len(counts.messages)
    if unlisted_count:
        print_message(f"  … and {unlisted_count:,} more.")
    if counts.duplicate:
        # Accepted and rejected envelopes can both be duplicates.
        total = counts.accepted + counts.rejected
        print_message(f"Duplicates, which do not count again: {counts.duplicate:,} of {total:,} envelopes.")
    if counts.rejected:
        print_message(f"List the rejections: `embedsink quarantine list {source}`.")
    if counts.unsent:
        print_message("Envelopes that could not be imported remain only in the file.")


@contextmanager
def _numbered_lines(file: Path, line_bytes_max: int) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Open a file, and yield an iterator of the lines with line numbers. A progress bar shows how much was read.

    A line that is longer than `line_bytes_max` is cut to one byte more, enough to reject it.
    """
    from embedsink.transfer.import_file import read_lines

    with _progress_bar() as progress, progress.open(file, "rb", description="Importing") as binary_file:
        yield read_lines(binary_file, bytes_max=line_bytes_max)


def _progress_bar() -> "Progress":
    """Return a progress bar on stderr, which is visible only if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
