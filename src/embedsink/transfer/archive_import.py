"""The import of an archive: its manifests, its checksums, and the deliveries of its rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embedsink.archive.manifest import MANIFEST, ArchivedFile, Entry, decode, digest_of, parse_name
from embedsink.archive.target import S3, Target, open_target
from embedsink.errors import Misconfigured, preview
from embedsink.store.archive_reader import is_known_schema, open_archive_reader

PARQUET = ".parquet"


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file to import: what its name says, and its entry in the manifest."""

    file: ArchivedFile
    entry: Entry


class ArchiveImport:
    """An archive, a month of it, or one of its files, to import.

    `unlisted` has the names of files that are in no manifest. They are not imported.

    Args:
        text: the path or the URL.

    Raises:
        Misconfigured: it is not an archive, its manifest is invalid, or it is from a newer version of embedsink.
        ArchiveFailed: it can't be read now.
    """

    def __init__(self, text: str) -> None:
        self.name = text
        self._target, self.files, self.unlisted = _find_files(text.rstrip("/"))

    @property
    def row_count(self) -> int:
        """The number of rows in all files."""
        return sum(file.entry.rows for file in self.files)

    def check(self) -> None:
        """Compare all files with their checksums, before anything is imported.

        Raises:
            Misconfigured: a file is missing or damaged.
            ArchiveFailed: a file can't be read now.
        """
        names = self._target.list_files()
        for found in self.files:
            name = found.file.name
            place = f"{self._target.name}/{name}"
            if name not in names:
                raise Misconfigured(f"{place}: is missing. Nothing was imported. Put the file back.")
            with self._target.local(name) as path:
                if digest_of(path) != found.entry.sha256:
                    raise Misconfigured(
                        f"{place}: its SHA-256 is not that of the manifest. Nothing was imported. Copy the file again."
                    )

    def lines(self, service_name: str) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the delivery of each row. The numbers count through all files.

        Args:
            service_name: the service name of the data folder that imports.
        """
        return enumerate(self._deliveries(service_name), 1)

    def _deliveries(self, service_name: str) -> Iterator[bytes]:
        with open_archive_reader(service_name) as reader:
            for found in self.files:
                with self._target.local(found.file.name) as path:
                    yield from reader.deliveries(found.file.table, path)


def is_archive(text: str) -> bool:
    """Return whether a path or URL is that of an archive, as opposed to NDJSON."""
    return text.startswith(S3) or text.endswith(PARQUET) or Path(text).is_dir()


def _find_files(text: str) -> tuple[Target, list[ArchiveFile], list[str]]:
    """Return the target and the files of an archive, a month or a file, and the names of files in no manifest."""
    unlisted: list[str] = []
    parent, _, last = text.rpartition("/")
    if text.endswith(PARQUET):
        archive, _, month = parent.rpartition("/")
        target = open_target(archive or ".")
        files = [found for found in _month_files(target, month) if found.file.name == f"{month}/{last}"]
        problem = "is not in the manifest of its folder. Import the folder of the month."
    else:
        target, within = open_target(text), ""
        months = sorted(name.partition("/")[0] for name in target.list_files() if name.endswith(f"/{MANIFEST}"))
        if not months:  # It may be a month.
            target, months, within = open_target(parent or "."), [last], f"{last}/"
        files = [found for month in months for found in _month_files(target, month)]
        archived = {name for name in target.list_files() if name.startswith(within) and parse_name(name)}
        unlisted = sorted(archived - {found.file.name for found in files})
        problem = f"has no {MANIFEST}, so it is not an archive. Name the archive, or the folder of a month."
    if not files:
        raise Misconfigured(f"{text}: {problem}")
    return target, files, unlisted


def _month_files(target: Target, month: str) -> list[ArchiveFile]:
    """Return the files in the manifest of a month; an empty list without one."""
    name = f"{month}/{MANIFEST}"
    if name not in target.list_files():
        return []
    files = []
    for entry in sorted(decode(target.read(name), f"{target.name}/{name}"), key=lambda entry: entry.name):
        file = parse_name(f"{month}/{entry.name}")
        if file is None:
            raise Misconfigured(f"{target.name}/{name}: {preview(entry.name)} is not the name of a file of an archive.")
        if not is_known_schema(entry.schema):
            problem = f"has the schema {preview(entry.schema)}, which is newer than this version of embedsink"
            raise Misconfigured(f"{target.name}/{file.name}: {problem}. Upgrade embedsink.")
        files.append(ArchiveFile(file, entry))
    return files
