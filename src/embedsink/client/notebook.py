"""Reports as pandas frames, from a data folder or from a server.

    sink = embedsink.open("data")                                # or embedsink.connect(url, key="es_read_…")
    sink.report("views", since="2026-11-01", timezone="Europe/Berlin")
    sink.events(since="7d")
    sink.sql("select * from ai_query where status = 'abandoned'")

Both sources give the same dtypes: `Int64` and `boolean`, which allow missing values, `datetime64[us, UTC]` for times,
and `category` for columns with few values, such as surface, format and status.
"""

import contextlib
import inspect
import operator
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NoReturn, TypedDict, Unpack

import numpy
import pandas

from embedsink.client.http_client import HttpClient
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured, Refused, quote
from embedsink.reasons import Reason
from embedsink.reports.catalog import EVENTS, all_reports, find_report, known_name, missing_reports
from embedsink.reports.pagination import PageRequest
from embedsink.reports.scope import Scope, parse_scope
from embedsink.settings import read_settings
from embedsink.store.reader import EVERYTHING, Reader, frame_of_parquet, open_snapshot

_REPORT_FIELDS = ("name", "title", "question", "grain", "columns")
_COLUMN_FIELDS = ("name", "type", "unit", "description")
_TIME_PARAMS = ("since", "until")
_TIME: Any = "datetime64[us, UTC]"
_TYPES: dict[str, Any] = {
    "BIGINT": "Int64",
    "INTEGER": "Int64",
    "SMALLINT": "Int64",
    "TINYINT": "Int64",
    "UINTEGER": "Int64",
    "DOUBLE": "float64",
    "FLOAT": "float64",
    "BOOLEAN": "boolean",
    "VARCHAR": "string",
    "UUID": "string",
    "JSON": "string",
    "TIMESTAMP": _TIME,
    "TIMESTAMP WITH TIME ZONE": _TIME,
    "DATE": "datetime64[us]",
}
# The largest integer up to which every integer is exact as a float.
_EXACT_MAX = 2**53
# Columns with few values, in any report.
_CATEGORIES = (
    "surface",
    "payload_surface",
    "type",
    "format",
    "target",
    "status",
    "mode",
    "stage",
    "reason",
)


class ScopeParams(TypedDict, total=False):
    """The parameters that select events and the length of a period. Each is optional, and None selects everything.

    Args:
        since: the first moment: a date, a datetime, or text such as `2026-11-01` or `7d` (seven days ago).
        until: the end, exclusive, in the same forms.
        surface: `dashboard`, `app` or `chat`.
        deployment: one deployment or several.
        tenant: one tenant.
        interval: the length of a period: `hour`, `day` (the default), `week` or `month`.
        timezone: an IANA time zone, in which days begin and times without an offset are read. The default is UTC.
    """

    since: str | date | None
    until: str | date | None
    surface: str | None
    deployment: int | Iterable[int] | None
    tenant: str | None
    interval: str | None
    timezone: str | None


class ReportParams(ScopeParams, total=False):
    """The parameters of a report: those of the scope, and which rows and columns to return.

    Args:
        columns: a list of names. The default is all columns.
        limit: the most rows to return. The default is all rows.
    """

    columns: str | Iterable[str] | None
    limit: int | None


class Client(ABC):
    """The reports of one source, as pandas frames."""

    def report(self, name: str, **params: Unpack[ReportParams]) -> pandas.DataFrame:
        """Return the rows of a report.

            sink.report("views", since="2026-11-01", interval="week", deployment=[12, 13])

        Args:
            name: the name of the report. `reports()` lists all.
            params: see `ReportParams`.

        Raises:
            Refused: the report, a column or a parameter is wrong, or the key does not allow it.
            TypeError: an argument has the wrong type.
            Misconfigured: the data folder has no snapshot yet.
            Unavailable: the server is overloaded. Retry.
            Unreachable: the server does not answer.
        """
        return self._read_report(_report_name(name), params)

    def events(self, **params: Unpack[ReportParams]) -> pandas.DataFrame:
        """Return the raw events, one a row. With a `limit`, return those that were stored first.

        Args:
            params: see `ReportParams`.

        Raises:
            Refused: a column or a parameter is wrong, or the key does not allow it.
            TypeError: an argument has the wrong type.
            Misconfigured: the data folder has no snapshot yet.
            Unavailable: the server is overloaded. Retry.
            Unreachable: the server does not answer.
        """
        return self._read_events(params)

    def reports(self) -> pandas.DataFrame:
        """Return the list of reports, with the question that each answers, its grain and its column names."""
        rows = [
            report | {"columns": ", ".join(column["name"] for column in report["columns"])}
            for report in self._list_reports()
        ]
        return pandas.DataFrame(rows, columns=_REPORT_FIELDS)

    def columns(self, name: str) -> pandas.DataFrame:
        """Return the columns of a report, with their types, units and descriptions.

        Raises:
            Refused: the report does not exist.
        """
        return pandas.DataFrame(self._describe_report(_report_name(name))["columns"], columns=_COLUMN_FIELDS)

    @abstractmethod
    def _read_report(self, name: str, params: ReportParams) -> pandas.DataFrame: ...

    @abstractmethod
    def _read_events(self, params: ReportParams) -> pandas.DataFrame: ...

    @abstractmethod
    def _list_reports(self) -> list[dict[str, Any]]: ...

    @abstractmethod
    def _describe_report(self, name: str) -> dict[str, Any]: ...


