"""`restore_backup`: a generation as a data folder."""

import os
import shlex
import shutil
from hashlib import sha256
from pathlib import Path

from embedsink.backup.generation import BackupDamaged, Generation, StoredFile
from embedsink.backup.pieces import open_private
from embedsink.backup.repository import LOST_AND_FOUND, Repository
from embedsink.data_folder import DataFolder
from embedsink.durable_files import sync_folder
from embedsink.errors import Misconfigured
from embedsink.permissions import FILE_MODE, FOLDER_MODE

_KEYS_MODE = 0o600


def restore_backup(backup: Path, folder: DataFolder) -> Generation:
    """Write a generation into a new data folder, and verify all of it.

    The files are written into a subfolder and moved at the end. As long as that subfolder is there, no server starts.

    Args:
        backup: a backup folder, of which the newest generation is restored; or the manifest of a generation in it.
        folder: does not exist yet, or is empty.

    Raises:
        BackupDamaged: something in the backup is damaged. Nothing was restored.
        Misconfigured: `backup` is none, or `folder` has something in it. Nothing was restored.
        OSError: there was no room, or a disk failed. No server starts on what was restored until then.
    """
    repository, name = _found(backup)
    try:
        generation = repository.read(name)
        with _Draft(folder) as draft:
            for file in generation.files:
                draft.write(file, repository)
    except BackupDamaged as error:
        raise BackupDamaged(f"{error}. Nothing was restored. {_instead(repository, name, folder)}") from None
    return generation


def _found(backup: Path) -> tuple[Repository, str]:
    if backup.absolute().parent.name == "generations":
        repository = Repository(backup.absolute().parents[1])
        if backup.name in repository.names():
            return repository, backup.name
        listed = f"embedsink backup {shlex.quote(str(repository.path))} --list"
        raise Misconfigured(f"{backup}: is no generation of a backup. `{listed}` lists them.")
    repository = Repository(backup)
    names = repository.names()
    if not names:
        raise Misconfigured(f"{backup}: has no generation yet; its first backup was interrupted. Name another one.")
    return repository, names[-1]


def _instead(repository: Repository, damaged: str, folder: DataFolder) -> str:
    """Say which generation can be restored: the newest one before the damaged one that is whole."""
    for name in reversed([name for name in repository.names() if name < damaged]):
        if _is_whole(repository, name):
            path = repository.generations / name
            command = f"embedsink restore {shlex.quote(str(path))} --data {shlex.quote(str(folder.path))}"
            return f"An older generation is whole: `{command}`."
    return "No older generation is whole."


def _is_whole(repository: Repository, name: str) -> bool:
    try:
        for piece in repository.read(name).pieces:
            repository.pieces.load(piece)
    except BackupDamaged:
        return False
    return True


class _Draft:
    """The subfolder of a new data folder in which its files wait until all are there."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder.path
        self._draft = folder.restoring
        self._is_new = not folder.path.exists()

    def __enter__(self) -> "_Draft":
        if not self._is_new:
            self._refuse_occupied()
        self._draft.mkdir(mode=FOLDER_MODE, parents=True)
        if self._is_new:
            self._folder.chmod(FOLDER_MODE)
        sync_folder(self._folder)
        sync_folder(self._folder.absolute().parent)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._move_up()
            return
        shutil.rmtree(self._draft)
        if self._is_new:
            self._folder.rmdir()

    def write(self, file: StoredFile, repository: Repository) -> None:
        """Write a file and verify it.

        Raises:
            BackupDamaged: names the file and what is wrong with it.
        """
        path = self._draft / file.name
        path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        whole, byte_count = sha256(), 0
        with open(path, "xb", opener=open_private) as writing:
            os.fchmod(writing.fileno(), _KEYS_MODE if file.name == "keys.json" else FILE_MODE)
            for piece in file.pieces:
                try:
                    content = repository.pieces.load(piece)
                except BackupDamaged as error:
                    raise BackupDamaged(f"{repository.path}: {file.name}: {error}") from None
                whole.update(content)
                byte_count += writing.write(content)
            writing.flush()
            os.fsync(writing.fileno())
        if (whole.hexdigest(), byte_count) != (file.sha256, file.byte_count):
            raise BackupDamaged(f"{repository.path}: {file.name}: its pieces do not make up the file")

    def _refuse_occupied(self) -> None:
        names = {path.name for path in self._folder.iterdir()} - {LOST_AND_FOUND}
        if self._draft.name in names:
            raise Misconfigured(
                f"data folder {self._folder}: an earlier restore into it was interrupted, or is running. If it was "
                "interrupted, delete the folder's content and repeat this."
            )
        if names:
            raise Misconfigured(f"data folder {self._folder}: is not empty. Name a new folder with --data.")

    def _move_up(self) -> None:
        for path in self._draft.iterdir():
            if path.is_dir():
                path.chmod(FOLDER_MODE)
                sync_folder(path)
        for path in sorted(self._draft.iterdir()):
            path.rename(self._folder / path.name)
        # Durable before the subfolder is gone that keeps servers out.
        sync_folder(self._folder)
        self._draft.rmdir()
        sync_folder(self._folder)
