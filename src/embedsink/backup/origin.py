"""The check that a backup folder belongs to this data folder, and not to that of another server.

The identity of a segment is its number and a random part. Two servers use the same numbers, but other random parts.
"""

import os
from collections.abc import Collection
from pathlib import Path

from embedsink.backup.generation import Generation
from embedsink.backup.source import open_snapshot_file, segment_names
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured
from embedsink.journal.segment import OPEN, identity_of
from embedsink.store.snapshot_file import COMPARED_MAX, Segments, find_segments

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
    expected = set(generation.segments) or _identities_of(generation)
    current = _segments_of_folder(folder, numbers=list(map(_number_of, expected)))
    # A salvaged store has segments of which only the number is known. Their identities can't be compared.
    known_numbers = {
        _number_of(identity) for identity in current.identities if not identity.endswith(UNKNOWN_RANDOM_PART)
    }
    is_older = current.last_number < max(map(_number_of, expected), default=0)
    # The ledger lists segments up to `compacted_up_to` by number only. All of them were loaded.
    missing_numbers = {_number_of(identity) for identity in expected - current.identities}
    uncompacted_numbers = {number for number in missing_numbers if number > current.compacted_up_to}
    has_other_segments = bool(known_numbers & uncompacted_numbers)
    if is_older or has_other_segments:
        raise Misconfigured(
            f"{target}: contains backups of a data folder other than {folder.path}, or of a later state of it. "
            "Name another backup folder."
        )


def newest_identities(sealed: Collection[str]) -> tuple[str, ...]:
    """Return the newest identities of sealed segments, at most `COMPARED_MAX`, for the manifest.

    Pass no open segments, because the number of an open segment without events is used again.
    """
    # An identity begins with the number, so the newest are last. It is empty for a file that is not a segment.
    return tuple(sorted(identity for identity in sealed if identity)[-COMPARED_MAX:])


def _identities_of(generation: Generation) -> set[str]:
    """Return the newest identities of a generation, from file names: the manifest of an older version lacks them."""
    paths = [Path(file.name) for file in generation.files if file.name.startswith("journal/")]
    return set(newest_identities([identity_of(path.name) for path in paths if path.suffix != OPEN]))


def _segments_of_folder(folder: DataFolder, *, numbers: list[int]) -> Segments:
    """Return the segments of a data folder: all in `journal/` and `damaged/`; in the snapshot, as `find_segments`."""
    # Read the journal first and the snapshot last: see embedsink.backup.source.
    names = segment_names(folder.journal)
    names += os.listdir(folder.damaged) if folder.damaged.is_dir() else []  # noqa: PTH208  only names are needed
    on_disk = {identity_of(name) for name in names} - {""}
    in_snapshot = Segments(0, frozenset())
    if snapshot := open_snapshot_file(folder):
        with snapshot:
            in_snapshot = find_segments(Path(f"/dev/fd/{snapshot.fileno()}"), numbers=numbers)
    last_number = max([in_snapshot.last_number, *map(_number_of, on_disk)])
    return Segments(last_number, in_snapshot.identities | on_disk, in_snapshot.compacted_up_to)


def _number_of(identity: str) -> int:
    """Return the segment number of an identity such as `000000000012-1a2b3c4d`."""
    return int(identity.partition("-")[0])
