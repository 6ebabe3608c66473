"""`embedsink backup` and `embedsink restore`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embedsink.cli.options import DATA, Data, examples, existing
from embedsink.cli.output import say, show_table
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured

if TYPE_CHECKING:
    from embedsink.backup.create import Created
    from embedsink.backup.repository import Repository

BACKUP_EXAMPLES = examples(
    "embedsink backup /mnt/backup --data data",
    "embedsink backup /mnt/backup --data data --keep 14",
    "embedsink backup /mnt/backup --list",
)
RESTORE_EXAMPLES = examples(
    "embedsink restore /mnt/backup --data restored",
    "embedsink restore /mnt/backup/generations/20261123T093012.417Z.json --data restored",
)
COLUMNS = ("generation", "events_up_to", "files", "bytes", "embedsink")


def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The backup folder; created if missing.")],
    data: Data = DATA,
    keep: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Then delete all but the newest N generations.")
    ] = None,
    is_list: Annotated[bool, typer.Option("--list", help="List the generations, and back up nothing.")] = False,
) -> None:
    """Add a generation to a backup folder, also while a server is running. Prints the path of its manifest.

    It has every event that was acknowledged before the command began, keys.json, dashboards/ and the segments in
    damaged/. Only what changed since the last generation is stored, and everything is read back. An interrupted backup
    adds no generation.
    """
    from embedsink.backup.create import create_backup
    from embedsink.backup.repository import Repository
    from embedsink.concurrency.priority import give_way_to_ingest

    if is_list:
        if keep is not None:
            raise typer.BadParameter("--list and --keep exclude each other. Give one of them.")
        _list(Repository(target))
        return
    folder = DataFolder(existing(data))
    give_way_to_ingest()
    with _one_sentence(target):
        created = create_backup(folder, target)
    _tell(created)
    if keep is not None:
        repository = Repository(target)
        with _one_sentence(target), repository.writing():
            deleted_count = repository.delete_all_but(keep)
        say(f"Older generations deleted: {deleted_count:,}.")


def restore(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="A backup folder (its newest generation) or one manifest in it.")
    ],
    data: Data = DATA,
) -> None:
    """Restore a backup into a new data folder, and verify all of it. A folder that has files in it is refused.

    Run it as the user that the server runs as. `embedsink backup TARGET --list` lists the generations.
    """
    from embedsink.backup.restore import restore_backup

    with _one_sentence(data):
        generation = restore_backup(backup, DataFolder(data))
    say(
        f"{data}: restored every event acknowledged up to {_seconds(generation.began_at)}, {generation.byte_count:,} "
        f"bytes in {len(generation.files):,} files. Start the server: `embedsink serve --data {data}`."
    )


def _tell(created: "Created") -> None:
    typer.echo(created.manifest)
    for warning in created.warnings:
        say(f"Warning: {warning}")
    generation = created.generation
    say(
        f"Backed up every event acknowledged up to {_seconds(generation.began_at)}: {generation.byte_count:,} bytes in "
        f"{len(generation.files):,} files, {created.new_bytes:,} of them newly stored, all read back."
    )


def _list(repository: "Repository") -> None:
    rows = [_row(repository, name) for name in repository.names()]
    show_table(COLUMNS, rows)


def _row(repository: "Repository", name: str) -> tuple[object, ...]:
    from embedsink.backup.generation import BackupDamaged

    try:
        generation = repository.read(name)
    except BackupDamaged:
        return name, "damaged", None, None, None
    return name, _seconds(generation.began_at), len(generation.files), generation.byte_count, generation.version


def _seconds(moment: str) -> str:
    """A time of a manifest without its fraction: an earlier moment, so what is said of it stays true."""
    return f"{moment[:19]}Z"


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise Misconfigured(f"{where}: {error.strerror}. Repair that, then run this again.") from None
