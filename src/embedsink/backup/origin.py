"""The check that a backup folder belongs to this data folder, and not to that of another server.

The check compares the identities of segments: two servers use the same numbers, but different random parts.
"""

import os
from collections.abc import Collection
from pathlib import Path

from embedsink.backup.generation import Generation
from embedsink.backup.source import open_snapshot_file, segment_names
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured
from embedsink.journal.segment import OPEN, identity_of, number_of_identity
from embedsink.store.snapshot_file import NEWEST_SEGMENTS_MAX, Segments, find_segments

# The end of the identities that sql/salvage/3_ledger.sql creates: their random part is unknown.
UNKNOWN_RANDOM_PART = "-00000000"


def refuse_another_folder(folder: DataFolder, generation: Generation, target: Path) -> None:
    """Raise an error if a data folder does not continue the history of a generation.

    Args:
        folder: the data folder.
        generation: the newest readable generation of the backup folder.
        target: the backup folder, for the error message.

    Raises:
        Misconfigured: the generation belongs to another data folder, or to a later state of this one.
    """
    expected_identities = set(generation.segments) or _identities_in_file_names(generation)
    expected_numbers = [number_of_identity(identity) for identity in expected_identities]
    current = _segments_of_folder(folder, numbers=expected_numbers)
    is_older = current.last_number < max(expected_numbers, default=0)
    if is_older or _has_other_segments(expected_identities, current):
        raise Misconfigured(
            f"{target}: contains backups of a data folder other than {folder.path}, or of a later state of it. "
            "Name another backup folder."
        )


def _has_other_segments(expected_identities: set[str], current: Segments) -> bool:
    """Return whether a folder has a segment with the number of an expected one, but with another random part.

    Args:
        expected_identities: the identities of a generation's segments.
        current: the segments of the data folder.
    """
    missing_numbers = {number_of_identity(identity) for identity in expected_identities - current.identities}
    # Don't compare segments whose random part may be unknown: salvaged ones, and those up to `compacted_up_to`.
    comparable_numbers = {
        number_of_identity(identity) for identity in current.identities if not identity.endswith(UNKNOWN_RANDOM_PART)
    }
    return any(number > current.compacted_up_to for number in missing_numbers & comparable_numbers)


def newest_identities(sealed_identities: Collection[str]) -> tuple[str, ...]:
    """Return the newest identities of sealed segments, at most `NEWEST_SEGMENTS_MAX`, for the manifest.

    Pass no open segments, because the number of an open segment without events is reused.
    """
    # The identity of a file that is not a segment is empty. An identity begins with the number, so the newest are last.
    segment_identities = sorted(identity for identity in sealed_identities if identity)
    return tuple(segment_identities[-NEWEST_SEGMENTS_MAX:])


def _identities_in_file_names(generation: Generation) -> set[str]:
    """Return the identities of a generation's newest sealed segments, from the file names.

    Use this for the manifest of an older version, which lacks `segments`.
    """
    paths = [Path(file.name) for file in generation.files if file.name.startswith("journal/")]
    sealed_identities = [identity_of(path.name) for path in paths if path.suffix != OPEN]
    return set(newest_identities(sealed_identities))


def _segments_of_folder(folder: DataFolder, *, numbers: list[int]) -> Segments:
    """Return all segments in `journal/` and `damaged/`, and some of the segments in the snapshot.

    From the snapshot, return the newest segments, and the segments with one of the `numbers`.
    """
    # Read the journal before the snapshot. A segment leaves the journal only after a snapshot with its rows is
    # published, so none is missed.
    names = segment_names(folder.journal)
    names += os.listdir(folder.damaged) if folder.damaged.is_dir() else []  # noqa: PTH208  only names are needed
    # The identity of a file that is not a segment is empty.
    identities_on_disk = {identity_of(name) for name in names} - {""}
    in_snapshot = Segments(last_number=0, identities=frozenset())
    if snapshot := open_snapshot_file(folder):
        with snapshot:
            # A server may replace the snapshot meanwhile, so use the open file and not its path.
            in_snapshot = find_segments(Path(f"/dev/fd/{snapshot.fileno()}"), numbers=numbers)
    last_number = max([in_snapshot.last_number, *map(number_of_identity, identities_on_disk)])
    return Segments(last_number, in_snapshot.identities | identities_on_disk, in_snapshot.compacted_up_to)
