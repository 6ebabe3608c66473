"""The Python face: reports as pandas frames, from a data folder or from a server.

    sink = embedsink.open("data")                                # or embedsink.connect(url, key="es_read_…")
    sink.report("views", since="2026-11-01")
    sink.sql("select * from ai_query where status = 'abandoned'")

Integers that may be missing are `Int64`, times are `datetime64[us, UTC]`: the same from either.
"""

import operator
import os
from collections.abc import Iterable
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, TypedDict, Unpack

import orjson
import pandas

from embedsink.errors import Misconfigured, quote
from embedsink.folder import DataFolder
from embedsink.remote import Remote
from embedsink.reports import Scope, all_reports, find_report, parse_scope
from embedsink.store import EVERYTHING, Reader, open_snapshot

_LISTED = ["name", "title", "question", "grain"]
_TYPES: dict[str, Any] = {"integer": "Int64", "number": "float64", "boolean": "boolean", "string": "string"}
_TIMES = ("since", "until")
_TIME: Any = "datetime64[us, UTC]"


class Asked(TypedDict, total=False):
    """Which events a report is about. Nothing bounds what is not given.

    `since` and `until` are UTC: a date, a datetime, or text such as `2026-11-01` or `7d` (that long ago); `until`
    is exclusive. `deployment` is one or several.
    """

    since: str | date | None
    until: str | date | None
    surface: str | None
    deployment: int | Iterable[int] | None
    tenant: str | None
    interval: str | None


class OpenedSink:
    """The reports of a data folder, as of its last snapshot. Each question opens it anew, so it never grows old."""

    def __init__(self, folder: DataFolder) -> None:
        self._snapshot = folder.snapshot

    def report(self, name: str, **asked: Unpack[Asked]) -> pandas.DataFrame:
        """The rows of a report.

        Raises:
            Refused: there is no such report, or no such scope.
            TypeError: something is of a type that it can't have.
            Misconfigured: there is no snapshot yet.
        """
        text, deployments = _as_text(name, asked)
        with self._read(parse_scope(text, deployments=deployments)) as reader:
            described = find_report(reader, name)
            return _typed(reader.frame(name), {column.name: column.type for column in described.columns})

    def reports(self) -> pandas.DataFrame:
        """Which reports there are, and what each answers."""
        with self._read(Scope()) as reader:
            return pandas.DataFrame([asdict(report) for report in all_reports(reader)], columns=_LISTED)

    def sql(self, text: str) -> pandas.DataFrame:
        """The answer to your own SQL, over all tables and views, without a scope.

        It can't change the snapshot, which is open read-only. But it runs as you: `copy … to` writes files, and
        `read_csv` reads them. So run no SQL of strangers.

        Raises:
            Refused: it is no SQL, or names what there is not.
            Misconfigured: there is no snapshot yet.
        """
        if not isinstance(text, str):
            raise TypeError(f"sql: {quote(text)} is not text. Write it as a string.")
        with open_snapshot(self._snapshot, EVERYTHING) as reader:
            return reader.run(text)

    def _read(self, scope: Scope) -> Reader:
        return open_snapshot(self._snapshot, scope.variables())


class ConnectedSink:
    """The reports of a server, as far as the key reaches."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._types: dict[str, dict[str, str]] = {}

    def report(self, name: str, **asked: Unpack[Asked]) -> pandas.DataFrame:
        """The rows of a report.

        Raises:
            Refused: the key does not allow it, or there is no such report or scope.
            Unavailable: the server is overloaded; ask again.
            TypeError: something is of a type that it can't have.
            Unreachable: it does not answer.
        """
        text, deployments = _as_text(name, asked)
        rows = orjson.loads(self._remote.get("reports", f"{name}.json", query={**text, "deployment": deployments}))
        if name not in self._types:
            self.reports()
        types = self._types[name]
        return _typed(pandas.DataFrame(rows, columns=list(types), dtype=object), types)

    def reports(self) -> pandas.DataFrame:
        """Which reports there are, and what each answers."""
        listed = orjson.loads(self._remote.get("reports"))
        self._types = {
            report["name"]: {column["name"]: column["type"] for column in report["columns"]} for report in listed
        }
        return pandas.DataFrame(listed, columns=_LISTED)


def open(data: str | Path = "data") -> OpenedSink:
    """The reports of a data folder on this machine, be a server running there or not.

    Raises:
        Misconfigured: there is no such folder.
    """
    folder = DataFolder(Path(data))
    if not folder.path.is_dir():
        raise Misconfigured(f"data folder {folder.path}: does not exist. Name the one that `embedsink serve` writes.")
    return OpenedSink(folder)


def connect(url: str, *, key: str | None = None) -> ConnectedSink:
    """The reports of a server.

    Args:
        url: such as `https://sink.example.com`; over plain HTTP only on this machine.
        key: a read key; without, the one in the environment's EMBEDSINK_KEY.

    Raises:
        Misconfigured: the URL or the key can't be one.
    """
    return ConnectedSink(Remote(url, key or os.environ.get("EMBEDSINK_KEY")))


def _as_text(report: str, asked: Asked) -> tuple[dict[str, str | None], list[int]]:
    """What a server would be asked about a report: text, and the deployments as a list."""
    if not isinstance(report, str):
        raise TypeError(f'report: {quote(report)} is not the name of one. Write it like "views".')
    unknown = asked.keys() - Asked.__annotations__
    if unknown:
        raise TypeError(f"{min(unknown)}: is not one of {', '.join(Asked.__annotations__)}.")
    text = {name: _text(name, value) for name, value in asked.items() if name != "deployment"}
    return text, _deployments(asked.get("deployment"))


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if name in _TIMES and isinstance(value, date):
        return value.isoformat()
    allowed = "a date, a datetime or text such as 2026-11-01 or 7d" if name in _TIMES else "text"
    raise TypeError(f"{name}: {quote(value)} is not {allowed}. Leave it out for all.")


def _deployments(asked: Any) -> list[int]:
    if asked is None:
        return []
    several = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, str | bytes) else [asked]
    if not several:
        raise TypeError("deployment: is an empty list. Leave it out for all of them.")
    return [_deployment(one) for one in several]


def _deployment(one: Any) -> int:
    try:
        if not isinstance(one, bool):
            return operator.index(one)  # NumPy's integers too
    except TypeError:
        pass  # It is no integer at all.
    raise TypeError(f"deployment: {quote(one)} is not an integer. Write deployment=12, or [12, 13] for several.")


def _typed(frame: pandas.DataFrame, types: dict[str, str]) -> pandas.DataFrame:
    """The same types from a folder and from a server, also where a column holds nothing."""
    for name, type_ in types.items():
        if type_ in ("timestamp", "date"):
            frame[name] = pandas.to_datetime(frame[name], utc=True, format="ISO8601").astype(_TIME)
        else:
            frame[name] = frame[name].astype(_TYPES[type_])
    return frame
