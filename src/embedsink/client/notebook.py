"""Reports as pandas frames, from a data folder or from a server.

    sink = embedsink.open("data")                                # or embedsink.connect(url, key="es_read_…")
    sink.report("views", since="2026-11-01", timezone="Europe/Berlin")
    sink.events(since="7d")
    sink.sql("select * from ai_query where status = 'abandoned'")

Both sources give the same dtypes: `Int64` and `boolean`, which allow missing values, `datetime64[us, UTC]` for times,
and `category` for columns with few values, such as surface, format and status.
"""

import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from email.message import Message
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NoReturn, Unpack

import pandas

from embedsink.client.dtypes import with_dtypes
from embedsink.client.http_client import HttpClient
from embedsink.client.params import ReportParams, api_params, sql_parameters
from embedsink.data_folder import DataFolder, require_folder
from embedsink.errors import Misconfigured, Refused, preview
from embedsink.reasons import Reason
from embedsink.reports.catalog import (
    EVENT_VIEW,
    all_reports,
    check_report_name,
    find_report,
    missing_reports_warning,
    read_day_marks,
    view_of,
)
from embedsink.reports.day_marks import DayMarks, iso_days, parse_day_marks
from embedsink.reports.pagination import PageRequest
from embedsink.reports.scope import Scope, parse_scope
from embedsink.settings import read_settings
from embedsink.store.frames import frame_of_parquet
from embedsink.store.snapshot_reader import SnapshotReader, open_snapshot

# A scope with no filter.
_EVERYTHING_SCOPE = Scope()
_REPORT_FIELDS = ("name", "title", "question", "grain", "columns")
_COLUMN_FIELDS = ("name", "type", "unit", "description")


class Client(ABC):
    """The reports of a data folder or of a server, as pandas frames."""

    def report(self, name: str, **params: Unpack[ReportParams]) -> pandas.DataFrame:
        """Return the rows of a report.

        All arguments but `name` are optional. Without them, the frame has all rows. If some rows come from daily
        totals, `frame.attrs["daily_totals"]` has the first and the last of their UTC days, such as `2026-08-01`.
        If the rows lack days of the period because their events were deleted, `frame.attrs["deleted_days"]` has these.

        Args:
            name: the name of a report, such as `views`. `reports()` lists all.
            since: the start: a date, a datetime, or text such as `2026-11-01`, `2026-11-01T09:30Z` or `7d` (seven days
                ago).
            until: the end, exclusive, in the same forms.
            surface: `dashboard`, `app` or `chat`.
            deployment: a deployment, or a list of them.
            tenant: a tenant.
            vendor: the vendor of the embed, such as `looker`.
            internal: whether events of internal people count: `exclude` (the default), `include` or `only`.
            by: `department`, `group`, or a list of both: one row for each. Only some reports have it.
            department: a department of the directory: only its viewers count. Only some reports have it.
            group: a group of the directory: only its viewers count. Only some reports have it.
            interval: the length of a period: `hour`, `day`, `week` or `month`. The default is `day`.
            timezone: the IANA time zone of days and of times without an offset. The default is UTC.
            columns: a list of column names.
            limit: the maximum number of rows, up to 100,000.

        Examples:
            sink.report("views", since="2026-11-01", interval="week", timezone="Europe/Berlin")
            sink.report("views", since="30d", by="department")
            sink.report("ai_query", since="7d", deployment=[12, 13], columns=["submitted_at", "query", "status"])

        Raises:
            Refused: the report, a column or a parameter is wrong, or the key does not allow it.
            TypeError: an argument has the wrong type.
            Misconfigured: the data folder has no snapshot yet.
            Unavailable: the server is overloaded. Retry.
            Unreachable: the server does not answer.
        """
        return self._read_report(_report_name(name), params)

    def events(self, **params: Unpack[ReportParams]) -> pandas.DataFrame:
        """Return the raw events, one in each row, in the order in which the server stored them.

        The arguments are the same as for `report`, except the name.

        Examples:
            sink.events(since="7d", surface="chat")
            sink.events(since="2026-11-01", until="2026-12-01", columns=["occurred_at", "type", "viewer"])

        Raises:
            Refused: a column or a parameter is wrong, or the key does not allow it.
            TypeError: an argument has the wrong type.
            Misconfigured: the data folder has no snapshot yet.
            Unavailable: the server is overloaded. Retry.
            Unreachable: the server does not answer.
        """
        return self._read_events(params)

    def reports(self) -> pandas.DataFrame:
        """Return the list of reports, each with its question, its grain and its column names."""
        rows = []
        for report in self._list_reports():
            column_names = ", ".join(column["name"] for column in report["columns"])
            rows.append(report | {"columns": column_names})
        return pandas.DataFrame(rows, columns=_REPORT_FIELDS)

    def columns(self, name: str) -> pandas.DataFrame:
        """Return the columns of a report, with their types, units and descriptions.

        Raises:
            Refused: the report does not exist.
        """
        report = self._describe_report(_report_name(name))
        return pandas.DataFrame(report["columns"], columns=_COLUMN_FIELDS)

    @abstractmethod
    def _read_report(self, name: str, params: ReportParams) -> pandas.DataFrame:
        """Return the rows of a report."""

    @abstractmethod
    def _read_events(self, params: ReportParams) -> pandas.DataFrame:
        """Return the raw events."""

    @abstractmethod
    def _list_reports(self) -> list[dict[str, Any]]:
        """Return the descriptions of all reports, each with its columns."""

    @abstractmethod
    def _describe_report(self, name: str) -> dict[str, Any]:
        """Return the description of a report with its columns. Raise Refused if the report does not exist."""


