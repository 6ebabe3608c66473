"""`embedsink render`: a dashboard as an image or a document, without a browser."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from embedsink.cli.options import (
    DATA,
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
    connect,
    examples,
    snapshot_time,
)
from embedsink.cli.output import atomic_write, print_message

if TYPE_CHECKING:
    from embedsink.dashboards.image.sheet import Caption, DataBySection
    from embedsink.dashboards.model import Dashboard
    from embedsink.reports.catalog import Report

EXAMPLES = examples(
    "embedsink render overview --since 2026-10-01 --until 2026-11-01 -o october.pdf",
    "embedsink render reliability --period 24h --dark -o today.png --url https://events.example.com",
)
# Parameters of the HTTP API by their names.
Params = dict[str, Any]

Name = Annotated[str, typer.Argument(metavar="NAME", help="A dashboard, such as overview.")]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The output file: .pdf, .png, .svg or .html.")
]
Period = Annotated[
    str | None,
    typer.Option(metavar="SPAN", help="24h, 7d, 30d or 90d up to now. Default: 7d, unless --since is given."),
]
Compare = Annotated[bool, typer.Option(help="Show the change from the previous period.")]
Dark = Annotated[bool, typer.Option("--dark", help="Use the dark theme.")]


class DashboardData(NamedTuple):
    """A dashboard, the data of its tiles by section and tile, and the start and end of its period.

    The period is in epoch milliseconds of the reader's local time.
    """

    dashboard: "Dashboard"
    tiles_by_section: "DataBySection"
    period: tuple[int, int]


def render(
    name: Name,
    output: Output,
    period: Period = None,
    since: Since = None,
    until: Until = None,
    surface: Surface = None,
    deployment: Deployments = None,
    tenant: Tenant = None,
    vendor: Vendor = None,
    internal: Internal = None,
    department: Department = None,
    group: Group = None,
    timezone: Timezone = None,
    compare: Compare = True,
    dark: Dark = False,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Draw a dashboard as a self-contained PDF, PNG, SVG or HTML file.

    For a data folder, the command reads the last snapshot, even while a server runs. Values that only a server has,
    such as the size of its journal, require --url. A PDF has one page, with the height of the dashboard.
    """
    format = _format_of(output)
    params: Params = {"period": period, "since": since, "until": until, "surface": surface, "tenant": tenant}
    params |= {"vendor": vendor, "internal": internal, "department": department, "group": group}
    params |= {"timezone": timezone, "compare": "on" if compare else "off"}
    params["deployment"] = [str(number) for number in deployment or []]
    now = datetime.now(UTC)
    if url is None:
        dashboard_data = _read_snapshot(name, params, data, now)
        caption = _caption(dashboard_data, params, now, snapshot_at=snapshot_time(data))
    else:
        dashboard_data = _read_server(name, params, url, key)
        caption = _caption(dashboard_data, params, now)
    image = _draw(dashboard_data, caption, format=format, is_dark=dark)
    with atomic_write(output) as temporary:
        temporary.write_bytes(image)


def _format_of(output: Path) -> str:
    """Return the format in the suffix of a file, such as `pdf`. Raise a usage error for any other suffix."""
    from embedsink.dashboards.image.render import FORMATS

    format = output.suffix.removeprefix(".")
    if format not in FORMATS:
        suffixes = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"-o {output.name}: the suffix is not a format. Formats: {suffixes}.")
    return format


def _caption(
    dashboard_data: DashboardData, params: Params, now: datetime, *, snapshot_at: datetime | None = None
) -> "Caption":
    """Return the caption of an image: period, time of drawing, time zone, filters, and the time of the snapshot."""
    from embedsink.dashboards.image.sheet import Caption

    filters = {"surface": params["surface"], "deployment": ", ".join(params["deployment"]), "tenant": params["tenant"]}
    filters |= {name: params[name] for name in ("vendor", "internal", "department", "group")}
    active_filters = {name: value for name, value in filters.items() if value}
    return Caption(dashboard_data.period, now, params["timezone"] or "UTC", active_filters, snapshot_at)


