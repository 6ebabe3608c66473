"""The summary of a period: a ZIP with each report as CSV, and a manifest that describes the reports."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from embedsink import __version__
from embedsink.reports.catalog import (
    Report,
    all_reports,
    read_day_marks,
    reports_with_dimensions,
    view_of,
    visible_columns,
)
from embedsink.reports.csv_writer import CsvOptions, csv_chunks
from embedsink.reports.day_marks import iso_days
from embedsink.reports.scope import Scope
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader

MANIFEST = "manifest.json"
_ENTRY_MODE = 0o644  # rw-r--r--


def write_summary(reader: Reader, scope: Scope, file: IO[bytes], *, csv: CsvOptions) -> None:
    """Write every report for the reader's scope to one ZIP.

    With a department or a group, only the reports that can be limited to it are written.

    Call this in `reader.consistent()`, so that all reports have the same state of the store.
    """
    written_at = datetime.now(UTC).replace(microsecond=0)
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        reports = []
        totaled_days: dict[str, list[str]] = {}
        deleted_days: dict[str, list[str]] = {}
        for report in _reports_for(reader, scope):
            rows = _rows_of(reader, report, scope)
            byte_count = _write_report(archive, report, csv_chunks(reader, rows, csv), written_at)
            marks = read_day_marks(reader, rows.view)
            if marks.totaled:
                totaled_days[report.name] = iso_days(marks.totaled)
            if marks.deleted:
                deleted_days[report.name] = iso_days(marks.deleted)
            reports.append(_manifest_entry(report, byte_count))
        manifest = {
            "writtenAt": _to_iso(written_at),
            "embedsink": __version__,
            "scope": _manifest_scope(scope),
            "dailyTotals": totaled_days,
            "deletedDays": deleted_days,
            "reports": reports,
        }
        content = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        archive.writestr(_zip_entry(MANIFEST, written_at), content.encode())


def _reports_for(reader: Reader, scope: Scope) -> list[Report]:
    """Return the reports that the scope can limit: those with dimensions if it has a department or a group."""
    has_filter = scope.department is not None or scope.viewer_group is not None
    return [report for report in all_reports(reader) if not has_filter or report.name in reports_with_dimensions()]


def _rows_of(reader: Reader, report: Report, scope: Scope) -> SelectQuery:
    """Return the query of a report, with the requested dimensions if the report has them."""
    view = view_of(report.name, scope) if report.name in reports_with_dimensions() else report.name
    return SelectQuery(view, visible_columns(reader, view))


def _write_report(archive: ZipFile, report: Report, chunks: Iterator[bytes], written_at: datetime) -> int:
    """Write the file of a report into the ZIP. Return the uncompressed length in bytes."""
    # The length is known only at the end, and may exceed the limits of a ZIP without the zip64 extension.
    with archive.open(_zip_entry(f"{report.name}.csv", written_at), "w", force_zip64=True) as entry:
        return sum(entry.write(chunk) for chunk in chunks)


def _manifest_entry(report: Report, byte_count: int) -> dict[str, Any]:
    """Return the description of a report's file for the manifest."""
    return {
        "name": report.name,
        "title": report.title,
        "question": report.question,
        "grain": report.grain,
        "file": f"{report.name}.csv",
        "bytes": byte_count,
    }


def _manifest_scope(scope: Scope) -> dict[str, Any]:
    """Return the scope for the manifest, with the defaults of the interval and the time zone."""
    variables = scope.variables()
    for name in ("hides_ingest_seq", "shows_names"):  # They follow from the key and not from the request.
        del variables[name]
    dimensions, group = variables.pop("dimensions"), variables.pop("viewer_group")
    return variables | {
        "by": dimensions,
        "group": group,
        "since": None if scope.since is None else _to_iso(scope.since.replace(tzinfo=UTC)),
        "until": None if scope.until is None else _to_iso(scope.until.replace(tzinfo=UTC)),
        "interval": scope.interval or "day",
        "timezone": scope.timezone or "UTC",
    }


def _zip_entry(name: str, written_at: datetime) -> ZipInfo:
    """Return the header of a compressed file in the ZIP."""
    entry = ZipInfo(name, date_time=written_at.timetuple()[:6])  # year to second
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = _ENTRY_MODE << 16  # The upper 16 bits are the Unix mode.
    return entry


def _to_iso(instant: datetime) -> str:
    """Return a time in UTC as ISO 8601 with Z."""
    return instant.isoformat().replace("+00:00", "Z")
