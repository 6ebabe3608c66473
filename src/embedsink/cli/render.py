"""`embedsink render`: a dashboard as an image or a document, without a browser."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    connect,
    examples,
)
from embedsink.cli.output import atomic_write, print_message

if TYPE_CHECKING:
    from embedsink.dashboards.image.sheet import DataBySection
    from embedsink.dashboards.model import Dashboard
    from embedsink.reports.catalog import Report

EXAMPLES = examples(
    "embedsink render overview --since 2026-10-01 --until 2026-11-01 -o october.pdf",
    "embedsink render reliability --period 24h --dark -o today.png --url https://events.example.com",
)
# The parameters that the image names in its heading.
FILTERS = ("surface", "deployment", "tenant")
# Parameters of the HTTP API by their names.
Params = dict[str, Any]
# The dashboard, its data, and the start and end of the period.
DashboardData = tuple["Dashboard", "DataBySection", tuple[int, int]]


def render(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A dashboard, such as overview.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The output file: .pdf, .png, .svg or .html.")
    ],
    period: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="24h, 7d, 30d or 90d up to now. Default: 7d, unless --since is given."),
    ] = None,
    since: Since = None,
    until: Until = None,
    surface: Surface = None,
    deployment: Deployments = None,
    tenant: Tenant = None,
    timezone: Timezone = None,
    compare: Annotated[bool, typer.Option(help="Show changes against the previous period.")] = True,
    dark: Annotated[bool, typer.Option("--dark", help="Use the dark theme.")] = False,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Draw a dashboard as a self-contained PDF, PNG, SVG or HTML file.

    From a data folder it draws the last snapshot, also while a server runs. Values that only a server has, such as the
    age of its journal, need --url. A PDF has one page, with the height of the dashboard.
    """
    from embedsink.dashboards.image.render import FORMATS
    from embedsink.dashboards.image.render import render as rendered
    from embedsink.dashboards.image.sheet import Caption
    from embedsink.data_folder import DataFolder

    format = output.suffix.removeprefix(".")
    if format not in FORMATS:
        formats = ", ".join(f".{known}" for known in FORMATS)
        raise WrongUse(f"-o {output.name}: the suffix is not a format. Formats: {formats}.")
    params: Params = {"period": period, "since": since, "until": until, "surface": surface, "tenant": tenant}
    params |= {"timezone": timezone, "compare": "on" if compare else "off"}
    params["deployment"] = [str(number) for number in deployment or []]
    now = datetime.now(UTC)
    read = _read_local(name, params, data, now) if url is None else _read_remote(name, params, url, key)
    dashboard, data_by_section, span = read
    filters = {one: ", ".join(params[one]) if one == "deployment" else params[one] for one in FILTERS if params[one]}
    snapshot_at = None if url else datetime.fromtimestamp(DataFolder(data).snapshot.stat().st_mtime, UTC)
    caption = Caption(span, now, timezone or "UTC", filters, snapshot_at)
    drawn = rendered(dashboard, data_by_section, caption, format=format, is_dark=dark)
    with atomic_write(output) as part:
        part.write_bytes(drawn)


def _read_local(name: str, params: Params, data: Path, now: datetime) -> DashboardData:
    from embedsink.dashboards.lint import check_dashboards
    from embedsink.dashboards.period import period_of
    from embedsink.dashboards.query import query_section
    from embedsink.dashboards.time_axis import span_of
    from embedsink.data_folder import DataFolder
    from embedsink.reports.catalog import all_reports, missing_reports_warning
    from embedsink.settings import read_settings
    from embedsink.store.reader import EVERYTHING, open_snapshot

    dashboard = _find(name, data)
    period = period_of(params, deployments=params["deployment"], now=now)
    with open_snapshot(DataFolder(data).snapshot, {**EVERYTHING, **read_settings().variables()}) as reader:
        reports = {report.name: report for report in all_reports(reader)}
        if missing_reports_warning(reader) is None and reader.is_up_to_date():
            check_dashboards({name: dashboard}, reports.values())
        else:
            dashboard = _without_missing(name, dashboard, list(reports.values()))
        data_by_section: dict[str, Any] = {}
        for section in dashboard.sections:
            if tiles := query_section(reader, section, period, reports=reports, now=now):
                data_by_section[section.id] = {id: asdict(tile) for id, tile in tiles.items()}
    start, end = span_of(period.scope, now=now)
    return dashboard, data_by_section, (start, end)


def _without_missing(name: str, dashboard: "Dashboard", reports: "list[Report]") -> "Dashboard":
    """Return the dashboard without tiles that a snapshot of an older embedsink lacks."""
    from embedsink.dashboards.lint import drop_invalid_tiles
    from embedsink.store.reader import OLDER_SNAPSHOT

    shown, left_out = drop_invalid_tiles(dashboard, reports)
    if left_out:
        print_message(f"{name}: omits {', '.join(left_out)}, which the snapshot lacks. {OLDER_SNAPSHOT}")
    return shown


def _read_remote(name: str, params: Params, url: str, key: str | None) -> DashboardData:
    from embedsink.dashboards.files import parse_dashboard

    client = connect(url, key)
    # The server may have dashboards that this machine lacks, or others with the same name.
    definition = client.get_object("dashboards", name, members=("title", "sections"))
    dashboard = parse_dashboard(definition, f"dashboard {name} of {url}")
    data_by_section: dict[str, Any] = {}
    for section in dashboard.sections:
        path = ("dashboards", name, "sections", section.id)
        response = client.get_object(*path, members=("span", "charts"), query=params)
        data_by_section[section.id] = response["charts"]
        start, end = response["span"]
    return dashboard, data_by_section, (start, end)


def _find(name: str, data: Path) -> "Dashboard":
    """Return a built-in dashboard, or one of the data folder."""
    from embedsink.dashboards.files import find_dashboard, read_dashboards
    from embedsink.data_folder import DataFolder
    from embedsink.errors import Misconfigured

    errors: dict[str, Misconfigured] = {}
    dashboards = read_dashboards(DataFolder(data).dashboards, on_error=errors.__setitem__)
    if name in errors:
        raise errors[name]
    return find_dashboard(dashboards, name)
