"""A check that a backup folder belongs to this data folder, and not to another server.

All servers use the same segment numbers, but their random parts differ.
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

# The random part of identities that sql/salvage/ledger.sql creates.
UNKNOWN_IDENTITY = "-00000000"


def refuse_another_folder(folder: DataFolder, generation: Generation, target: Path) -> None:
    """Refuse a data folder that does not continue the history of a generation.

    Raises:
        Misconfigured: the generation belongs to another data folder, or to a later state of this one.
    """
    expected = set(generation.segments) or _segments_of(generation)
    current = _segments_in(folder, numbers=list(map(_number_of, expected)))
    # A salvaged store may know a segment by its number alone.
    numbers = {_number_of(identity) for identity in current.identities if not identity.endswith(UNKNOWN_IDENTITY)}
    is_older = current.last_number < max(map(_number_of, expected), default=0)
    # The ledger lists segments up to `compacted_up_to` by number only. All of them were loaded.
    unknown = [number for number in map(_number_of, expected - current.identities) if number > current.compacted_up_to]
    if is_older or not numbers.isdisjoint(unknown):
        raise Misconfigured(
            f"{target}: contains backups of a data folder other than {folder.path}, or of a later state of it. "
            "Name another backup folder."
        )


def newest_identities(sealed: Collection[str]) -> tuple[str, ...]:
    """Return the newest identities of sealed segments, for the manifest.

    Open segments are omitted: a segment without events is deleted, and its number reused.
    """
    return tuple(sorted(name for name in sealed if name)[-COMPARED_MAX:])


def _segments_of(generation: Generation) -> set[str]:
    """Return the newest identities in a manifest of an older version, from its files."""
    paths = [Path(file.name) for file in generation.files if file.name.startswith("journal/")]
    return set(newest_identities([identity_of(path.name) for path in paths if path.suffix != OPEN]))


def _segments_in(folder: DataFolder, *, numbers: list[int]) -> Segments:
    # Read the journal first and the snapshot last, for the same reason as in a backup.
    names = segment_names(folder.journal)
    names += os.listdir(folder.damaged) if folder.damaged.is_dir() else []  # noqa: PTH208  only names are needed
    present = {identity_of(name) for name in names} - {""}
    stored = Segments(0, frozenset())
    if snapshot := open_snapshot_file(folder):
        with snapshot:
            stored = find_segments(Path(f"/dev/fd/{snapshot.fileno()}"), numbers=numbers)
    last_number = max([stored.last_number, *map(_number_of, present)])
    return Segments(last_number, stored.identities | present, stored.compacted_up_to)


def _number_of(identity: str) -> int:
    return int(identity[:12])
