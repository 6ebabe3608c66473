"""The restore of a backup generation into a new data folder."""

import os
import re
import shlex
import shutil
from hashlib import sha256
from pathlib import Path

from embedsink.backup.chunk_store import private_opener
from embedsink.backup.generation import BackupDamaged, Generation, StoredFile
from embedsink.backup.repository import LOST_AND_FOUND, Repository
from embedsink.data_folder import DataFolder
from embedsink.durable_files import create_folder, sync_folder
from embedsink.errors import Misconfigured
from embedsink.permissions import FILE_MODE, FOLDER_MODE, restricted_umask

# Only the owner may read the digests of tokens, the secrets of hashes, and the people in requests of erasures.
_PRIVATE_MODE = 0o600
_PRIVATE_FILES = re.compile(r"keys\.json|privacy_secrets\.json|erasures/.*")


def restore_backup(backup: Path, folder: DataFolder) -> Generation:
    """Write a generation into a new data folder, and verify each file.

    The files are written to a subfolder and moved when all are written. No server starts while the subfolder exists.

    Args:
        backup: a backup folder, to restore its newest generation; or the manifest of a generation.
        folder: the new data folder, which is missing or empty.

    Raises:
        BackupDamaged: the backup is damaged. Nothing was restored.
        Misconfigured: `backup` is not a backup, or `folder` is not empty. Nothing was restored.
        OSError: the disk has no space or has failed. No server starts on the partly restored folder.
    """
    repository, name = _find_generation(backup)
    try:
        generation = repository.read(name)
        with _StagingFolder(folder) as staging_folder:
            for file in generation.files:
                staging_folder.write(file, repository)
    except BackupDamaged as error:
        raise BackupDamaged(f"{error}. Nothing was restored. {_advice(repository, name, folder)}") from None
    return generation


def _find_generation(backup: Path) -> tuple[Repository, str]:
    """Return the repository and the file name of the generation to restore: the named one, or the newest of a backup.

    Raises:
        Misconfigured: the path is not a backup or a generation, or the backup has no generation.
    """
    if backup.absolute().parent.name == "generations":  # The path is that of a manifest.
        repository = Repository(backup.absolute().parents[1])
        if backup.name in repository.generation_names():
            return repository, backup.name
        command = f"embedsink backup {shlex.quote(str(repository.path))} --list"
        raise Misconfigured(f"{backup}: is not a generation of a backup. `{command}` lists them.")
    repository = Repository(backup)
    names = repository.generation_names()
    if not names:
        raise Misconfigured(
            f"{backup}: has no generation, because its first backup was interrupted. Name another backup."
        )
    return repository, names[-1]  # the newest


def _advice(repository: Repository, damaged_name: str, folder: DataFolder) -> str:
    """Return advice: how to restore the newest intact generation before the damaged one, or that none is intact."""
    older = [name for name in repository.generation_names() if name < damaged_name]
    for name in reversed(older):
        if _is_intact(repository, name):
            path = repository.generations / name
            command = f"embedsink restore {shlex.quote(str(path))} --data {shlex.quote(str(folder.path))}"
            return f"Restore an older, intact generation: `{command}`."
    return "No older generation is intact."


def _is_intact(repository: Repository, name: str) -> bool:
    """Return whether the manifest and all chunks of a generation are readable and match their checksums."""
    try:
        for chunk in repository.read(name).chunks:
            repository.chunks.load(chunk)
    except BackupDamaged:
        return False
    return True


class _StagingFolder:
    """The subfolder of a data folder in which files are restored until all are written.

    At the end of a `with` block, the files are moved into the data folder; after an error, the subfolder is deleted.
    """

    def __init__(self, data_folder: DataFolder) -> None:
        self._data_folder = data_folder.path
        self._staging_folder = data_folder.restoring
        self._is_new_data_folder = not data_folder.path.exists()

    def __enter__(self) -> "_StagingFolder":
        """Create the staging folder, and a missing data folder. Raise Misconfigured if the data folder has content."""
        if not self._is_new_data_folder:
            self._refuse_nonempty()
        with restricted_umask():  # as `DataFolder.create` does
            create_folder(self._data_folder, mode=FOLDER_MODE)
        self._staging_folder.mkdir(mode=FOLDER_MODE)
        sync_folder(self._data_folder)
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Move the files into the data folder. After an error, delete the created folders instead."""
        if error_type is None:
            self._move_files()
            return
        shutil.rmtree(self._staging_folder)
        if self._is_new_data_folder:
            self._data_folder.rmdir()

    def write(self, file: StoredFile, repository: Repository) -> None:
        """Write a file, and compare the written content with the checksums.

        Raises:
            BackupDamaged: a chunk or the file does not match its checksum.
        """
        path = self._staging_folder / file.name
        path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        digest = sha256()
        byte_count = 0
        with open(path, "xb", opener=private_opener) as target:
            mode = _PRIVATE_MODE if _PRIVATE_FILES.fullmatch(file.name) else FILE_MODE
            os.fchmod(target.fileno(), mode)  # Unlike a mode passed to `open`, this is exact: no umask applies.
            for chunk in file.chunks:
                try:
                    content = repository.chunks.load(chunk)
                except BackupDamaged as error:
                    raise BackupDamaged(f"{repository.path}: {file.name}: {error}") from None
                digest.update(content)
                byte_count += target.write(content)
            target.flush()
            os.fsync(target.fileno())
        if (digest.hexdigest(), byte_count) != (file.sha256, file.byte_count):
            raise BackupDamaged(f"{repository.path}: {file.name}: the restored content does not match its checksum")

    def _refuse_nonempty(self) -> None:
        """Raise Misconfigured if the data folder has content, which a restore would mix with the backup's files."""
        # The root of a new file system contains `lost+found`.
        names = {path.name for path in self._data_folder.iterdir()} - {LOST_AND_FOUND}
        if self._staging_folder.name in names:
            raise Misconfigured(
                f"data folder {self._data_folder}: an earlier restore into it is running or was interrupted. If it was "
                "interrupted, delete the folder's content and restore again."
            )
        if names:
            raise Misconfigured(f"data folder {self._data_folder}: is not empty. Name a new folder with --data.")

    def _move_files(self) -> None:
        """Move the written files into the data folder, and delete the subfolder."""
        paths = sorted(self._staging_folder.iterdir())
        for path in paths:
            if path.is_dir():
                path.chmod(FOLDER_MODE)  # The umask may have removed bits of the mode.
                sync_folder(path)
        for path in paths:
            path.rename(self._data_folder / path.name)
        # Make the moves durable before removing the subfolder: no server starts while it exists.
        sync_folder(self._data_folder)
        self._staging_folder.rmdir()
        sync_folder(self._data_folder)
