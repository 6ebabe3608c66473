"""Where the reports of a command come from: a data folder, or a server."""

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Protocol

from embedsink.cli.options import server_at
from embedsink.cli.output import say
from embedsink.reports.format import Format

if TYPE_CHECKING:
    from embedsink.reports.formats import Style
    from embedsink.store.reader import Reader

CHUNK_BYTES = 65_536
# A larger answer goes through a temporary file; a smaller one is shown on a full disk too.
IN_MEMORY_BYTES_MAX = 8 * 1_048_576
# What asks for rows, and not for a scope.
ROWS = ("columns", "limit")

Asked = dict[str, Any]


class Source(Protocol):
    """Where reports come from."""

    def listed(self) -> list[dict[str, Any]]:
        """Every report, as `/api/v1/reports` describes it."""

    def described(self, name: str) -> dict[str, Any]:
        """One report with its columns, as `/api/v1/reports/{name}/schema` describes it."""

    def rows(self, name: str, asked: Asked) -> list[dict[str, Any]]:
        """The rows of a report, as in its `.json`."""

    def chunks(self, name: str, asked: Asked, format: Format) -> Iterable[bytes]:
        """The bytes of a report."""

    def summary(self, asked: Asked) -> Iterable[bytes]:
        """The bytes of a ZIP with every report."""


class Folder:
    """The last snapshot of a data folder."""

    def __init__(self, data: Path) -> None:
        from embedsink.data_folder import DataFolder

        self._snapshot = DataFolder(data).snapshot

    def listed(self) -> list[dict[str, Any]]:
        from embedsink.reports.catalog import all_reports

        with self._describing() as reader:
            _say_missing(reader)
            return [asdict(report) for report in all_reports(reader)]

    def described(self, name: str) -> dict[str, Any]:
        from embedsink.reports.catalog import describe, known_name

        known_name(name)
        with self._describing() as reader:
            return describe(reader, name)

    def rows(self, name: str, asked: Asked) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(b"".join(self.chunks(name, asked, Format.JSON)))
        return rows

    @contextmanager
    def _describing(self) -> Iterator["Reader"]:
        """The snapshot, or where there is none yet an empty store: what reports there are is known before any data."""
        from embedsink.store.database import Store
        from embedsink.store.reader import EVERYTHING, open_snapshot

        if self._snapshot.exists():
            with open_snapshot(self._snapshot, EVERYTHING) as reader:
                yield reader
            return
        with TemporaryDirectory() as folder, closing(Store(Path(folder) / "store.duckdb")) as store:
            store.open()
            with store.reader(EVERYTHING) as reader:
                yield reader

    def chunks(self, name: str, asked: Asked, format: Format) -> Iterator[bytes]:
        from embedsink.reports.catalog import known_name
        from embedsink.reports.formats import write_rows
        from embedsink.reports.pagination import RowsAsked
        from embedsink.reports.scope import parse_scope
        from embedsink.settings import read_settings
        from embedsink.store.reader import open_snapshot

        known_name(name)
        scope, style = parse_scope(asked, deployments=asked["deployment"]), _style_of(asked)
        rows = RowsAsked(asked["columns"], None if asked["limit"] is None else str(asked["limit"]))
        variables = {**read_settings().variables(), **scope.variables()}
        with open_snapshot(self._snapshot, variables) as reader, _spooled() as file:
            with reader.consistent():
                selection, _ = rows.select(reader, name)
                write_rows(reader, selection, file, format, style=style)
            yield from _chunks(file)

    def summary(self, asked: Asked) -> Iterator[bytes]:
        from embedsink.reports.scope import parse_scope
        from embedsink.reports.zip_export import write_summary
        from embedsink.settings import read_settings
        from embedsink.store.reader import open_snapshot

        scope, style = parse_scope(asked, deployments=asked["deployment"]), _style_of(asked)
        variables = {**read_settings().variables(), **scope.variables()}
        with open_snapshot(self._snapshot, variables) as reader, _spooled() as file:
            _say_missing(reader)
            with reader.consistent():
                write_summary(reader, scope, file, style=style)
            yield from _chunks(file)


class Server:
    """A server, over HTTP."""

    def __init__(self, url: str, key: str | None) -> None:
        self._remote = server_at(url, key)

    def listed(self) -> list[dict[str, Any]]:
        return self._remote.get_rows("reports", members=("name", "title", "question", "grain"))

    def described(self, name: str) -> dict[str, Any]:
        return self._remote.get_object("reports", name, "schema", members=("name", "question", "grain", "columns"))

    def rows(self, name: str, asked: Asked) -> list[dict[str, Any]]:
        return self._remote.get_rows("reports", f"{name}.{Format.JSON}", query=asked)

    def chunks(self, name: str, asked: Asked, format: Format) -> Iterator[bytes]:
        return self._remote.chunks("reports", f"{name}.{format}", query=asked)

    def summary(self, asked: Asked) -> Iterator[bytes]:
        return self._remote.chunks(
            "summary.zip", query={name: value for name, value in asked.items() if name not in ROWS}
        )


def _say_missing(reader: "Reader") -> None:
    from embedsink.reports.catalog import missing_reports

    if missing := missing_reports(reader):
        say(missing)


def _spooled() -> SpooledTemporaryFile[bytes]:
    return SpooledTemporaryFile(IN_MEMORY_BYTES_MAX)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _style_of(asked: Asked) -> "Style":
    from embedsink.reports.formats import Style

    return Style(guard=asked["guard"] == "on", bom=asked["bom"] == "on")
