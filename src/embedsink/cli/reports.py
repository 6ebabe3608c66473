"""`embedsink report`: a report as a table or a file, or all of them, from the data folder or from a server."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Annotated, Any

import typer

from embedsink.cli.backends import ROWS, Asked, Folder, Server, Source
from embedsink.cli.options import (
    DATA,
    Data,
    Deployments,
    KeyOption,
    Since,
    Surface,
    Tenant,
    Timezone,
    Until,
    Url,
    as_of,
    examples,
    same_place,
)
from embedsink.cli.output import fail, say, show_table, strip_control, terminal_width, written_whole
from embedsink.cli.tables import show_rows
from embedsink.reports.format import REPORT_FORMATS, Format

EXAMPLES = examples(
    "embedsink report",
    "embedsink report views --describe",
    "embedsink report views --since 2026-11-01 --interval week --timezone Europe/Berlin",
    "embedsink report downloads --deployment 12 --format csv > downloads.csv",
    "embedsink report ai_query --since 7d --columns submitted_at,query,status -o ai_query.parquet",
    "embedsink report --all --since 2026-10-01 --until 2026-11-01 -o summary.zip",
    "EMBEDSINK_KEY=es_read_… embedsink report views --url https://engine.example.com",
)
LISTED = ("name", "question", "grain", "columns")
DESCRIBED = ("name", "type", "unit", "description")
TABLE = "table"
SHOWN = (TABLE, *REPORT_FORMATS)
# What leaves events out.
BOUNDS = ("since", "until", "surface", "deployment", "tenant")


def _shown(text: str) -> str:
    if text not in SHOWN:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(SHOWN)}.")
    return text


All = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Every report as csv: with -o a .zip file, or else a folder, whose files of these names it replaces.",
    ),
]


def report(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A report; without one, all are listed.")] = None,
    since: Since = None,
    until: Until = None,
    surface: Surface = None,
    deployment: Deployments = None,
    tenant: Tenant = None,
    interval: Annotated[
        str | None, typer.Option(metavar="NAME", help="A period is an hour, a day, a week or a month; else a day.")
    ] = None,
    timezone: Timezone = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B,C", help="These columns alone.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most so many rows, up to 100,000.")] = None,
    guard: Annotated[bool, typer.Option(help="In csv, an apostrophe before what looks like a formula.")] = True,
    bom: Annotated[bool, typer.Option("--bom", help="Begin csv with the mark that Excel needs for UTF-8.")] = False,
    describe: Annotated[bool, typer.Option("--describe", help="What a row and each column is, and no rows.")] = False,
    all_reports: All = False,
    format: Annotated[
        str | None,
        typer.Option(metavar="|".join(SHOWN), help="Else as the file's suffix says, or a table.", parser=_shown),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")] = None,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Show a report, or which reports there are, or write all of them.

    From a data folder it shows the last snapshot, be a server running or not. Times are UTC, but for dates and times
    that you give with --timezone. In csv, text that a spreadsheet would take for a formula gets an apostrophe. On a
    terminal, what has no room is left out, and control characters are escaped; files and pipes get everything.
    """
    asked: Asked = {"since": since, "until": until, "surface": surface, "deployment": deployment or []}
    asked |= {"tenant": tenant, "interval": interval, "timezone": timezone}
    asked |= {"columns": columns, "limit": limit, "guard": "on" if guard else "off", "bom": "on" if bom else "off"}
    source: Source = Folder(data) if url is None else Server(url, key)
    if all_reports:
        _check_all(name, format, describe, asked)
        _write_all(source, asked, _place_of_all(output))
    elif name is None or describe:
        _check_told(name, output, describe, asked)
        told = source.listed() if name is None else source.described(name)
        _tell(told, format or TABLE)
    elif (wanted := format or _format_of(output)) == TABLE:
        _check_table(output)
        _show(source, name, asked, data=data, url=url)
    else:
        _write(source.chunks(name, asked, Format(wanted)), Format(wanted), output)


def _format_of(output: Path | None) -> str:
    if output is None:
        return TABLE
    if output.suffix[1:] not in SHOWN:
        raise typer.BadParameter(f"{output.name}: does not say how to write it. Add --format csv.")
    return output.suffix[1:]


def _check_all(name: str | None, format: str | None, describe: bool, asked: Asked) -> None:
    if name is not None:
        raise typer.BadParameter(f"--all {name}: is every report, or this one. Leave one of them out.")
    if describe:
        raise typer.BadParameter("--all --describe: are rows, or none. Leave one of them out.")
    if format not in (None, Format.CSV):
        raise typer.BadParameter(f"--all --format {format}: they come as csv. Leave --format out.")
    for option in ROWS:
        if asked[option] is not None:
            raise typer.BadParameter(f"--all --{option}: is for one report. Name it.")


