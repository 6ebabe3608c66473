"""The Python face: reports as pandas frames, from a data folder or from a server.

    sink = embedsink.open("data")                                # or embedsink.connect(url, key="es_read_…")
    sink.report("views", since="2026-11-01", timezone="Europe/Berlin")
    sink.events(since="7d")
    sink.sql("select * from ai_query where status = 'abandoned'")

Types are the same from either. Integers are `Int64` and truths `boolean`, so that they may be missing; times are
`datetime64[us, UTC]`; what has few values (surface, format, status, …) is a category.
"""

import contextlib
import inspect
import operator
import os
import warnings
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
from embedsink.errors import Misconfigured, Refused, preview
from embedsink.reasons import Reason
from embedsink.reports.catalog import EVENTS, all_reports, find_report, known_name, missing_reports
from embedsink.reports.pagination import RowsAsked
from embedsink.reports.scope import Scope, parse_scope
from embedsink.settings import read_settings
from embedsink.store.reader import EVERYTHING, Reader, frame_of_parquet, open_snapshot

_LISTED = ("name", "title", "question", "grain", "columns")
_DESCRIBED = ("name", "type", "unit", "description")
_TIMES = ("since", "until")
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
_EXACT_MAX = 2**53
# Columns of few values, whatever report they stand in.
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


class Asked(TypedDict, total=False):
    """Which events, in which periods. Nothing bounds what is not given.

    `since` and `until` are a date, a datetime, or text such as `2026-11-01` or `7d` (that long ago); `until` is
    exclusive. Without a zone of their own they are by the clocks of `timezone`, or else UTC. `deployment` is one or
    several.
    """

    since: str | date | None
    until: str | date | None
    surface: str | None
    deployment: int | Iterable[int] | None
    tenant: str | None
    interval: str | None
    timezone: str | None


class AskedRows(Asked, total=False):
    """And which rows: `columns` is a list of names, `limit` at most so many rows."""

    columns: str | Iterable[str] | None
    limit: int | None


