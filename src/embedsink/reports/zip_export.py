"""The summary of a period: a ZIP with each report as CSV, and a manifest that describes them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from embedsink import __version__
from embedsink.reports.catalog import Report, all_reports
from embedsink.reports.csv_writer import CsvOptions, csv_chunks
from embedsink.reports.scope import Scope
from embedsink.store.reader import Reader

MANIFEST = "manifest.json"


def write_summary(reader: Reader, scope: Scope, file: IO[bytes], *, csv: CsvOptions) -> None:
    """Write every report for the reader's scope to one ZIP. Call it in `reader.consistent()`, so that they agree."""
    written_at = datetime.now(UTC).replace(microsecond=0)
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        reports = [
            _manifest_entry(
                report,
                _write(archive, report, csv_chunks(reader, report.name, csv), written_at),
            )
            for report in all_reports(reader)
        ]
        manifest = {
            "writtenAt": _iso(written_at),
            "embedsink": __version__,
            "scope": _manifest_scope(scope),
            "reports": reports,
        }
        content = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        archive.writestr(_entry(MANIFEST, written_at), content.encode())


def _write(archive: ZipFile, report: Report, chunks: Iterator[bytes], written_at: datetime) -> int:
    """Write one file, and return its length in bytes."""
    # The length is known only at the end, and may exceed the limits of a ZIP without the zip64 extension.
    with archive.open(_entry(f"{report.name}.csv", written_at), "w", force_zip64=True) as entry:
        return sum(entry.write(chunk) for chunk in chunks)


def _manifest_entry(report: Report, byte_count: int) -> dict[str, Any]:
    texts = {name: getattr(report, name) for name in ("name", "title", "question", "grain")}
    return texts | {"file": f"{report.name}.csv", "bytes": byte_count}


def _manifest_scope(scope: Scope) -> dict[str, Any]:
    variables = scope.variables()
    del variables["hides_ingest_seq"]
    times = {
        name: value and _iso(value.replace(tzinfo=UTC))
        for name, value in (("since", scope.since), ("until", scope.until))
    }
    return variables | times | {"interval": scope.interval or "day", "timezone": scope.timezone or "UTC"}


def _entry(name: str, written_at: datetime) -> ZipInfo:
    entry = ZipInfo(name, date_time=written_at.timetuple()[:6])
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _iso(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")
