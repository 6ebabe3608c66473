"""`embedsink backup` and `embedsink restore`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embedsink.audit.entry import Action
from embedsink.cli.options import DATA, Data, UsageError, examples
from embedsink.cli.output import print_message
from embedsink.cli.recording import recorded
from embedsink.cli.tables import print_table
from embedsink.data_folder import DataFolder, require_folder
from embedsink.errors import Misconfigured

if TYPE_CHECKING:
    from embedsink.backup.create import BackupResult
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
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The backup folder. It is created if missing.")],
    data: Data = DATA,
    keep: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Delete all but the newest N generations afterwards.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the generations instead of making a backup.")] = False,
) -> None:
    """Add a generation to a backup folder, even while a server runs. The command prints the path of its manifest.

    A generation contains every event that was acknowledged before the command began, the files of keys and rules,
    dashboards/, audit/ and the segments in damaged/. Only changes since the last generation are stored, and everything
    is read back to verify it. An interrupted backup adds no generation.
    """
    from embedsink.backup.create import create_backup
    from embedsink.backup.repository import Repository
    from embedsink.concurrency.priority import lower_priority

    if list_only:
        if keep is not None:
            raise UsageError("--keep: can't be combined with --list. Omit one of them.")
        _print_generations(Repository(target))
        return
    folder = DataFolder(require_folder(data))
    lower_priority()  # Leave the CPU to a running server.
    folder.refuse_other_folder()
    with _explain_os_errors(target), recorded(folder, Action.BACKUP, target=str(target), is_required=False):
        created = create_backup(folder, target)
    _print_created(created)
    if keep is not None:
        repository = Repository(target)
        with _explain_os_errors(target), repository.writing():
            deleted_count = repository.delete_all_but(keep)
        print_message(f"Older generations deleted: {deleted_count:,}.")


def restore(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="A backup folder (for its newest generation), or a manifest.")
    ],
    data: Data = DATA,
) -> None:
    """Restore a backup into a new or empty data folder, and verify all of it.

    Run it as the user of the server. `embedsink backup TARGET --list` lists the generations.
    """
    from embedsink.backup.restore import restore_backup

    with _explain_os_errors(data):
        generation = restore_backup(backup, DataFolder(data))
    detail = {"generation": generation.began_at}
    with recorded(DataFolder(data), Action.RESTORE, target=str(backup), detail=detail, is_required=False):
        pass  # Only now does the folder exist.
    print_message(
        f"{data}: restored every event acknowledged up to {_without_fraction(generation.began_at)}, "
        f"{generation.byte_count:,} bytes in {len(generation.files):,} files. "
        f"Start the server: `embedsink serve --data {data}`."
    )


def _print_created(created: "BackupResult") -> None:
    """Print the path of the manifest on stdout, and the warnings and the sizes of a new generation on stderr."""
    typer.echo(created.manifest)
    for warning in created.warnings:
        print_message(f"Warning: {warning}")
    generation = created.generation
    print_message(
        f"Backed up every event acknowledged up to {_without_fraction(generation.began_at)}: "
        f"{generation.byte_count:,} bytes in {len(generation.files):,} files, of which "
        f"{created.new_byte_count:,} bytes are new. All files were verified."
    )


def _print_generations(repository: "Repository") -> None:
    print_table(COLUMNS, [_generation_row(repository, name) for name in repository.generation_names()])


def _generation_row(repository: "Repository", name: str) -> tuple[object, ...]:
    """Return the table row of a generation. If the manifest is damaged, the row has the name and `damaged`."""
    from embedsink.backup.generation import BackupDamaged

    try:
        generation = repository.read(name)
    except BackupDamaged:
        return name, "damaged", None, None, None
    events_up_to = _without_fraction(generation.began_at)
    return name, events_up_to, len(generation.files), generation.byte_count, generation.version


def _without_fraction(time: str) -> str:
    """Return an ISO 8601 time in UTC without the fraction of a second.

    Cutting rounds down. Rounding up would promise events that the backup lacks.
    """
    whole_seconds = time[: len("2026-11-23T09:30:12")]
    return f"{whole_seconds}Z"


@contextmanager
def _explain_os_errors(path: Path) -> Iterator[None]:
    """Convert an OSError to Misconfigured. The message names the file of the error, or `path` if the error has none."""
    try:
        yield
    except OSError as error:
        raise Misconfigured(f"{error.filename or path}: {error.strerror}. Correct this, and retry.") from None
