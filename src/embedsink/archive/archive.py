"""The archive of events: adds rows, each once, in files that are complete or absent.

rows ─▶ which ones the archive lacks ─▶ a file for each table and month ─▶ manifests with checksums

The files are the truth, and the manifests follow from them. So a process that was killed between the two leaves nothing
to repair: the next one finds its rows in the files, and adds the files to the manifests.
"""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from embedsink.archive.manifest import MANIFEST, ArchivedFile, Entry, decode, encode, parse_name
from embedsink.archive.target import ArchiveFailed, Target
from embedsink.errors import Misconfigured
from embedsink.store.archive_rows import ArchiveRows, Part
from embedsink.store.archived_files import ArchivedFileDamaged, ArchivedFiles
from embedsink.store.row_range import RowRange

# A larger file is written as two. A file is in memory during an upload.
FILE_BYTES_MAX = 32 * 1_048_576


@dataclass(frozen=True, slots=True)
class Added:
    """What was added to an archive: rows and files."""

    row_count: int = 0
    file_count: int = 0

    def __add__(self, other: "Added") -> "Added":
        return Added(self.row_count + other.row_count, self.file_count + other.file_count)


class Archive:
    """An archive to which rows are added.

    Args:
        target: where it is.
    """

    def __init__(self, target: Target) -> None:
        self.target = target

    def check(self) -> None:
        """Check that the archive can be opened.

        Raises:
            ArchiveFailed: the archive can't be opened now.
        """
        with self._errors_translated(), self.target.locked():
            self.target.list_files()

    def add(self, rows: ArchiveRows, selected: RowRange) -> Added:
        """Add the rows of a range that the archive lacks. Afterwards, it has all of them, durably.

        Raises:
            ArchiveFailed: the target can't be written, or has damaged files. Complete files may have been added.
            StoreRefused, StoreBroken: the rows can't be read.
        """
        with self._errors_translated(), self.target.locked(), ArchivedFiles() as files:
            names = self.target.list_files()
            overlapping = [file for file in map(parse_name, names) if file is not None and file.overlaps(selected)]
            parts = rows.select(selected, archived=self._archived_ids(files, selected, overlapping))
            entries: dict[str, Entry] = {}
            for part in parts:
                entries |= self._add_files(rows, files, part, names)
            months = {file.month for file in overlapping} | {part.month for part in parts}
            for month in sorted(months):
                self._publish(files, month, names, entries)
        return Added(sum(entry.rows for entry in entries.values()), len(entries))

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        """Raise ArchiveFailed for what is wrong with the archive: it is no error of the store."""
        try:
            yield
        except Misconfigured as error:  # a manifest
            raise ArchiveFailed(str(error)) from error
        except OSError as error:
            raise ArchiveFailed(f"archive {self.target.name}: {error.strerror}. Check its disk.") from error

    def _archived_ids(
        self, files: ArchivedFiles, selected: RowRange, overlapping: Iterable[ArchivedFile]
    ) -> Iterator[tuple[str, Sequence[tuple[int, str | None]]]]:
        """Yield the table, and the ingest_seq and the id of each row of a range that the archive has, many at once."""
        for file in overlapping:
            with self._readable(file) as path:
                for ids in files.ids(file.table, path, selected):
                    yield file.table, ids

    @contextmanager
    def _readable(self, file: ArchivedFile) -> Iterator[Path]:
        """Yield the path of a file, or of a copy. Raise ArchiveFailed if the block finds that it is damaged."""
        try:
            with self.target.local(file.name) as path:
                yield path
        except ArchivedFileDamaged as error:
            problem = f"{file.name} is damaged ({error}). Put a complete copy of it there, or move it elsewhere."
            raise ArchiveFailed(f"archive {self.target.name}: {problem}") from error

    def _add_files(self, rows: ArchiveRows, files: ArchivedFiles, part: Part, names: set[str]) -> dict[str, Entry]:
        """Write the rows of a part to as many files as needed. Return their entries, and add their names to `names`."""
        entries: dict[str, Entry] = {}
        waiting = [part]
        while waiting:
            next_part = waiting.pop()
            with self.target.draft() as draft:
                self._write(rows, next_part, draft)
                if draft.stat().st_size > FILE_BYTES_MAX and next_part.row_count > 1:
                    waiting += rows.halves(next_part)
                    continue
                file = _free_name(next_part, names)
                entry = Entry.of(file, draft, files)
                if entry.rows != next_part.row_count:
                    raise ArchiveFailed(f"archive {self.target.name}: a file lacks rows. Check the disk.")
                self.target.add(draft, file.name)
            names.add(file.name)
            entries[file.name] = entry
        return entries

    def _write(self, rows: ArchiveRows, part: Part, draft: Path) -> None:
        try:
            rows.write(part, draft)
        except OSError as error:
            is_full = error.errno == errno.ENOSPC
            problem = "is full. Free space on it." if is_full else f"failed ({error.strerror}). Check it."
            raise ArchiveFailed(f"archive {self.target.name}: the disk of {draft.parent} {problem}") from error

    def _publish(self, files: ArchivedFiles, month: str, names: set[str], entries: dict[str, Entry]) -> None:
        """Write the manifest of a month, unless it has all files. Also add files of a killed process to it."""
        manifest = f"{month}/{MANIFEST}"
        listed = decode(self.target.read(manifest), f"{self.target.name}/{manifest}") if manifest in names else []
        known = {f"{month}/{entry.name}" for entry in listed}
        unlisted = [file for file in map(parse_name, sorted(names - known)) if file is not None and file.month == month]
        if unlisted:
            new = [entries.get(file.name) or self._describe(files, file) for file in unlisted]
            self.target.write(manifest, encode(month, listed + new))

    def _describe(self, files: ArchivedFiles, file: ArchivedFile) -> Entry:
        with self._readable(file) as path:
            return Entry.of(file, path, files)


def _free_name(part: Part, names: set[str]) -> ArchivedFile:
    """Return a name for the file of a part that no file has, such as that of another server's archive."""
    stem = f"{part.month}/{part.table}-{part.first:019d}-{part.last:019d}"
    name = f"{stem}.parquet"
    count = 1
    while name in names:
        count += 1
        name = f"{stem}-{count}.parquet"
    return ArchivedFile(name, part.month, part.table, part.first, part.last)
