"""`embedsink render`: a dashboard as a picture or a document, without a browser."""

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
    examples,
    server_at,
)
from embedsink.cli.output import say, written_whole

if TYPE_CHECKING:
    from embedsink.dashboards.image.model import SectionAnswer
    from embedsink.dashboards.model import Dashboard
    from embedsink.reports.catalog import Report

EXAMPLES = examples(
    "embedsink render overview --since 2026-10-01 --until 2026-11-01 -o october.pdf",
    "embedsink render reliability --period 24h --dark -o today.png --url https://engine.example.com",
)
# What a server tells of a section.
TOLD = ("span", "interval", "compared", "charts")
NARROWING = ("surface", "deployment", "tenant")
Asked = dict[str, Any]


def render(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The dashboard: the name of its file, such as overview.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to: .pdf, .png, .svg or .html says what.")
    ],
    period: Annotated[
        str | None, typer.Option(metavar="SPAN", help="24h, 7d, 30d or 90d, up to now; else --since, or 7d.")
    ] = None,
    since: Since = None,
    until: Until = None,
    surface: Surface = None,
    deployment: Deployments = None,
    tenant: Tenant = None,
    timezone: Timezone = None,
    compare: Annotated[bool, typer.Option(help="Tell changes against the period before.")] = True,
    dark: Annotated[bool, typer.Option("--dark", help="Light on dark.")] = False,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Draw a dashboard as a PDF, PNG, SVG or HTML file that needs nothing else, for mails and documents.

    From a data folder it shows the last snapshot, be a server running or not. What a server alone knows, such as the
    age of its journal, is shown with --url. The PDF is one page, as long as the dashboard.
    """
    from embedsink.dashboards.image.model import Caption
    from embedsink.dashboards.image.render import FORMATS
    from embedsink.dashboards.image.render import render as rendered
    from embedsink.data_folder import DataFolder

    format = output.suffix.removeprefix(".")
    if format not in FORMATS:
        there_are = ", ".join(f".{one}" for one in FORMATS)
        raise typer.BadParameter(f"-o {output.name}: does not say what to draw. End it with one of {there_are}.")
    asked: Asked = {"period": period, "since": since, "until": until, "surface": surface, "tenant": tenant}
    asked |= {"timezone": timezone, "compare": "on" if compare else "off"}
    asked["deployment"] = [str(number) for number in deployment or []]
    now = datetime.now(UTC)
    dashboard, answers = _of_folder(name, asked, data, now) if url is None else _of_server(name, asked, url, key)
    narrowed = {one: ", ".join(asked[one]) if one == "deployment" else asked[one] for one in NARROWING if asked[one]}
    snapshot_at = None if url else datetime.fromtimestamp(DataFolder(data).snapshot.stat().st_mtime, UTC)
    caption = Caption(now, timezone or "UTC", narrowed, snapshot_at)
    drawn = rendered(dashboard, answers, caption, format=format, is_dark=dark)
    with written_whole(output) as part:
        part.write_bytes(drawn)


def _of_folder(name: str, asked: Asked, data: Path, now: datetime) -> tuple["Dashboard", dict[str, "SectionAnswer"]]:
    from embedsink.dashboards.image.model import SectionAnswer
    from embedsink.dashboards.lint import check_dashboards
    from embedsink.dashboards.period import period_of
    from embedsink.dashboards.query import answer_section
    from embedsink.dashboards.time_axis import span_of
    from embedsink.data_folder import DataFolder
    from embedsink.reports.catalog import all_reports, missing_reports
    from embedsink.settings import read_settings
    from embedsink.store.reader import EVERYTHING, open_snapshot

    dashboard = _find(name, data)
    period = period_of(asked, deployments=asked["deployment"], now=now)
    with open_snapshot(DataFolder(data).snapshot, {**EVERYTHING, **read_settings().variables()}) as reader:
        reports = {report.name: report for report in all_reports(reader)}
        if missing_reports(reader) is None and reader.is_up_to_date():
            check_dashboards({name: dashboard}, reports.values())
        else:
            dashboard = _without_missing(name, dashboard, list(reports.values()))
        charts = {
            section.id: answer_section(reader, section, period, reports=reports, now=now)
            for section in dashboard.sections
        }
    start, end = span_of(period.scope, now=now)
    return dashboard, {
        id: SectionAnswer(
            (start, end),
            period.scope.interval,
            period.before is not None,
            {one: asdict(answer) for one, answer in answered.items()},
        )
        for id, answered in charts.items()
        if answered
    }


def _without_missing(name: str, dashboard: "Dashboard", reports: "list[Report]") -> "Dashboard":
    """The dashboard as far as a snapshot of an older embedsink goes."""
    from embedsink.dashboards.lint import drop_invalid_tiles
    from embedsink.store.reader import OLDER_SNAPSHOT

    shown, left_out = drop_invalid_tiles(dashboard, reports)
    if left_out:
        say(f"{name}: leaves out {', '.join(left_out)}, which the snapshot lacks. {OLDER_SNAPSHOT}")
    return shown


def _of_server(name: str, asked: Asked, url: str, key: str | None) -> tuple["Dashboard", dict[str, "SectionAnswer"]]:
    from embedsink.dashboards.files import parse_dashboard
    from embedsink.dashboards.image.model import SectionAnswer

    remote = server_at(url, key)
    # The server's own file: it may have dashboards that nobody has here, or others of the same name.
    said = remote.get_object("dashboards", name, members=("title", "sections"))
    dashboard = parse_dashboard(said, f"dashboard {name} of {url}")
    answers = {}
    for section in dashboard.sections:
        told = remote.get_object("dashboards", name, "sections", section.id, members=TOLD, query=asked)
        start, end = told["span"]
        answers[section.id] = SectionAnswer((start, end), told["interval"], told["compared"], told["charts"])
    return dashboard, answers


def _find(name: str, data: Path) -> "Dashboard":
    """The dashboard of this program or of this data folder."""
    from embedsink.dashboards.files import find_dashboard, read_all_dashboards
    from embedsink.data_folder import DataFolder
    from embedsink.errors import Misconfigured

    mistakes: dict[str, Misconfigured] = {}
    dashboards = read_all_dashboards(DataFolder(data).dashboards, on_error=mistakes.__setitem__)
    if name in mistakes:
        raise mistakes[name]
    return find_dashboard(dashboards, name)