class LocalClient:
    """The reports of a data folder, as of its last snapshot. Each question opens it anew, so it never grows old."""

    def __init__(self, folder: DataFolder) -> None:
        self._snapshot = folder.snapshot

    def report(self, name: str, **asked: Unpack[AskedRows]) -> pandas.DataFrame:
        """The rows of a report.

        Raises:
            Refused: there is no such report, column or scope.
            TypeError: something is of a type that it can't have.
            Misconfigured: there is no snapshot yet.
        """
        return self._rows(known_name(_report_name(name)), asked)

    def events(self, **asked: Unpack[AskedRows]) -> pandas.DataFrame:
        """The raw events, one a row; with a `limit` those that arrived first.

        Raises:
            Refused: there is no such column or scope.
            TypeError: something is of a type that it can't have.
            Misconfigured: there is no snapshot yet.
        """
        return self._rows(EVENTS, asked)

    def reports(self) -> pandas.DataFrame:
        """Which reports there are, what each answers, and the names of its columns; `columns` says what each means."""
        with self._read(Scope()) as reader:
            if missing := missing_reports(reader):
                warnings.warn(missing, stacklevel=2)
            return _listed([asdict(report) for report in all_reports(reader)])

    def columns(self, name: str) -> pandas.DataFrame:
        """The columns of a report, with what each means.

        Raises:
            Refused: there is no such report.
        """
        with self._read(Scope()) as reader:
            return _described(asdict(find_report(reader, _report_name(name))))

    def sql(self, text: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> pandas.DataFrame:
        """The answer to your own SQL, over all tables and views, without a scope.

            sink.sql("select * from views where surface = ?", ["chat"])
            sink.sql("select * from views where surface = $surface", {"surface": "chat"})
            people = pandas.DataFrame({"viewer": ["u_42"], "team": ["Sales"]})
            sink.sql("select team, count(*) from event join people using (viewer) group by team")

        A frame is found by the name of its variable, local or global, where no table or view has that name.

        It can't change the snapshot, which is open read-only. But it runs as you: `copy … to` writes files, and
        `read_csv` reads them. So run no SQL of strangers, and pass values as parameters.

        Args:
            text: SQL; the answer is that of the last statement.
            parameters: a list for `?` and `$1`, or a dictionary for `$name`.

        Raises:
            Refused: DuckDB can't run it; with all that DuckDB says, candidates and position included.
            TypeError: the text is no string, or the parameters are neither list nor dictionary.
            Unavailable: it needs more memory than there is.
            Misconfigured: there is no snapshot yet.
        """
        if not isinstance(text, str):
            raise TypeError(f"sql: {preview(text)} is not text. Write it as a string.")
        values, frame = _plain(parameters), inspect.currentframe()
        with open_snapshot(self._snapshot, {**EVERYTHING, **read_settings().variables()}) as reader:
            return _typed(*reader.run(text, values, caller=frame.f_back if frame else None))

    def _rows(self, view: str, asked: AskedRows) -> pandas.DataFrame:
        text, deployments = _as_text(asked)
        scope = parse_scope(text, deployments=deployments)
        with self._read(scope) as reader, reader.consistent():
            selection, _ = RowsAsked(text.get("columns"), text.get("limit")).select(reader, view)
            return _typed(*reader.frame(selection))

    def _read(self, scope: Scope) -> Reader:
        return open_snapshot(self._snapshot, {**read_settings().variables(), **scope.variables()})


class RemoteClient:
    """The reports of a server, as far as the key reaches."""

    def __init__(self, remote: HttpClient) -> None:
        self._remote = remote

    def report(self, name: str, **asked: Unpack[AskedRows]) -> pandas.DataFrame:
        """The rows of a report.

        Raises:
            Refused: the key does not allow it, or there is no such report, column or scope.
            Unavailable: the server is overloaded; ask again.
            TypeError: something is of a type that it can't have.
            Unreachable: it does not answer.
        """
        return self._rows(asked, "reports", f"{_report_name(name)}.parquet")

    def events(self, **asked: Unpack[AskedRows]) -> pandas.DataFrame:
        """The raw events, one a row; with a `limit` those that arrived first.

        Raises:
            Refused: the key does not allow it, or there is no such column or scope.
            Unavailable: the server is overloaded; ask again.
            TypeError: something is of a type that it can't have.
            Unreachable: it does not answer.
        """
        return self._rows(asked, "events.parquet")

    def reports(self) -> pandas.DataFrame:
        """Which reports there are, what each answers, and the names of its columns; `columns` says what each means."""
        return _listed(self._remote.get_rows("reports", members=_LISTED))

    def columns(self, name: str) -> pandas.DataFrame:
        """The columns of a report, with what each means.

        Raises:
            Refused: there is no such report.
        """
        return _described(self._remote.get_object("reports", _report_name(name), "schema", members=("columns",)))

    def sql(self, text: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> NoReturn:
        """Own SQL runs where the data is, and never on a server.

        Raises:
            Refused: always; it says what to do.
        """
        address = f"{self._remote.url}/api/v1/analytics.duckdb"
        raise Refused(
            Reason.BAD_PARAMETER,
            "sql: runs on this machine alone, and this is a server. Open its data folder with embedsink.open, or a "
            f"folder with an analytics.duckdb that you downloaded: GET {address}, with a read key without a scope.",
        )

    def _rows(self, asked: AskedRows, *path: str) -> pandas.DataFrame:
        text, deployments = _as_text(asked)
        with NamedTemporaryFile(suffix=".parquet") as file:
            file.writelines(self._remote.chunks(*path, query={**text, "deployment": deployments}))
            file.flush()
            return _typed(*frame_of_parquet(Path(file.name)))


def open(data: str | Path = "data") -> LocalClient:
    """The reports of a data folder on this machine, be a server running there or not.

    Raises:
        Misconfigured: there is no such folder, or it is a file.
    """
    folder = DataFolder(Path(data))
    if folder.path.is_file():
        raise Misconfigured(f"data folder {folder.path}: is a file. Name the folder that it lies in.")
    if not folder.path.is_dir():
        raise Misconfigured(f"data folder {folder.path}: does not exist. Name the one that `embedsink serve` writes.")
    return LocalClient(folder)


def connect(url: str, *, key: str | None = None) -> RemoteClient:
    """The reports of a server.

    Args:
        url: such as `https://events.example.com`; over plain HTTP only on this machine.
        key: a read key; without, the one in the environment's EMBEDSINK_KEY.

    Raises:
        Misconfigured: the URL or the key can't be one.
    """
    return RemoteClient(HttpClient(url, key or os.environ.get("EMBEDSINK_KEY")))


def _plain(parameters: object) -> object:
    """The parameters with Python's own numbers: DuckDB takes none of NumPy's."""
    match parameters:
        case Mapping():
            return {name: _plain_value(value) for name, value in parameters.items()}
        case Sequence() if not isinstance(parameters, str | bytes):
            return [_plain_value(value) for value in parameters]
        case None:
            return None
    raise TypeError(f"parameters: {preview(parameters)} is neither a list nor a dictionary. Write [value].")


def _plain_value(value: object) -> object:
    return value.item() if isinstance(value, numpy.generic) else value


def _report_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f'report: {preview(name)} is not the name of one. Write it like "views".')
    return name


def _as_text(asked: AskedRows) -> tuple[dict[str, str | None], list[int]]:
    """What a server would be asked: text, and the deployments as a list."""
    known = Asked.__annotations__ | AskedRows.__annotations__
    unknown = asked.keys() - known
    if unknown:
        raise TypeError(f"{min(unknown)}: is not one of {', '.join(known)}.")
    text = {name: _text(name, value) for name, value in asked.items() if name != "deployment"}
    return text, _deployments(asked.get("deployment"))


def _text(name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and name != "limit"):
        return value
    if name in _TIMES and isinstance(value, date):
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
    raise TypeError(f"{name}: {preview(value)} is not {allowed}. Leave it out for all.")


def _deployments(asked: Any) -> list[int]:
    if asked is None:
        return []
    several = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, str | bytes) else [asked]
    if not several:
        raise TypeError("deployment: is an empty list. Leave it out for all of them.")
    return [_deployment(one) for one in several]


