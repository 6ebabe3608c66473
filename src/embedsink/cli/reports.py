"""`embedsink report`: list and describe reports, or write one or all of them."""

from pathlib import Path
from typing import Annotated

import typer

from embedsink.cli.backends import ROW_PARAMS, LocalBackend, Params, RemoteBackend, ReportBackend
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
    WrongUse,
    examples,
    freshness,
    source_option,
)
from embedsink.cli.output import print_message
from embedsink.cli.report_output import FORMATS, TABLE, print_catalog, write_report, write_summary
from embedsink.cli.tables import print_rows, print_table, terminal_width
from embedsink.reports.format import Format

EXAMPLES = examples(
    "embedsink report",
    "embedsink report views --describe",
    "embedsink report views --since 2026-11-01 --interval week --timezone Europe/Berlin",
    "embedsink report downloads --deployment 12 --format csv > downloads.csv",
    "embedsink report ai_query --since 7d --columns submitted_at,query,status -o ai_query.parquet",
    "embedsink report --all --since 2026-10-01 --until 2026-11-01 -o summary.zip",
    "EMBEDSINK_KEY=es_read_… embedsink report views --url https://events.example.com",
)
# The parameters that select events.
FILTERS = ("since", "until", "surface", "deployment", "tenant")


def _parse_format(text: str) -> str:
    if text not in FORMATS:
        raise WrongUse(f'--format: "{text}" is not a format. Formats: {", ".join(FORMATS)}.')
    return text


Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="A report. Without one, all are listed.")]
Interval = Annotated[
    str | None, typer.Option(metavar="NAME", help="The length of a period: hour, day, week or month. Default: day.")
]
Columns = Annotated[str | None, typer.Option(metavar="A,B,C", help="Only these columns.")]
Limit = Annotated[str | None, typer.Option(metavar="N", help="At most N rows, up to 100,000.")]
Guard = Annotated[bool, typer.Option(help="In csv, put an apostrophe before text that looks like a formula.")]
Bom = Annotated[bool, typer.Option("--bom", help="Begin csv with a byte-order mark, for Excel.")]
Describe = Annotated[bool, typer.Option("--describe", help="Describe a row and each column.")]
AllReports = Annotated[
    bool, typer.Option("--all", help="Write every report as csv to the ZIP or folder of -o, and replace files there.")
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(FORMATS), help="Default: the suffix of the output file, or table.", parser=_parse_format
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="The output file.")]


def report(
    name: Name = None,
    since: Since = None,
    until: Until = None,
    surface: Surface = None,
    deployment: Deployments = None,
    tenant: Tenant = None,
    interval: Interval = None,
    timezone: Timezone = None,
    columns: Columns = None,
    limit: Limit = None,
    guard: Guard = True,
    bom: Bom = False,
    describe: Describe = False,
    all_reports: AllReports = False,
    format: FormatOption = None,
    output: Output = None,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """List the reports, show one, or write all of them.

    From a data folder it reads the last snapshot, also while a server runs. Times are in UTC; --timezone applies to
    periods, and to times that you pass without an offset. In csv, text that a spreadsheet would treat as a formula gets
    an apostrophe. A terminal shows as many columns as fit, and escapes control characters. Files and pipes have all
    columns.
    """
    params: Params = {"since": since, "until": until, "surface": surface, "deployment": deployment or []}
    params |= {"tenant": tenant, "interval": interval, "timezone": timezone}
    params |= {"columns": columns, "limit": limit, "guard": "on" if guard else "off", "bom": "on" if bom else "off"}
    backend: ReportBackend = LocalBackend(data) if url is None else RemoteBackend(url, key)
    if all_reports:
        _check_summary(name, format, describe, params)
        write_summary(backend.read_summary(params), _summary_path(output))
    elif name is None or describe:
        _check_catalog(name, output, describe, params)
        catalog = backend.list_reports() if name is None else backend.describe_report(name)
        print_catalog(catalog, format or TABLE)
    elif (chosen := format or _format_of(output)) == TABLE:
        _check_table(output)
        _show(backend, name, params, data=data, url=url)
    else:
        write_report(backend.read_chunks(name, params, Format(chosen)), Format(chosen), output)


def _format_of(output: Path | None) -> str:
    if output is None:
        return TABLE
    if output.suffix[1:] not in FORMATS:
        raise WrongUse(f"-o {output.name}: the suffix is not a format. Add --format csv, json, parquet or arrow.")
    return output.suffix[1:]


def _check_summary(name: str | None, format: str | None, describe: bool, params: Params) -> None:
    if name is not None:
        raise WrongUse(f"--all: can't be combined with the report {name}. Omit one of them.")
    if describe:
        raise WrongUse("--describe: can't be combined with --all. Omit one of them.")
    if format not in (None, Format.CSV):
        raise WrongUse(f"--format {format}: can't be combined with --all, which writes csv. Omit --format.")
    for param in ROW_PARAMS:
        if params[param] is not None:
            raise WrongUse(f"--{param}: can't be combined with --all. Name a report instead.")


def _summary_path(output: Path | None) -> Path:
    if output is None:
        raise WrongUse("--all: needs a file or a folder. Add -o summary.zip.")
    # A folder may be called 2026.11, but sum.csv is probably a mistake.
    if output.suffix[1:].isalpha() and output.suffix != ".zip" and not output.is_dir():
        raise WrongUse(
            f"-o {output}: is one file, and --all writes several. Name a folder, or -o {output.with_suffix('.zip')}."
        )
    return output


def _check_catalog(name: str | None, output: Path | None, describe: bool, params: Params) -> None:
    options = [
        f"--{param}" for param in (*FILTERS, "interval", "timezone", *ROW_PARAMS) if params[param] not in (None, [])
    ]
    options += ["--no-guard"] * (params["guard"] == "off") + ["--bom"] * (params["bom"] == "on")
    options += [f"-o {output}"] * (output is not None)
    if options and describe:
        raise WrongUse(f"{options[0]}: can't be combined with --describe, which reads no rows. Omit one of them.")
    if options:
        raise WrongUse(f"{options[0]}: needs a report. Name one, or add --all.")
    if name is None and describe:
        raise WrongUse("--describe: needs a report. Name one, or omit --describe to list all.")


def _check_table(output: Path | None) -> None:
    if output is not None:
        raise WrongUse(f"-o {output}: a table can't be written to a file. Add --format csv, json, parquet or arrow.")


def _show(backend: ReportBackend, name: str, params: Params, *, data: Path, url: str | None) -> None:
    rows = backend.read_rows(name, params)
    if not rows:
        print_message(_no_rows(name, params, data, url))
    elif width := terminal_width():
        print_rows(list(rows[0]), [list(row.values()) for row in rows], width=width)
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


def _no_rows(name: str, params: Params, data: Path, url: str | None) -> str:
    as_of, new_events_appear = freshness(data, url)
    if filters := [f"--{param}" for param in FILTERS if params[param]]:
        return f"{name}: no rows match as of {as_of}. Omit {' or '.join(filters)} to match more."
    return (
        f"{name}: no rows as of {as_of}. New events appear {new_events_appear}. "
        f"Check for rejections: `embedsink quarantine list {source_option(data, url)}`."
    )
