"""`embedsink report`: list and describe reports, or write one or all of them."""

from pathlib import Path
from typing import Annotated

import typer

from embedsink.cli.backends import ROW_PARAMS, LocalBackend, Params, RemoteBackend, ReportBackend
from embedsink.cli.options import (
    DATA,
    By,
    Data,
    Department,
    Deployments,
    Group,
    Internal,
    KeyOption,
    Since,
    Surface,
    Tenant,
    Timezone,
    Until,
    Url,
    UsageError,
    Vendor,
    as_of_phrase,
    examples,
    source_option,
    when_new_data_appears,
)
from embedsink.cli.output import print_message
from embedsink.cli.report_output import (
    FORMATS,
    TABLE,
    print_description,
    print_reports,
    write_report,
    write_summary,
)
from embedsink.cli.tables import print_rows, print_table, terminal_width
from embedsink.reports.format import Format

EXAMPLES = examples(
    "embedsink report",
    "embedsink report views --describe",
    "embedsink report views --since 2026-11-01 --interval week --timezone Europe/Berlin",
    "embedsink report downloads --deployment 12 --format csv > downloads.csv",
    "embedsink report views --by department --since 30d",
    "embedsink report ai_query --since 7d --columns submitted_at,query,status -o ai_query.parquet",
    "embedsink report --all --since 2026-10-01 --until 2026-11-01 -o summary.zip",
    "EMBEDSINK_KEY=es_read_… embedsink report views --url https://events.example.com",
)
# The parameters that select events.
FILTERS = ("since", "until", "surface", "deployment", "tenant", "vendor", "internal", "department", "group")


