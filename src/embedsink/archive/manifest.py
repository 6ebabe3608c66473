"""The manifest of a month: its files with their checksums."""

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from embedsink.errors import Misconfigured
from embedsink.store.archived_files import ArchivedFiles
from embedsink.store.row_range import RowRange

MANIFEST = "manifest.json"
VERSION = 1
# A second file with the same first and last row gets a number.
_FILE_NAME = re.compile(r"(\d{4}-\d{2})/(event|action|loss)-(\d{19})-(\d{19})(?:-\d+)?\.parquet")
_CHUNK_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """The name of a Parquet file of an archive, and what it says."""

    name: str
    month: str
    table: str
    first: int
    last: int

    def overlaps(self, rows: RowRange) -> bool:
        """Return whether the file may contain rows of a range."""
        return self.first < rows.below and self.last >= rows.first


def parse_name(name: str) -> ArchivedFile | None:
    """Return what a file's name says; None if it is not that of an archive."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    month, table, first, last = match.groups()
    return ArchivedFile(name, month, table, int(first), int(last))


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a manifest.

    Args:
        name: its name in the folder of the month.
        table: the table of its rows: event, action or loss.
        rows: the number of rows.
        bytes: its size.
        sha256: the SHA-256 of its content.
        since, until: the times of the first and of the last event.
        schema: the migration of the store that wrote it.
        embedsink: the version of embedsink.
    """

    name: str
    table: str
    rows: int
    bytes: int
    sha256: str
    since: datetime
    until: datetime
    schema: str
    embedsink: str

    @classmethod
    def of(cls, file: ArchivedFile, path: Path, files: ArchivedFiles) -> "Entry":
        """Return the entry of a file, which this reads again from `path`. Raise ArchivedFileDamaged."""
        contents = files.describe(file.table, path)
        return cls(
            name=file.name.partition("/")[2],
            table=file.table,
            rows=contents.row_count,
            bytes=path.stat().st_size,
            sha256=digest_of(path),
            since=contents.since,
            until=contents.until,
            schema=contents.schema,
            embedsink=contents.version,
        )


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def encode(month: str, entries: list[Entry]) -> bytes:
    """Return the manifest of a month."""
    manifest = {
        "archive": VERSION,
        "month": month,
        "writtenAt": datetime.now(UTC),
        "rows": sum(entry.rows for entry in entries),
        "files": [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.name)],
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(manifest, option=options)


def decode(content: bytes, name: str) -> list[Entry]:
    """Return the entries of a manifest.

    Raises:
        Misconfigured: it is not a manifest, or that of a newer version.
    """
    try:
        manifest: dict[str, Any] = orjson.loads(content)
        version = manifest["archive"]
        entries = TypeAdapter(list[Entry]).validate_python(manifest["files"]) if version == VERSION else []
    except (ValueError, TypeError, KeyError):  # Pydantic's errors are ValueErrors.
        raise Misconfigured(f"{name}: is not the manifest of an archive. Put a complete copy of it there.") from None
    if version != VERSION:
        raise Misconfigured(f"{name}: is from a newer version of embedsink. Upgrade embedsink.")
    return entries
