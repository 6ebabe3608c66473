"""The content of archives."""

import json
from pathlib import Path
from typing import Any

import duckdb

from embedsink.archive.manifest import digest_of


def archived_rows(archive: Path, table: str = "event") -> list[dict[str, Any]]:
    """Return the rows of a table in an archive, without its manifests, in the order of the files."""
    files = [str(path) for path in sorted(archive.glob(f"*/{table}-*.parquet"))]
    if not files:
        return []
    with duckdb.connect() as connection:
        result = connection.execute("from read_parquet($1)", [files])
        names = [name for name, *_ in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def check_archive(archive: Path) -> int:
    """Check that manifests and files agree, and that nothing incomplete is there. Return the number of rows."""
    row_count = 0
    expected = {archive / "archive.lock"}
    for manifest in archive.glob("*/manifest.json"):
        content = json.loads(manifest.read_bytes())
        entries = content["files"]
        assert content["month"] == manifest.parent.name
        expected |= {manifest, *(manifest.parent / entry["name"] for entry in entries)}
        for entry in entries:
            path = manifest.parent / entry["name"]
            assert (entry["bytes"], entry["sha256"]) == (path.stat().st_size, digest_of(path))
        assert content["rows"] == sum(entry["rows"] for entry in entries)
        row_count += content["rows"]
    assert {path for path in archive.rglob("*") if path.is_file()} == expected
    count = sum(len(archived_rows(archive, table)) for table in ("event", "action", "loss"))
    assert row_count == count
    return row_count