def _place_of_all(output: Path | None) -> Path:
    if output is None:
        raise typer.BadParameter("--all: needs a file or a folder. Add -o summary.zip.")
    # A folder may be called 2026.11, but nobody means one by sum.csv.
    if output.suffix[1:].isalpha() and output.suffix != ".zip" and not output.is_dir():
        instead = output.with_suffix(".zip")
        raise typer.BadParameter(f"--all -o {output}: is no place for many reports. Name a folder, or -o {instead}.")
    return output


def _check_told(name: str | None, output: Path | None, describe: bool, asked: Asked) -> None:
    unheard = [f"--{option}" for option in (*BOUNDS, "interval", "timezone", *ROWS) if asked[option] not in (None, [])]
    unheard += ["--no-guard"] * (asked["guard"] == "off") + ["--bom"] * (asked["bom"] == "on")
    unheard += [f"-o {output}"] * (output is not None)
    if unheard and describe:
        raise typer.BadParameter(f"{unheard[0]}: is for rows, and --describe shows none. Leave one of them out.")
    if unheard:
        raise typer.BadParameter(f"{unheard[0]}: is for a report. Name one, or take all of them with --all.")
    if name is None and describe:
        raise typer.BadParameter("--describe: is for one report. Name it; without a name, all are listed.")


def _check_table(output: Path | None) -> None:
    if output is not None:
        raise typer.BadParameter(f"-o {output}: a table goes to no file. Add --format csv, json, parquet or arrow.")


def _write_all(source: Source, asked: Asked, output: Path) -> None:
    if output.suffix == ".zip":
        _write(source.summary(asked), Format.CSV, output)
        return
    from zipfile import ZipFile

    with TemporaryFile() as file:
        file.writelines(source.summary(asked))
        try:
            output.mkdir(parents=True, exist_ok=True)
            with ZipFile(file) as archive, TemporaryDirectory(prefix=".", suffix=".part", dir=output) as drafts:
                archive.extractall(drafts)  # It takes care that nothing leaves the folder.
                replaced = _replace(Path(drafts), output)
        except OSError as error:
            fail(f"{output}: {error.strerror}. Choose another place.")
    if replaced:
        say(f"{output}: {replaced} {'file was' if replaced == 1 else 'files were'} there before, and replaced.")


def _replace(drafts: Path, folder: Path) -> int:
    """Move files to where they belong, once all of them are written; how many of them were there before."""
    files = sorted(path for path in drafts.rglob("*") if path.is_file())
    placed = [folder / path.relative_to(drafts) for path in files]
    if folders := [place for place in placed if place.is_dir()]:
        fail(f"{folders[0]}: is a folder. Choose another place.")
    replaced = sum(place.exists() for place in placed)
    for path, place in zip(files, placed, strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
    return replaced


def _tell(told: list[dict[str, Any]] | dict[str, Any], wanted: str) -> None:
    """Which reports there are, or what a row and each column of one is."""
    if wanted == Format.JSON:
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
    elif wanted != TABLE:
        raise typer.BadParameter(f"--format {wanted}: is for rows; words come as table or json. Name a report.")
    elif isinstance(told, list):
        show_table(LISTED, [_listed(report) for report in told])
        say("What a row and each column of one is: `embedsink report NAME --describe`.")
    else:
        for line in (f"{told['name']}: {told['question']}", told["grain"], ""):
            typer.echo(strip_control(line))
        show_table(DESCRIBED, [[column[name] for name in DESCRIBED] for column in told["columns"]])


def _listed(report: dict[str, Any]) -> list[str]:
    columns = ", ".join(column["name"] for column in report["columns"])
    return [report["name"], report["question"], report["grain"], columns]


def _show(source: Source, name: str, asked: Asked, *, data: Path, url: str | None) -> None:
    rows = source.rows(name, asked)
    if rows and (width := terminal_width()):
        show_rows(list(rows[0]), [list(row.values()) for row in rows], width=width)
    elif rows:
        show_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        say(_nothing(name, asked, data, url))


def _nothing(name: str, asked: Asked, data: Path, url: str | None) -> str:
    """What a person does who sees no rows."""
    (when, later), where = as_of(data, url), same_place(data, url)
    bounds = [f"--{bound}" for bound in BOUNDS if asked[bound]]
    if bounds:
        return f"{name}: has no rows for this as of {when}. Leave out {' or '.join(bounds)} to see what there is."
    return (
        f"{name}: has no rows as of {when}. What is sent shows {later}. "
        f"See whether it was rejected: `embedsink quarantine list {where}`."
    )


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
    if wanted in (Format.PARQUET, Format.ARROW):
        raise typer.BadParameter(f"--format {wanted}: is not for a terminal. Add -o FILE.")
    for chunk in chunks:
        typer.echo(strip_control(chunk.decode().replace("\r\n", "\n")), nl=False)
    if wanted is Format.JSON:
        typer.echo()
