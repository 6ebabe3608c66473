"""The sources of reports: a data folder or a server."""

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Protocol

from embedsink.cli.options import connect
from embedsink.cli.output import print_message
from embedsink.reports.day_marks import DayMarks, parse_day_marks
from embedsink.reports.format import Format

if TYPE_CHECKING:
    from email.message import Message

    from embedsink.reports.csv_writer import CsvOptions
    from embedsink.store.reader import Reader

CHUNK_BYTES = 65_536
# Reports up to this size stay in memory, so they also work on a full disk.
IN_MEMORY_BYTES_MAX = 8 * 1_048_576
# The parameters that select columns and rows of one report. A summary of all reports does not have them.
ROW_PARAMS = ("columns", "limit")

# Parameters of the HTTP API by their names.
Params = dict[str, Any]


class ReportBackend(Protocol):
    """A source of reports: a data folder or a server. Each method corresponds to a resource of the HTTP API."""

    def list_reports(self) -> list[dict[str, Any]]:
        """Return all reports, as `/api/v1/reports` does."""

    def describe_report(self, name: str) -> dict[str, Any]:
        """Return a report with its columns, as `/api/v1/reports/{name}/schema` does."""

    def read_rows(self, name: str, params: Params) -> list[dict[str, Any]]:
        """Return the rows of a report, as `/api/v1/reports/{name}.json` does."""

    def read_chunks(self, name: str, params: Params, format: Format) -> Iterable[bytes]:
        """Return the rows of a report in a file format, in chunks of bytes."""

    def read_summary(self, params: Params) -> Iterable[bytes]:
        """Return a ZIP file of all reports, in chunks of bytes."""


class LocalBackend:
    """A backend that reads the last snapshot of a data folder."""

    def __init__(self, data: Path) -> None:
        from embedsink.data_folder import DataFolder

        self._snapshot = DataFolder(data).snapshot

    def list_reports(self) -> list[dict[str, Any]]:
        from embedsink.reports.catalog import all_reports

        with self._open_catalog() as reader:
            _warn_of_missing_reports(reader)
            return [asdict(report) for report in all_reports(reader)]

    def describe_report(self, name: str) -> dict[str, Any]:
        from embedsink.reports.catalog import check_report_name, describe_report

        check_report_name(name)
        with self._open_catalog() as reader:
            return describe_report(reader, name)

    def read_rows(self, name: str, params: Params) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(b"".join(self.read_chunks(name, params, Format.JSON)))
        return rows

    def read_chunks(self, name: str, params: Params, format: Format) -> Iterator[bytes]:
        """Yield the rows of a report in a file format, in chunks of bytes."""
        from embedsink.reports.catalog import check_report_name, read_day_marks, view_of
        from embedsink.reports.format_writers import write_rows
        from embedsink.reports.pagination import PageRequest
        from embedsink.reports.scope import parse_scope

        check_report_name(name)
        scope = parse_scope(params, deployments=params["deployment"])
        view = view_of(name, scope)
        page = PageRequest(params["columns"], params["limit"])
        # Write to a temporary file first, so that an error leaves no incomplete output.
        with self._open_snapshot(scope.variables()) as reader, SpooledTemporaryFile(IN_MEMORY_BYTES_MAX) as file:
            with reader.consistent():
                marks = read_day_marks(reader, view)
                query, _next_page = page.select(reader, view)
                write_rows(reader, query, file, format, csv=_csv_options(params))
            _print_notes(marks)
            yield from _file_chunks(file)

    def read_summary(self, params: Params) -> Iterator[bytes]:
        """Yield a ZIP file of all reports, in chunks of bytes."""
        from embedsink.reports.scope import parse_scope
        from embedsink.reports.zip_export import write_summary

        scope = parse_scope(params, deployments=params["deployment"])
        with self._open_snapshot(scope.variables()) as reader, SpooledTemporaryFile(IN_MEMORY_BYTES_MAX) as file:
            _warn_of_missing_reports(reader)
            with reader.consistent():
                write_summary(reader, scope, file, csv=_csv_options(params))
            yield from _file_chunks(file)

    def _open_snapshot(self, scope_variables: dict[str, object]) -> "Reader":
        """Open the last snapshot. The settings and the scope become SQL variables."""
        from embedsink.settings import read_settings
        from embedsink.store.snapshot_reader import open_snapshot

        return open_snapshot(self._snapshot, {**read_settings().variables(), **scope_variables})

    @contextmanager
    def _open_catalog(self) -> Iterator["Reader"]:
        """Open the snapshot, or an empty store with all reports if no snapshot exists yet."""
        from embedsink.key_scope import EVERYTHING
        from embedsink.store.database import Store
        from embedsink.store.snapshot_reader import open_snapshot

        if self._snapshot.exists():
            with open_snapshot(self._snapshot, EVERYTHING.variables()) as reader:
                yield reader
            return
        with TemporaryDirectory() as folder, closing(Store(Path(folder) / "store.duckdb")) as empty_store:
            empty_store.open()
            with empty_store.reader(EVERYTHING.variables()) as reader:
                yield reader


class RemoteBackend:
    """A backend that requests reports from a server."""

    def __init__(self, url: str, key: str | None) -> None:
        self._client = connect(url, key)

    def list_reports(self) -> list[dict[str, Any]]:
        # Refuse a response without the members that the commands print.
        return self._client.get_rows("reports", required_members=("name", "title", "question", "grain"))

    def describe_report(self, name: str) -> dict[str, Any]:
        # Refuse a response without the members that the commands print.
        return self._client.get_object(
            "reports", name, "schema", required_members=("name", "question", "grain", "columns")
        )

    def read_rows(self, name: str, params: Params) -> list[dict[str, Any]]:
        return self._client.get_rows("reports", f"{name}.{Format.JSON}", query=params, on_headers=_print_header_notes)

    def read_chunks(self, name: str, params: Params, format: Format) -> Iterator[bytes]:
        return self._client.get_chunks("reports", f"{name}.{format}", query=params, on_headers=_print_header_notes)

    def read_summary(self, params: Params) -> Iterator[bytes]:
        # The server refuses these parameters: a summary has all columns and rows.
        query = {name: value for name, value in params.items() if name not in ROW_PARAMS}
        return self._client.get_chunks("summary.zip", query=query)


def _warn_of_missing_reports(reader: "Reader") -> None:
    """Print a warning if the database lacks reports of this version of embedsink."""
    from embedsink.reports.catalog import missing_reports_warning

    warning = missing_reports_warning(reader)
    if warning is not None:
        print_message(warning)


def _print_header_notes(headers: "Message") -> None:
    """Print the notes of the marks in the headers of a response."""
    _print_notes(parse_day_marks(headers))


def _print_notes(marks: DayMarks) -> None:
    """Print which days come from daily totals, and which were deleted, each on a line."""
    for note in marks.notes():
        print_message(note)


def _file_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a file that was just written, from the beginning, in chunks."""
    file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _csv_options(params: Params) -> "CsvOptions":
    """Return the options of CSV files, from the parameters `guard` and `bom`."""
    from embedsink.reports.csv_writer import CsvOptions

    return CsvOptions(guard=params["guard"] == "on", bom=params["bom"] == "on")