class LocalClient(Client):
    """The reports of a data folder. Each call opens the current snapshot."""

    def __init__(self, folder: DataFolder) -> None:
        self._snapshot = folder.snapshot

    def sql(self, text: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> pandas.DataFrame:
        """Run SQL on the snapshot, over all tables and views, without a scope.

            sink.sql("select * from views where surface = ?", ["chat"])
            sink.sql("select * from views where surface = $surface", {"surface": "chat"})
            people = pandas.DataFrame({"viewer": ["u_42"], "team": ["Sales"]})
            sink.sql("select team, count(*) from event join people using (viewer) group by team")

        A name in SQL that is neither a table nor a view may be the variable of a frame, local or global.

        The snapshot is read-only. But SQL runs with your permissions: `copy … to` writes files and `read_csv` reads
        them. Don't run SQL from untrusted sources, and pass values as parameters.

        Args:
            text: SQL. The result is that of the last statement.
            parameters: a list for `?` and `$1`, or a dictionary for `$name`.

        Raises:
            Refused: DuckDB rejects the SQL. The message is DuckDB's, with candidates and the position.
            TypeError: the text is not a string, or the parameters are neither a list nor a dictionary.
            Unavailable: the query needs more memory than is available.
            Misconfigured: the data folder has no snapshot yet.
        """
        if not isinstance(text, str):
            raise TypeError(f"sql: {quote(text)} is not a string. Pass SQL as text.")
        values, frame = _python_values(parameters), inspect.currentframe()
        with open_snapshot(self._snapshot, {**EVERYTHING, **read_settings().variables()}) as reader:
            return _with_dtypes(*reader.run(text, values, caller=frame.f_back if frame else None))

    def _read_report(self, name: str, params: ReportParams) -> pandas.DataFrame:
        return self._read_rows(known_name(name), params)

    def _read_events(self, params: ReportParams) -> pandas.DataFrame:
        return self._read_rows(EVENTS, params)

    def _read_rows(self, view: str, params: ReportParams) -> pandas.DataFrame:
        texts, deployments = _as_texts(params)
        scope = parse_scope(texts, deployments=deployments)
        with self._open(scope) as reader, reader.consistent():
            selection, _ = PageRequest(texts.get("columns"), texts.get("limit")).select(reader, view)
            return _with_dtypes(*reader.frame(selection))

    def _list_reports(self) -> list[dict[str, Any]]:
        with self._open(Scope()) as reader:
            if missing := missing_reports(reader):
                warnings.warn(missing, stacklevel=3)
            return [asdict(report) for report in all_reports(reader)]

    def _describe_report(self, name: str) -> dict[str, Any]:
        with self._open(Scope()) as reader:
            return asdict(find_report(reader, name))

    def _open(self, scope: Scope) -> Reader:
        return open_snapshot(self._snapshot, {**read_settings().variables(), **scope.variables()})


class RemoteClient(Client):
    """The reports of a server, within the scope of the key."""

    def __init__(self, remote: HttpClient) -> None:
        self._remote = remote

    def sql(self, text: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> NoReturn:
        """Raise an error: SQL runs on a data folder only.

        Raises:
            Refused: always. The message explains how to download the snapshot.
        """
        url = f"{self._remote.url}/api/v1/analytics.duckdb"
        raise Refused(
            Reason.BAD_PARAMETER,
            "sql: a server runs no SQL. Open a data folder on this machine with embedsink.open, or a folder with a "
            f"downloaded analytics.duckdb: GET {url}, with a read key without a scope.",
        )

    def _read_report(self, name: str, params: ReportParams) -> pandas.DataFrame:
        return self._read_rows(params, "reports", f"{name}.parquet")

    def _read_events(self, params: ReportParams) -> pandas.DataFrame:
        return self._read_rows(params, "events.parquet")

    def _read_rows(self, params: ReportParams, *path: str) -> pandas.DataFrame:
        texts, deployments = _as_texts(params)
        with NamedTemporaryFile(suffix=".parquet") as file:
            file.writelines(self._remote.chunks(*path, query={**texts, "deployment": deployments}))
            file.flush()
            return _with_dtypes(*frame_of_parquet(Path(file.name)))

    def _list_reports(self) -> list[dict[str, Any]]:
        return self._remote.get_rows("reports", members=_REPORT_FIELDS)

    def _describe_report(self, name: str) -> dict[str, Any]:
        return self._remote.get_object("reports", name, "schema", members=("columns",))


def open(data: str | Path = "data") -> LocalClient:
    """Open a data folder on this machine. A server may have it open at the same time.

    Args:
        data: the path of the folder.

    Raises:
        Misconfigured: the folder does not exist, or is a file.
    """
    folder = DataFolder(Path(data))
    if folder.path.is_file():
        raise Misconfigured(f"data folder {folder.path}: is a file. Pass the folder that contains it.")
    if not folder.path.is_dir():
        raise Misconfigured(
            f"data folder {folder.path}: does not exist. Pass the folder that `embedsink serve` writes."
        )
    return LocalClient(folder)


def connect(url: str, *, key: str | None = None) -> RemoteClient:
    """Connect to a server. The first request is sent when a report is read.

    Args:
        url: such as `https://events.example.com`. Plain HTTP is allowed for this machine only.
        key: a read key. The default is the environment variable EMBEDSINK_KEY.

    Raises:
        Misconfigured: the URL or the key is malformed.
    """
    return RemoteClient(HttpClient(url, key or os.environ.get("EMBEDSINK_KEY")))


def _python_values(parameters: object) -> object:
    """Convert NumPy scalars to Python's, which DuckDB requires."""
    match parameters:
        case Mapping():
            return {name: _python_value(value) for name, value in parameters.items()}
        case Sequence() if not isinstance(parameters, str | bytes):
            return [_python_value(value) for value in parameters]
        case None:
            return None
    raise TypeError(f"parameters: {quote(parameters)} is neither a list nor a dictionary. Pass [value].")


def _python_value(value: object) -> object:
    return value.item() if isinstance(value, numpy.generic) else value


def _report_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f'report: {quote(name)} is not a name. Example: "views".')
    return name


def _as_texts(params: ReportParams) -> tuple[dict[str, str | None], list[int]]:
    """Return the parameters as the HTTP API has them: texts, and the deployments as a list."""
    known = ScopeParams.__annotations__ | ReportParams.__annotations__
    if unknown := params.keys() - known:
        raise TypeError(f"{min(unknown)}: is not a parameter. Parameters: {', '.join(known)}.")
    texts = {name: _as_text(name, value) for name, value in params.items() if name != "deployment"}
    return texts, _deployments(params.get("deployment"))


def _as_text(name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and name != "limit"):
        return value
    if name in _TIME_PARAMS and isinstance(value, date):
        return value.isoformat()
    if name == "columns" and isinstance(value, Iterable):
        return ",".join(map(str, value))
    if name == "limit" and not isinstance(value, str | bool) and hasattr(value, "__index__"):
        return str(operator.index(value))
    allowed = {
        "since": "a date, a datetime or text such as 2026-11-01 or 7d",
        "until": "a date, a datetime or text such as 2026-11-01 or 7d",
        "columns": "a list of names",
        "limit": "an integer",
    }.get(name, "text")
    raise TypeError(f"{name}: {quote(value)} is not {allowed}. Omit it to select everything.")


def _deployments(value: Any) -> list[int]:
    if value is None:
        return []
    deployments = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]
    if not deployments:
        raise TypeError("deployment: the list is empty. Omit it to select all deployments.")
    return [_deployment(deployment) for deployment in deployments]


