"""`embedsink export --archive`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from embedsink.audit.entry import Action
from embedsink.cli.options import connect
from embedsink.cli.output import print_message
from embedsink.cli.recording import recorded
from embedsink.data_folder import DataFolder


def export_to_archive(
    target: str, data: Path, *, since: str | None, until: str | None, url: str | None, key: str | None
) -> None:
    """Add the events of a snapshot that an archive lacks, and print what was added.

    Args:
        target: the folder or the URL of the archive.
        data: the data folder.
        since, until: the bounds of the events' times, as texts; None for no bound.
        url: the server whose snapshot is used instead of that of the data folder; None for the data folder.
        key: the key for the server.
    """
    from embedsink.archive.target import open_target
    from embedsink.key_scope import EVERYTHING
    from embedsink.permissions import restricted_umask
    from embedsink.reports.scope import parse_instant
    from embedsink.store.snapshot_reader import open_snapshot
    from embedsink.transfer.archive_export import export_archive

    period = {"since": parse_instant("since", since), "until": parse_instant("until", until)}
    opened = open_target(target, data=data)
    with (
        _snapshot(target, data, url, key) as snapshot,
        open_snapshot(snapshot, {**EVERYTHING.variables(), **period}) as reader,
        restricted_umask(),
    ):
        added = export_archive(reader, opened)
    print_message(f"{opened.name}: {added.row_count:,} rows added in {added.file_count:,} files.")


@contextmanager
def _snapshot(target: str, data: Path, url: str | None, key: str | None) -> Iterator[Path]:
    """Yield the path of the snapshot of a data folder, or of a temporary copy of a server's."""
    folder = DataFolder(data)
    if url is None:
        with recorded(folder, Action.EXPORT, target=f"archive {target}", is_required=False):
            yield folder.snapshot
        return
    with TemporaryDirectory(prefix="embedsink-archive-") as temporary:
        path = Path(temporary) / folder.snapshot.name
        with path.open("wb") as file:
            file.writelines(connect(url, key).get_chunks(folder.snapshot.name))
        yield path
