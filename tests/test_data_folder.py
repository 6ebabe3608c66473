"""The data folder: its lock, its permissions and foreign files in it."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from embedsink.data_folder import DataFolder, FolderLock, FolderTaken
from embedsink.errors import Misconfigured


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    return folder


@pytest.mark.parametrize("name", ["journal", "damaged"])
def test_a_file_in_place_of_a_folder_is_a_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(Misconfigured, match=rf"/{name}: is a file, but must be a folder\. Move it, or"):
        DataFolder(tmp_path).create()


def test_a_deleted_lock_file_admits_no_second_server(folder: DataFolder) -> None:
    lock = folder.path / "lock"
    with FolderLock(folder):
        lock.unlink()
        with pytest.raises(FolderTaken, match="is in use by another process"):
            FolderLock(folder).__enter__()
        lock.write_text("")
        with pytest.raises(FolderTaken, match="is in use by another process"):
            FolderLock(folder).__enter__()
    with FolderLock(folder):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_the_lock_file_is_locked_too_for_older_versions(folder: DataFolder) -> None:
    with (folder.path / "lock").open("w") as older:
        older.write("412\n")
        older.flush()
        fcntl.flock(older, fcntl.LOCK_EX)
        with pytest.raises(FolderTaken, match=r"is in use by process 412\. Stop that server"):
            FolderLock(folder).__enter__()
    with FolderLock(folder), (folder.path / "lock").open() as older, pytest.raises(BlockingIOError):
        fcntl.flock(older, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_refused_lock_leaves_the_folder_free(folder: DataFolder) -> None:
    (folder.path / "lock").mkdir()
    with pytest.raises(Misconfigured, match=r"data/lock: Is a directory\. "):
        FolderLock(folder).__enter__()
    (folder.path / "lock").rmdir()
    with FolderLock(folder):
        pass


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "Permission denied. Run this as the owner of the data folder"),
        (errno.EROFS, "Read-only file system. Mount it writable"),
        (errno.EIO, "Input/output error. Check the disk"),
    ],
)
def test_a_failed_lock_is_a_clear_error(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    for function in ("open", "pwrite", "ftruncate"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, refuse)
            with pytest.raises(Misconfigured, match=advice):
                FolderLock(folder).__enter__()
    with FolderLock(folder):
        pass


def test_a_full_disk_does_not_prevent_locking(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    with FolderLock(folder), pytest.raises(FolderTaken):
        FolderLock(folder).__enter__()


def test_the_file_is_locked_where_folders_cannot_be_locked(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def refuse_folders(descriptor: int, operation: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_dir():
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", refuse_folders)
    with FolderLock(folder), pytest.raises(FolderTaken, match=f"process {os.getpid()}"):
        FolderLock(folder).__enter__()


def test_an_unreadable_folder_is_not_a_nested_data_folder(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        if path.parent.name == "lost+found":
            raise PermissionError(errno.EACCES, "Permission denied")
        return True

    (folder.path / "lost+found").mkdir()
    monkeypatch.setattr(Path, "is_dir", refuse)
    assert folder.nested_data_folders() == []


@pytest.mark.parametrize("holds", ["journal", "analytics.duckdb"])
def test_a_data_folder_copied_into_the_folder_is_found(folder: DataFolder, holds: str) -> None:
    (folder.path / "store.spill").mkdir()
    folder.dashboards.mkdir()
    assert folder.nested_data_folders() == []
    backup = folder.path / "backup"
    backup.mkdir()
    (backup / holds).mkdir() if holds == "journal" else (backup / holds).touch()
    assert folder.nested_data_folders() == [backup]
