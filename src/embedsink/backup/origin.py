"""Whether the backups in a backup folder are of this data folder, or of another server's.

The numbers of segments are the same for all servers, but their random parts are not.
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

# How identities end that sql/salvage/ledger.sql makes.
UNKNOWN_IDENTITY = "-00000000"


def refuse_another_folder(folder: DataFolder, generation: Generation, target: Path) -> None:
    """Refuse a data folder that does not continue what a generation has.

    Raises:
        Misconfigured: the generation is of another data folder, or of a later state of this one.
    """
    expected = set(generation.segments) or _segments_of(generation)
    found = _segments_in(folder, numbers=list(map(_number_of, expected)))
    # A salvaged store may know a segment by its number alone.
    numbers = {_number_of(identity) for identity in found.identities if not identity.endswith(UNKNOWN_IDENTITY)}
    is_older = found.last_number < max(map(_number_of, expected), default=0)
    # The ledger does not name old segments that were folded. They were loaded, like all before `folded_to`.
    unknown = [number for number in map(_number_of, expected - found.identities) if number > found.folded_to]
    if is_older or not numbers.isdisjoint(unknown):
        raise Misconfigured(
            f"{target}: has the backups of another data folder than {folder.path}, or of a later state of it. Name "
            "another folder."
        )


def newest_identities(sealed: Collection[str]) -> tuple[str, ...]:
    """Return the identities that a manifest names, of all sealed segments.

    Open ones are left out: one without events is deleted, and its number used again.
    """
    return tuple(sorted(name for name in sealed if name)[-COMPARED_MAX:])


def _segments_of(generation: Generation) -> set[str]:
    """Return the same of a manifest of an older program, as far as its files tell."""
    paths = [Path(file.name) for file in generation.files if file.name.startswith("journal/")]
    return set(newest_identities([identity_of(path.name) for path in paths if path.suffix != OPEN]))


def _segments_in(folder: DataFolder, *, numbers: list[int]) -> Segments:
    # The journal first and the snapshot last, for the same reason as in a backup.
    names = segment_names(folder.journal)
    names += os.listdir(folder.damaged) if folder.damaged.is_dir() else []  # noqa: PTH208  names alone are wanted
    here = {identity_of(name) for name in names} - {""}
    stored = Segments(0, frozenset())
    if snapshot := open_snapshot_file(folder):
        with snapshot:
            stored = find_segments(Path(f"/dev/fd/{snapshot.fileno()}"), numbers=numbers)
    last_number = max([stored.last_number, *map(_number_of, here)])
    return Segments(last_number, stored.identities | here, stored.folded_to)


def _number_of(identity: str) -> int:
    return int(identity[:12])