def _deployment(value: Any) -> int:
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool):
            return operator.index(value)  # Accepts NumPy integers too.
    raise TypeError(f"deployment: {quote(value)} is not an integer. Examples: deployment=12, deployment=[12, 13].")


def _with_dtypes(frame: pandas.DataFrame, types: list[str]) -> pandas.DataFrame:
    """Convert each column to the dtype of its SQL type, so that both sources agree, also without rows."""
    # By position, since names may repeat.
    columns = {
        index: _with_dtype(str(frame.columns[index]), frame.iloc[:, index], type_) for index, type_ in enumerate(types)
    }
    return pandas.DataFrame(columns, index=frame.index).set_axis(frame.columns, axis=1)


def _with_dtype(name: str, column: "pandas.Series[Any]", type_: str) -> "pandas.Series[Any]":
    converted: pandas.Series[Any] = column
    if type_ == "TIMESTAMP":
        converted = column.dt.tz_localize("UTC").astype(_TIME)
    elif type_ == "HUGEINT" and (column.isna() | (column.abs() <= _EXACT_MAX)).all():
        converted = column.astype("Int64")  # DuckDB sums integers to 128 bits, which pandas lacks.
    elif type_ == "VARCHAR" and name in _CATEGORIES:
        converted = column.astype("string").astype("category")
    elif type_ in _TYPES:
        converted = column.astype(_TYPES[type_])
    return converted
