"""`embedsink audit`: the entries of the audit trail of a data folder."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from embedsink.cli.options import DATA, Data, Since, Until, UsageError, examples
from embedsink.cli.output import atomic_write, print_message
from embedsink.cli.tables import print_rows, print_table, terminal_width
from embedsink.data_folder import DataFolder, require_folder

EXAMPLES = examples(
    "embedsink audit --data data",
    "embedsink audit --since 7d --action login_failed",
    "embedsink audit --actor k_0123456789ab --limit 10",
    "embedsink audit --since 2026-11-01 --format csv > audit.csv",
)
TABLE = "table"
FORMATS = (TABLE, "csv", "json", "ndjson")


def _parse_format(text: str) -> str:
    """Return the name of a format unchanged, or raise a usage error if it is not a format."""
    if text not in FORMATS:
        raise UsageError(f'--format: "{text}" is not a format. Formats: {", ".join(FORMATS)}.')
    return text


def audit(
    since: Since = None,
    until: Until = None,
    action: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this action, such as login, export or key_created.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only this actor, by its id or label, such as cli:root.")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="In a table, the newest N entries. Files have all entries.")
    ] = 100,
    format: Annotated[str, typer.Option(metavar="|".join(FORMATS), help="The format.", parser=_parse_format)] = TABLE,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="The output file.")] = None,
    data: Data = DATA,
) -> None:
    """Show who did what: logins, keys, settings, exports and replays. A running server is not affected.

    The table has the newest entries first. The other formats have all entries that match, the oldest first. Times are
    in UTC. `embedsink doctor` verifies the hash chain of the entries.
    """
    from embedsink.reports.audit_entries import AuditFilter

    if format == TABLE and output is not None:
        raise UsageError(f"-o {output}: a table can't be written to a file. Add --format csv, json or ndjson.")
    selected = AuditFilter.parse({"since": since, "until": until, "action": action, "actor": actor})
    folder = DataFolder(require_folder(data))
    if format == TABLE:
        _print_table(folder, selected, limit)
    else:
        _write(folder, selected, format, output)


def _print_table(folder: DataFolder, selected: Any, limit: int) -> None:
    """Print the newest entries, fitted to the width of a terminal."""
    from embedsink.reports.audit_entries import COLUMNS, newest_entries
    from embedsink.store.audit_reader import open_audit_reader

    files = selected.files(folder.audit)
    with open_audit_reader(files, selected.variables()) as reader:
        rows, next_cursor = newest_entries(reader, files, limit=limit)
    if not rows:
        print_message("No entry matches.")
        return
    values = [[row[name] for name in COLUMNS] for row in rows]
    width = terminal_width()
    if width is None:
        print_table(COLUMNS, values)
    else:
        print_rows(COLUMNS, values, width=width)
    if next_cursor is not None:
        print_message(f"Only the newest {limit:,} entries are shown. Raise --limit to show more.")


def _write(folder: DataFolder, selected: Any, format: str, output: Path | None) -> None:
    """Write all entries to a file, or to stdout if there is no file."""
    from embedsink.reports.audit_entries import EXPORT
    from embedsink.reports.csv_writer import csv_chunks
    from embedsink.reports.format_writers import json_chunks, ndjson_chunks
    from embedsink.store.audit_reader import open_audit_reader

    writers = {"csv": csv_chunks, "json": json_chunks, "ndjson": ndjson_chunks}
    with open_audit_reader(selected.files(folder.audit), selected.variables()) as reader:
        chunks = writers[format](reader, EXPORT)
        if output is None:
            sys.stdout.buffer.writelines(chunks)
            sys.stdout.buffer.flush()
        else:
            with atomic_write(output) as temporary, temporary.open("wb") as file:
                file.writelines(chunks)
