"""The dashboards of a server: the built-in ones and the operator's, checked against the reports."""

import logging
from pathlib import Path

from embedsink.dashboards.files import dashboard_files, find_dashboard, read_dashboards
from embedsink.dashboards.lint import check_dashboards, lint
from embedsink.dashboards.model import Dashboard
from embedsink.engine import Engine
from embedsink.errors import Misconfigured, Unavailable
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report, all_reports
from embedsink.store.reader import EVERYTHING

log = logging.getLogger(__name__)


class Dashboards:
    """All dashboards by name.

    An invalid file of the operator does not stop the server, which must go on accepting events. The error is logged,
    and shown when the dashboard is opened.

    Args:
        folder: the operator's folder; it may not exist.

    Raises:
        Misconfigured: a built-in dashboard is invalid.
    """

    def __init__(self, folder: Path) -> None:
        self.errors: dict[str, str] = {}
        self.by_name = read_dashboards(folder, on_error=self._add_error)
        self._operator_names = {path.stem for path in dashboard_files(folder)}
        self._reports: dict[str, Report] = {}  # empty until `check` succeeds

    def check(self, engine: Engine) -> None:
        """Check all dashboards against the reports, once.

        Raises:
            Misconfigured: a built-in dashboard names an unknown report or column.
            Unavailable: `not_ready` while the store, which describes the reports, is not open.
        """
        if self._reports:
            return
        with engine.store.reader(EVERYTHING, uses_one_thread=True) as reader:
            reports = {report.name: report for report in all_reports(reader)}
        by_operator = {name: dashboard for name, dashboard in self.by_name.items() if name in self._operator_names}
        built_in = {name: dashboard for name, dashboard in self.by_name.items() if name not in by_operator}
        check_dashboards(built_in, reports.values())
        errors = lint(by_operator, reports.values())
        for name, error in errors.items():
            self._add_error(name, error)
        self.by_name = {name: dashboard for name, dashboard in self.by_name.items() if name not in errors}
        self._reports = reports

    def reports(self, engine: Engine, name: str) -> dict[str, Report]:
        """Return all reports by name, for a valid dashboard.

        Raises:
            Unavailable: `not_ready` while the store is not open, and for an invalid dashboard.
        """
        try:
            self.check(engine)
        except Misconfigured as error:
            log.error("dashboard_invalid", extra={"detail": str(error)})
            raise Unavailable(Reason.NOT_READY, _with_advice(error), retry_after_s=60) from error
        self.find(name)
        return self._reports

    def find(self, name: str) -> Dashboard:
        """Return a dashboard.

        Raises:
            Refused: `not_found`.
            Unavailable: `not_ready` for an invalid dashboard.
        """
        if name in self.errors:
            raise Unavailable(Reason.NOT_READY, self.errors[name], retry_after_s=60)
        return find_dashboard(self.by_name, name)

    def _add_error(self, name: str, error: Misconfigured) -> None:
        detail = _with_advice(error)
        log.error("dashboard_invalid", extra={"detail": detail})
        self.errors[name] = detail


def _with_advice(error: Misconfigured) -> str:
    return f"{error} Then restart the server."
