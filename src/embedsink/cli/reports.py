"""`embedsink report`: a report as a table or a file, from the data folder or from a server."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Protocol

import typer

from embedsink.cli.output import inert, say, show_table, written_whole
from embedsink.cli.words import DATA, Data, KeyOption, Url, checked, examples, server_at
from embedsink.keys import parse_deployment

EXAMPLES = examples(
    "embedsink report",
    "embedsink report views --since 2026-11-01 --interval week",
    "embedsink report downloads --deployment 12 --format csv > downloads.csv",
    "embedsink report ai_query --since 7d -o ai_query.parquet",
    "EMBEDSINK_KEY=es_read_… embedsink report views --url https://sink.example.com",
)
LISTED = ("name", "title", "question")

Asked = dict[str, Any]


class Format(StrEnum):
    """How the rows come."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def report(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A report; without one, all are listed.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on, UTC: 2026-11-01, 2026-11-01T09:30 or 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time, UTC.")] = None,
    surface: Annotated[str | None, typer.Option(metavar="NAME", help="On dashboard, app or chat alone.")] = None,
    deployment: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Of this deployment alone. Repeatable.", parser=checked(parse_deployment)),
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="TEXT", help="Of this tenant alone.")] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="NAME", help="A period is an hour, a day, a week or a month; else a day.")
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="How the rows come; else as the file's suffix says, or as a table.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.", dir_okay=False)
    ] = None,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Show a report, or which reports there are.

    From a data folder it shows the last snapshot, be a server running or not. In csv, text that a spreadsheet would
    take for a formula gets an apostrophe. On a terminal control characters are shown escaped; files and pipes get
    them as they are.
    """
    wanted = format or _format_of(output)
    source: _Source = _Folder(data) if url is None else _Server(url, key)
    if name is None:
        _list(source.listed(), wanted)
        return
    asked: Asked = {"since": since, "until": until, "surface": surface, "tenant": tenant, "interval": interval}
    asked["deployment"] = deployment or []
    if wanted is Format.TABLE:
        _show(source, name, asked)
    else:
        _write(source.chunks(name, asked, wanted), wanted, output)


class _Source(Protocol):
    """Where reports come from."""

    def listed(self) -> list[dict[str, Any]]:
        """Every report, as `/api/v1/reports` describes it."""

    def chunks(self, name: str, asked: Asked, format: Format) -> Iterable[bytes]:
        """The bytes of a report."""


class _Folder:
    def __init__(self, data: Path) -> None:
        from embedsink.folder import DataFolder

        self._snapshot = DataFolder(data).snapshot

    def listed(self) -> list[dict[str, Any]]:
        from embedsink.reports import all_reports
        from embedsink.store import EVERYTHING, open_snapshot

        with open_snapshot(self._snapshot, EVERYTHING) as reader:
            return [asdict(report) for report in all_reports(reader)]

    def chunks(self, name: str, asked: Asked, format: Format) -> Iterator[bytes]:
        from embedsink import reports
        from embedsink.store import open_snapshot

        reports.known_name(name)
        scope = reports.parse_scope(asked, deployments=asked["deployment"])
        with open_snapshot(self._snapshot, scope.variables()) as reader:
            if format is Format.CSV:
                yield from reports.csv_chunks(reader, name)
            elif format is Format.JSON:
                yield from reports.json_chunks(reader, name)
            else:
                with TemporaryDirectory() as folder:
                    reader.write_parquet(name, Path(folder) / "rows")
                    yield (Path(folder) / "rows").read_bytes()


class _Server:
    def __init__(self, url: str, key: str | None) -> None:
        self._remote = server_at(url, key)

    def listed(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self._remote.get("reports"))
        return listed

    def chunks(self, name: str, asked: Asked, format: Format) -> Iterator[bytes]:
        yield self._remote.get("reports", f"{name}.{format}", query=asked)


def _format_of(output: Path | None) -> Format:
    if output is None:
        return Format.TABLE
    try:
        return Format(output.suffix[1:])
    except ValueError:
        raise typer.BadParameter(f"{output.name}: does not say how to write it. Add --format csv.") from None


def _list(listed: list[dict[str, Any]], wanted: Format) -> None:
    if wanted is Format.JSON:
        typer.echo(json.dumps(listed, indent=2, ensure_ascii=False))
    elif wanted is Format.TABLE:
        show_table(LISTED, [[report[name] for name in LISTED] for report in listed])
    else:
        raise typer.BadParameter(f"--format {wanted}: the list of reports comes as table or json. Name a report.")


def _show(source: _Source, name: str, asked: Asked) -> None:
    rows = json.loads(b"".join(source.chunks(name, asked, Format.JSON)))
    if not rows:
        say(f"{name}: has no rows for this. Try an earlier --since, or leave out what bounds it.")
        return
    show_table(list(rows[0]), [list(row.values()) for row in rows])


def _write(chunks: Iterable[bytes], wanted: Format, output: Path | None) -> None:
    if output is not None:
        with written_whole(output) as part, part.open("wb") as file:
            file.writelines(chunks)
        return
    if sys.stdout.isatty():
        _write_on_terminal(chunks, wanted)
        return
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
    if wanted is Format.JSON:
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _write_on_terminal(chunks: Iterable[bytes], wanted: Format) -> None:
    """The same for a person's eyes: no character of a sender's text commands the terminal. A file has it verbatim."""
    if wanted is Format.PARQUET:
        raise typer.BadParameter("--format parquet: is not for a terminal. Add -o FILE.")
    for chunk in chunks:
        typer.echo(inert(chunk.decode().replace("\r\n", "\n")), nl=False)
    if wanted is Format.JSON:
        typer.echo()