def _deployment(one: Any) -> int:
    with contextlib.suppress(TypeError):
        if not isinstance(one, bool):
            return operator.index(one)  # NumPy's integers too
    raise TypeError(f"deployment: {preview(one)} is not an integer. Write deployment=12, or [12, 13] for several.")


def _listed(reports: list[dict[str, Any]]) -> pandas.DataFrame:
    rows = [report | {"columns": ", ".join(column["name"] for column in report["columns"])} for report in reports]
    return pandas.DataFrame(rows, columns=_LISTED)


def _described(report: dict[str, Any]) -> pandas.DataFrame:
    return pandas.DataFrame(report["columns"], columns=_DESCRIBED)


def _typed(frame: pandas.DataFrame, types: list[str]) -> pandas.DataFrame:
    """The same types from a folder and from a server, also where a column holds nothing."""
    typed = {}
    for place, type_ in enumerate(types):
        column = frame.iloc[:, place]
        typed[place] = _typed_column(str(frame.columns[place]), column, type_)
    return pandas.DataFrame(typed, index=frame.index).set_axis(frame.columns, axis=1)


def _typed_column(name: str, column: "pandas.Series[Any]", type_: str) -> "pandas.Series[Any]":
    typed: pandas.Series[Any]
    if type_ == "TIMESTAMP":
        typed = column.dt.tz_localize("UTC").astype(_TIME)
    elif type_ == "HUGEINT" and (column.isna() | (column.abs() <= _EXACT_MAX)).all():
        typed = column.astype("Int64")  # DuckDB makes sums of integers so wide, and pandas knows none of 128 bits.
    elif type_ == "VARCHAR" and name in _CATEGORIES:
        typed = column.astype("string").astype("category")
    else:
        typed = column.astype(_TYPES[type_]) if type_ in _TYPES else column
    return typed