def _parse_format(text: str) -> str:
    """Return the name of a format unchanged, or raise a usage error if it is not a format."""
    if text not in FORMATS:
        raise UsageError(f'--format: "{text}" is not a format. Formats: {", ".join(FORMATS)}.')
    return text


Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The report to show. Default: list all reports.")]
Interval = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The length of each period in the report: hour, day, week or month. Default: day."
    ),
]
Columns = Annotated[str | None, typer.Option(metavar="A,B,C", help="Only these columns.")]
Limit = Annotated[str | None, typer.Option(metavar="N", help="At most N rows, up to 100,000.")]
Guard = Annotated[bool, typer.Option(help="In csv, put an apostrophe before text that looks like a formula.")]
Bom = Annotated[bool, typer.Option("--bom", help="Begin csv with a byte-order mark, for Excel.")]
Describe = Annotated[bool, typer.Option("--describe", help="Describe a row and each column.")]
AllReports = Annotated[
    bool,
    typer.Option(
        "--all", help="Write every report as csv to the ZIP file or folder named by -o. Existing files are replaced."
    ),
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
    vendor: Vendor = None,
    internal: Internal = None,
    by: By = None,
    department: Department = None,
    group: Group = None,
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

    For a data folder, the command reads the last snapshot, even while a server runs. Times are in UTC; --timezone
    applies to periods, and to times that you pass without an offset. In csv, text that a spreadsheet would treat as a
    formula gets an apostrophe. A terminal shows as many columns as fit, and escapes control characters. Files and pipes
    have all columns.
    """
    params: Params = {"since": since, "until": until, "surface": surface, "deployment": deployment or []}
    params |= {"tenant": tenant, "vendor": vendor, "internal": internal, "interval": interval, "timezone": timezone}
    params |= {"by": by, "department": department, "group": group}
    params |= {"columns": columns, "limit": limit, "guard": "on" if guard else "off", "bom": "on" if bom else "off"}
    backend: ReportBackend = LocalBackend(data) if url is None else RemoteBackend(url, key)
    if all_reports:
        _check_summary_options(name, format, describe, params)
        write_summary(backend.read_summary(params), _summary_path(output))
    elif name is None or describe:
        _check_catalog_options(name, output, describe, params)
        _print_catalog(backend, name, format or TABLE)
    elif (chosen_format := format or _format_of(output)) == TABLE:
        _check_table_output(output)
        _print_report(backend, name, params, data=data, url=url)
    else:
        write_report(backend.read_chunks(name, params, Format(chosen_format)), Format(chosen_format), output)


def _format_of(output: Path | None) -> str:
    """Return the format in the suffix of a file, such as `csv`, or the table format if there is no file.

    Raises:
        UsageError: the suffix is not a format.
    """
    if output is None:
        return TABLE
    suffix = output.suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise UsageError(f"-o {output.name}: the suffix is not a format. Add --format csv, json, parquet or arrow.")
    return suffix


def _check_summary_options(name: str | None, format: str | None, describe: bool, params: Params) -> None:
    """Raise a usage error for an option or argument that can't be combined with --all."""
    if name is not None:
        raise UsageError(f"--all: can't be combined with the report {name}. Omit one of them.")
    if describe:
        raise UsageError("--describe: can't be combined with --all. Omit one of them.")
    if format not in (None, Format.CSV):
        raise UsageError(f"--format {format}: can't be combined with --all, which writes csv. Omit --format.")
    for param in ROW_PARAMS:
        if params[param] is not None:
            raise UsageError(f"--{param}: can't be combined with --all. Name a report instead.")


def _summary_path(output: Path | None) -> Path:
    """Return the path of the ZIP file or folder that --all writes.

    Raises:
        UsageError: there is no path, or the path looks like a file for a single report.
    """
    if output is None:
        raise UsageError("--all: needs a file or a folder. Add -o summary.zip.")
    # A folder may be called 2026.11, but sum.csv is probably a mistake.
    has_file_suffix = output.suffix.removeprefix(".").isalpha()
    if has_file_suffix and output.suffix != ".zip" and not output.is_dir():
        raise UsageError(
            f"-o {output}: is one file, and --all writes several. Name a folder, or -o {output.with_suffix('.zip')}."
        )
    return output


def _check_catalog_options(name: str | None, output: Path | None, describe: bool, params: Params) -> None:
    """Check the options of a command that only lists or describes reports.

    Raise a usage error for options that need rows, and for --describe without a report.
    """
    options = _row_options(output, params)
    if options and describe:
        raise UsageError(f"{options[0]}: can't be combined with --describe, which reads no rows. Omit one of them.")
    if options:
        raise UsageError(f"{options[0]}: needs a report. Name one, or add --all.")
    if name is None and describe:
        raise UsageError("--describe: needs a report. Name one, or omit --describe to list all.")


def _row_options(output: Path | None, params: Params) -> list[str]:
    """Return the options of the command line that select, format or write rows, such as `--since`."""
    names = (*FILTERS, "by", "interval", "timezone", *ROW_PARAMS)
    options = [f"--{name}" for name in names if params[name] not in (None, [])]
    if params["guard"] == "off":
        options.append("--no-guard")
    if params["bom"] == "on":
        options.append("--bom")
    if output is not None:
        options.append(f"-o {output}")
    return options


def _check_table_output(output: Path | None) -> None:
    """Raise a usage error for an output file, because tables are for stdout only."""
    if output is not None:
        raise UsageError(f"-o {output}: a table can't be written to a file. Add --format csv, json, parquet or arrow.")


def _print_catalog(backend: ReportBackend, name: str | None, format: str) -> None:
    """Print the list of reports or, with a name, the description of one."""
    if name is None:
        print_reports(backend.list_reports(), format)
    else:
        print_description(backend.describe_report(name), format)


def _print_report(backend: ReportBackend, name: str, params: Params, *, data: Path, url: str | None) -> None:
    """Print a report as a table: fitted to the width of a terminal, or complete if stdout is a file or a pipe.

    If the report has no rows, print a message instead.
    """
    rows = backend.read_rows(name, params)
    if not rows:
        print_message(_no_rows_message(name, params, data, url))
        return
    columns = list(rows[0])
    values = [list(row.values()) for row in rows]
    width = terminal_width()
    if width is None:
        print_table(columns, values)
    else:
        print_rows(columns, values, width=width)


def _no_rows_message(name: str, params: Params, data: Path, url: str | None) -> str:
    """Return the message that a report has no rows, with advice: omit the filters, or check for rejections."""
    as_of = as_of_phrase(data, url)
    filters = [f"--{param}" for param in FILTERS if params[param]]
    if filters:
        return f"{name}: no rows match {as_of}. Omit {' or '.join(filters)} to match more."
    return (
        f"{name}: no rows {as_of}. New events appear {when_new_data_appears(url)}. "
        f"Check for rejections: `embedsink quarantine list {source_option(data, url)}`."
    )
