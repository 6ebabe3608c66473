"""The export of a snapshot to an archive."""

from embedsink.archive.archive import Added, Archive
from embedsink.archive.target import Target
from embedsink.store.snapshot_reader import SnapshotReader


def export_archive(reader: SnapshotReader, target: Target) -> Added:
    """Add the events, actions and losses of a snapshot that an archive lacks. Return what was added.

    Args:
        reader: a reader of the snapshot. Its variables `since` and `until` limit the times of the events.
        target: the archive.

    Raises:
        ArchiveFailed: the archive can't be written. What was added is complete; a repetition adds the rest.
        Unavailable: the snapshot can't be read.
    """
    archive, added, first = Archive(target), Added(), 0
    with reader.archive_rows() as rows:
        while selected := rows.next_range(first):
            added += archive.add(rows, selected)
            first = selected.below
    return added