def _draw(dashboard_data: DashboardData, caption: "Caption", *, format: str, is_dark: bool) -> bytes:
    """Draw a dashboard in this format, and return the content of the file."""
    from embedsink.dashboards.image.render import render as render_image

    return render_image(
        dashboard_data.dashboard, dashboard_data.tiles_by_section, caption, format=format, is_dark=is_dark
    )


def _read_snapshot(name: str, params: Params, data: Path, now: datetime) -> DashboardData:
    """Return a dashboard with data from the snapshot of a data folder.

    If an older embedsink wrote the snapshot, the tiles that the snapshot does not support are omitted.
    """
    from embedsink.dashboards.lint import check_dashboards
    from embedsink.dashboards.period import period_of
    from embedsink.dashboards.query import query_section
    from embedsink.dashboards.time_axis import span_of
    from embedsink.data_folder import DataFolder
    from embedsink.key_scope import EVERYTHING
    from embedsink.reports.catalog import all_reports, missing_reports_warning
    from embedsink.settings import read_settings
    from embedsink.store.snapshot_reader import open_snapshot

    dashboard = _find_dashboard(name, data)
    period = period_of(params, deployments=params["deployment"], now=now)
    with open_snapshot(DataFolder(data).snapshot, {**EVERYTHING.variables(), **read_settings().variables()}) as reader:
        reports = {report.name: report for report in all_reports(reader)}
        if missing_reports_warning(reader) is None and reader.is_up_to_date():
            check_dashboards({name: dashboard}, reports.values())
        else:
            # A snapshot from an older embedsink may lack reports and columns.
            dashboard = _drop_unsupported_tiles(name, dashboard, list(reports.values()))
        tiles_by_section: dict[str, Any] = {}
        for section in dashboard.sections:
            tiles = query_section(reader, section, period, reports=reports, now=now)
            if tiles:  # Only a server has gauges, so a section of gauges has no tiles here.
                tiles_by_section[section.id] = {tile_id: asdict(tile) for tile_id, tile in tiles.items()}
    start, end = span_of(period.scope, now=now)
    return DashboardData(dashboard, tiles_by_section, (start, end))


def _drop_unsupported_tiles(name: str, dashboard: "Dashboard", reports: "list[Report]") -> "Dashboard":
    """Return a dashboard without the tiles that these reports do not support, and print the titles of these tiles."""
    from embedsink.dashboards.lint import drop_invalid_tiles
    from embedsink.store.reader import OLDER_SNAPSHOT

    remaining, dropped = drop_invalid_tiles(dashboard, reports)
    if dropped:
        print_message(f"{name}: omits {', '.join(dropped)}, which the snapshot lacks. {OLDER_SNAPSHOT}")
    return remaining


def _read_server(name: str, params: Params, url: str, key: str | None) -> DashboardData:
    """Return a dashboard with data, both from a server."""
    from embedsink.dashboards.files import parse_dashboard

    client = connect(url, key)
    # Use the server's definition: this machine may lack the dashboard, or have another one with the same name.
    definition = client.get_object("dashboards", name, required_members=("title", "sections"))
    dashboard = parse_dashboard(definition, f"dashboard {name} of {url}")
    tiles_by_section: dict[str, Any] = {}
    for section in dashboard.sections:
        path = ("dashboards", name, "sections", section.id)
        response = client.get_object(*path, required_members=("span", "charts"), query=params)
        tiles_by_section[section.id] = response["charts"]
        start, end = response["span"]  # All sections have the same span.
    return DashboardData(dashboard, tiles_by_section, (start, end))


def _find_dashboard(name: str, data: Path) -> "Dashboard":
    """Return the built-in dashboard or the dashboard of the data folder with this name.

    Raises:
        Misconfigured: the file of this dashboard is invalid. Invalid files of other dashboards are ignored.
        Refused: no dashboard has this name (`not_found`).
    """
    from embedsink.dashboards.files import find_dashboard, read_dashboards
    from embedsink.data_folder import DataFolder
    from embedsink.errors import Misconfigured

    errors_by_name: dict[str, Misconfigured] = {}

    def collect_error(dashboard_name: str, error: Misconfigured) -> None:
        errors_by_name[dashboard_name] = error

    dashboards = read_dashboards(DataFolder(data).dashboards, on_error=collect_error)
    if name in errors_by_name:
        raise errors_by_name[name]
    return find_dashboard(dashboards, name)
