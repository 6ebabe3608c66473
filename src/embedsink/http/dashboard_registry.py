"""The registry of dashboards: built-in files and the operator's files, checked against the reports.

`http/api/dashboards.py` serves them as JSON, and `http/pages/dashboards.py` as HTML pages.
"""

import logging
from pathlib import Path

from embedsink.dashboards.files import dashboard_files, find_dashboard, read_dashboards
from embedsink.dashboards.lint import lint
from embedsink.dashboards.model import Dashboard
from embedsink.engine import Engine
from embedsink.errors import Misconfigured, Unavailable
from embedsink.key_scope import EVERYTHING
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report, all_reports

log = logging.getLogger(__name__)


class DashboardRegistry:
    """All dashboards by name.

    An invalid file of the operator does not stop the server, because events must still be accepted. The error is
    logged, and shown when the dashboard is opened.

    Args:
        folder: the operator's folder; it may not exist.

    Raises:
        Misconfigured: a built-in dashboard is invalid.
    """

    def __init__(self, folder: Path) -> None:
        self.errors: dict[str, str] = {}  # messages by the name of the invalid dashboard
        self.by_name = read_dashboards(folder, on_error=self._add_error)
        self._operator_names = {path.stem for path in dashboard_files(folder)}
        self._reports: dict[str, Report] = {}  # empty until `check` succeeds

    def check(self, engine: Engine) -> None:
        """Check all dashboards against the reports. Remove the operator's invalid dashboards, and record their errors.

        After a success, further calls do nothing.

        Raises:
            Misconfigured: a built-in dashboard names an unknown report or column.
            Unavailable: the store, which describes the reports, is not open (`not_ready`).
        """
        if self._reports:
            return
        # Only descriptions of reports are read, which takes milliseconds.
        with engine.store.reader(EVERYTHING.variables(), is_short=True) as reader:
            reports = {report.name: report for report in all_reports(reader)}
        errors = lint(self.by_name, reports.values())
        built_in_error = next((error for name, error in errors.items() if name not in self._operator_names), None)
        if built_in_error is not None:
            raise built_in_error
        for name, error in errors.items():
            self._add_error(name, error)
        # Replace the dict instead of changing it, because other threads may be iterating over it.
        self.by_name = {name: dashboard for name, dashboard in self.by_name.items() if name not in errors}
        self._reports = reports

    def reports_for(self, engine: Engine, dashboard_name: str) -> dict[str, Report]:
        """Return all reports by their names, after checking that this dashboard exists and is valid.

        Raises:
            Refused: the dashboard does not exist (`not_found`).
            Unavailable: the store is not open, or the dashboard is invalid (`not_ready`).
        """
        try:
            self.check(engine)
        except Misconfigured as error:
            log.error("dashboard_invalid", extra={"detail": str(error)})
            raise Unavailable(Reason.NOT_READY, _with_restart_advice(error), retry_after_s=60) from error
        self.find(dashboard_name)  # Raises if the dashboard does not exist or is invalid.
        return self._reports

    def find(self, name: str) -> Dashboard:
        """Return the dashboard with this name.

        Raises:
            Refused: the dashboard does not exist (`not_found`).
            Unavailable: the dashboard is invalid (`not_ready`).
        """
        if name in self.errors:
            raise Unavailable(Reason.NOT_READY, self.errors[name], retry_after_s=60)
        return find_dashboard(self.by_name, name)

    def _add_error(self, name: str, error: Misconfigured) -> None:
        """Log the error of a dashboard, and store it for `find`."""
        detail = _with_restart_advice(error)
        log.error("dashboard_invalid", extra={"detail": detail})
        self.errors[name] = detail


def _with_restart_advice(error: Misconfigured) -> str:
    return f"{error} Then restart the server."