class LocalClient(Client):
    """The reports of a data folder. Each call opens the current snapshot."""

    def __init__(self, folder: DataFolder) -> None:
        self._snapshot = folder.snapshot

    def sql(self, text: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> pandas.DataFrame:
        """Run SQL on the snapshot. The SQL can read all tables and views, without a scope.

        SQL can also read your pandas frames: a name that is neither a table nor a view may be a variable of the caller.

        The snapshot is read-only. But SQL runs with your permissions: `copy … to` writes files and `read_csv` reads
        them. Don't run SQL from untrusted sources, and pass values as parameters.

        Args:
            text: one or more SQL statements. The last one returns the rows.
            parameters: a list for `?` and `$1`, or a dictionary for `$name`.

        Examples:
            sink.sql("select * from views where surface = ?", ["chat"])
            sink.sql("select * from views where surface = $surface", {"surface": "chat"})

            people = pandas.DataFrame({"viewer": ["u_42"], "team": ["Sales"]})
            sink.sql("select team, count(*) from event join people using (viewer) group by team")

        Raises:
            Refused: DuckDB rejects the SQL. The message is DuckDB's, with candidates and the position.
            TypeError: the text is not a string, or the parameters are neither a list nor a dictionary.
            Unavailable: the query needs more memory than is available.
            Misconfigured: the data folder has no snapshot yet.
        """
        if not isinstance(text, str):
            raise TypeError(f"sql: {preview(text)} is not a string. Pass SQL as text.")
        values = sql_parameters(parameters)
        # An unknown table name in the SQL may be a variable of the caller.
        stack_frame = inspect.currentframe()
        caller = stack_frame.f_back if stack_frame else None
        with self._open_snapshot(_EVERYTHING_SCOPE) as reader:
            frame, sql_types = reader.run(text, values, caller=caller)
            return with_dtypes(frame, sql_types)

    def _read_report(self, name: str, params: ReportParams) -> pandas.DataFrame:
        return self._read_rows(check_report_name(name), params)

    def _read_events(self, params: ReportParams) -> pandas.DataFrame:
        return self._read_rows(EVENT_VIEW, params)

    def _read_rows(self, view: str, params: ReportParams) -> pandas.DataFrame:
        """Return the rows of a view that the parameters select."""
        texts, deployments = api_params(params)
        scope = parse_scope(texts, deployments=deployments)
        rows_view = view_of(view, scope)
        page = PageRequest(texts.get("columns"), texts.get("limit"))
        with self._open_snapshot(scope) as reader, reader.consistent():
            query, _next_page = page.select(reader, rows_view)
            frame, sql_types = reader.frame(query)
            return _with_marks(with_dtypes(frame, sql_types), read_day_marks(reader, rows_view))

    def _list_reports(self) -> list[dict[str, Any]]:
        with self._open_snapshot(_EVERYTHING_SCOPE) as reader:
            warning = missing_reports_warning(reader)
            if warning is not None:
                warnings.warn(warning, stacklevel=3)  # The warning is about the line that calls `reports`.
            return [asdict(report) for report in all_reports(reader)]

    def _describe_report(self, name: str) -> dict[str, Any]:
        with self._open_snapshot(_EVERYTHING_SCOPE) as reader:
            return asdict(find_report(reader, name))

    def _open_snapshot(self, scope: Scope) -> SnapshotReader:
        """Open the current snapshot, restricted to a scope."""
        return open_snapshot(self._snapshot, {**read_settings().variables(), **scope.variables()})


class RemoteClient(Client):
    """The reports of a server, within the scope of the key."""

    def __init__(self, http_client: HttpClient) -> None:
        self._http_client = http_client

    def sql(self, text: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> NoReturn:
        """Raise an error: SQL runs on a data folder only.

        Raises:
            Refused: always. The message explains how to download the snapshot.
        """
        url = f"{self._http_client.url}/api/v1/analytics.duckdb"
        raise Refused(
            Reason.BAD_PARAMETER,
            "sql: a server does not run SQL. Open a data folder on this machine with embedsink.open, or a folder with "
            f"a downloaded analytics.duckdb: GET {url}, with a read key without a scope.",
        )

    def _read_report(self, name: str, params: ReportParams) -> pandas.DataFrame:
        return self._read_rows(params, "reports", f"{name}.parquet")

    def _read_events(self, params: ReportParams) -> pandas.DataFrame:
        return self._read_rows(params, "events.parquet")

    def _read_rows(self, params: ReportParams, *path: str) -> pandas.DataFrame:
        """Return the rows of the Parquet file at a path below `/api/v1`."""
        texts, deployments = api_params(params)
        query = {**texts, "deployment": deployments}
        headers: list[Message] = []
        with NamedTemporaryFile(suffix=".parquet") as file:
            file.writelines(self._http_client.get_chunks(*path, query=query, on_headers=headers.append))
            file.flush()
            frame, sql_types = frame_of_parquet(Path(file.name))
            return _with_marks(with_dtypes(frame, sql_types), parse_day_marks(headers[0]))

    def _list_reports(self) -> list[dict[str, Any]]:
        return self._http_client.get_rows("reports", required_members=_REPORT_FIELDS)

    def _describe_report(self, name: str) -> dict[str, Any]:
        return self._http_client.get_object("reports", name, "schema", required_members=("columns",))


def open(data: str | Path = "data") -> LocalClient:
    """Open a data folder on this machine. A server may have the folder open at the same time.

    Args:
        data: the path of the folder.

    Examples:
        sink = embedsink.open("data")

    Raises:
        Misconfigured: the folder does not exist, or is a file.
    """
    folder = DataFolder(Path(data))
    if folder.path.is_file():
        raise Misconfigured(f"data folder {folder.path}: is a file. Pass the folder that contains it.")
    require_folder(folder.path)
    return LocalClient(folder)


def connect(url: str, *, key: str | None = None) -> RemoteClient:
    """Connect to a server. The first request is sent when a report is read.

    Args:
        url: such as `https://events.example.com`. Plain HTTP is allowed for this machine only.
        key: a read key. The default is the environment variable EMBEDSINK_KEY.

    Examples:
        sink = embedsink.connect("https://events.example.com", key="es_read_…")

    Raises:
        Misconfigured: the URL or the key is malformed.
    """
    return RemoteClient(HttpClient(url, key or os.environ.get("EMBEDSINK_KEY")))


def _with_marks(frame: pandas.DataFrame, marks: DayMarks) -> pandas.DataFrame:
    """Return a frame with its marks as the attributes `daily_totals` and `deleted_days`; unchanged without marks."""
    # `to_parquet` saves attributes as JSON, which has no dates.
    if marks.totaled is not None:
        frame.attrs["daily_totals"] = iso_days(marks.totaled)
    if marks.deleted is not None:
        frame.attrs["deleted_days"] = iso_days(marks.deleted)
    return frame


def _report_name(name: str) -> str:
    """Return the name of a report unchanged, or raise a TypeError if it is not a string."""
    if not isinstance(name, str):
        raise TypeError(f'report: {preview(name)} is not a name. Example: "views".')
    return name
