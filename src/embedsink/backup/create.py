"""Creation of a backup generation from a data folder, with or without a running server."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from embedsink import __version__
from embedsink.backup.generation import Generation, StoredFile
from embedsink.backup.origin import newest_identities, refuse_another_folder
from embedsink.backup.repository import Repository
from embedsink.backup.source import open_other_files, open_snapshot_file, read_journal
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured
from embedsink.journal.last_sealed import LastSealed
from embedsink.journal.segment import OPEN, damage_of, identity_of, number_of
from embedsink.loader.damage import describe_gaps, find_gaps
from embedsink.store.snapshot_file import Segments, examine_snapshot


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A new generation: its manifest, the bytes that were added to the backup folder, and warnings about damage."""

    manifest: Path
    generation: Generation
    new_byte_count: int
    warnings: tuple[str, ...]


def create_backup(folder: DataFolder, target: Path) -> BackupResult:
    """Add a generation to a backup folder, with every event that was acknowledged before the call.

    Args:
        folder: the data folder, which is not changed.
        target: the backup folder; it is created if missing.

    Raises:
        Misconfigured: the folder can't be backed up, or the target can't receive its backup.
        OSError: the disk is full or has failed. If only the last sync failed, the generation may exist.
    """
    _check_folders(folder, target)
    repository = Repository(target)
    with repository.writing():
        backup = _Backup(folder, repository)
        name = repository.add(backup.run())
        generation = repository.read(name)  # Read the manifest back to verify it.
    chunks = repository.chunks
    rewrites = [f"chunk {digest}: was damaged and has been rewritten." for digest in chunks.rewritten_digests]
    warnings = (*backup.warnings, *rewrites)
    return BackupResult(repository.generations / name, generation, chunks.new_byte_count, warnings)


def _check_folders(folder: DataFolder, target: Path) -> None:
    """Raise Misconfigured if the folder is not a complete data folder, or the target is inside the folder."""
    folder.refuse_other_folder()
    folder.refuse_half_restored()
    if target.resolve().is_relative_to(folder.path.resolve()):
        raise Misconfigured(
            f"{target}: is inside the data folder. Name a folder elsewhere, preferably on another disk."
        )


class _Backup:
    """The creation of one generation from a data folder."""

    def __init__(self, folder: DataFolder, repository: Repository) -> None:
        self.warnings: list[str] = []
        self._folder = folder
        self._repository = repository
        self._chunks = repository.chunks

    def run(self) -> Generation:
        """Store all files, and return the new generation.

        The journal is stored first and the snapshot last. So the snapshot contains the segments that a server deletes
        meanwhile.
        """
        if previous := self._repository.newest_readable():
            refuse_another_folder(self._folder, previous, self._repository.path)
        began_at = _utc_now_text()
        # Read this before the journal: a segment that is sealed later must not be reported as missing.
        last_sealed = LastSealed(self._folder.last_sealed).read()
        journal = list(self._store_journal())
        other_files = [self._chunks.store(name, file) for name, file in open_other_files(self._folder)]
        snapshot_files, snapshot_segments = self._store_snapshot(list(map(_number_of, journal)))
        self._warn_of_gap([*journal, *other_files], snapshot_segments, last_sealed=last_sealed)
        sealed = [file for file in journal if not _is_open(file)]
        # The copy of an open segment is not needed if the snapshot contains the segment.
        open_files = [file for file in journal if _is_open(file)]
        needed_open = [file for file in open_files if _identity_of(file) not in snapshot_segments.identities]
        # The next backup compares these with the data folder, so that the backups of two servers are not mixed.
        newest = newest_identities({_identity_of(file) for file in sealed} | snapshot_segments.identities)
        files = (*sealed, *needed_open, *other_files, *snapshot_files)
        return Generation(began_at, _utc_now_text(), __version__, files, segments=newest)

    def _store_journal(self) -> Iterable[StoredFile]:
        """Store each segment. Damaged segments are stored unchanged, with a warning."""
        for name, content in read_journal(self._folder):
            if damage := damage_of(Path(name).name, content):
                self.warnings.append(f"{name}: {damage.cause} (offset {damage.offset:,}). It was backed up unchanged.")
            yield self._chunks.store(name, BytesIO(content))

    def _store_snapshot(self, journal_numbers: Collection[int]) -> tuple[list[StoredFile], Segments]:
        """Store the snapshot. Return its file (an empty list if there is no snapshot), and the segments in it.

        Args:
            journal_numbers: the numbers of the segments to look for in the snapshot. Of all other segments, only the
                newest are returned.
        """
        file = open_snapshot_file(self._folder)
        if file is None:
            return [], Segments(last_number=0, identities=frozenset())
        with file:
            stored = self._chunks.store(self._folder.snapshot.name, file)
            # Use the descriptor, because the server may have published another snapshot meanwhile.
            return [stored], examine_snapshot(Path(f"/dev/fd/{file.fileno()}"), numbers=journal_numbers)

    def _warn_of_gap(self, files: Iterable[StoredFile], snapshot_segments: Segments, *, last_sealed: int) -> None:
        """Warn of lost segments, which the server reports at its start too."""
        numbers = {_number_of(file) for file in files} - {0}  # 0 means that a file is not a segment.
        # Check all numbers below the newest file's, or up to the last sealed number if that is higher.
        before = max([last_sealed + 1, *numbers])
        # The snapshot has the events of all segments up to the snapshot's last one.
        if gaps := find_gaps(numbers, after=snapshot_segments.last_number, before=before):
            self.warnings.append(f"journal: {describe_gaps(gaps)} missing. Run `embedsink doctor` for advice.")


def _number_of(file: StoredFile) -> int:
    """Return the segment number of a file; 0 if the file is not a segment."""
    return number_of(Path(file.name))


def _identity_of(file: StoredFile) -> str:
    """Return the segment identity of a file; an empty string if the file is not a segment."""
    return identity_of(Path(file.name).name)


def _is_open(file: StoredFile) -> bool:
    """Return whether a file is a segment that was still being written."""
    return file.name.endswith(OPEN)


def _utc_now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
