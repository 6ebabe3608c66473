"""Killed backups, deletions and restores: generations stay intact, and no partial data folder is opened."""

import subprocess
import sys
from pathlib import Path

import pytest

from embedsink.backup.create import create_backup
from embedsink.backup.repository import Repository
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured
from tests.support.backups import OPEN, contents, expected, load, restored

pytestmark = pytest.mark.slow


# Fork a child for each step, and kill it there. The test checks the files that it left.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from embedsink.backup.create import create_backup
from embedsink.backup.repository import Repository
from embedsink.backup.restore import restore_backup
from embedsink.data_folder import DataFolder
from embedsink.store.snapshot_file import Segments
from embedsink.backup import create, origin

# DuckDB has threads, which a forked child lacks. It writes nothing here.
create.examine_snapshot = origin.find_segments = lambda path, numbers: Segments(0, frozenset())
act, every, data, target, copies = sys.argv[1], int(sys.argv[2]), *map(Path, sys.argv[3:])
data = DataFolder(data)

def run(copy):
    if act == "backup":
        create_backup(data, copy / "backup")
    elif act == "delete":
        Repository(copy / "backup").delete_all_but(1)
    else:
        restore_backup(copy / "backup", DataFolder(copy / "new"))

def inject_kill(left):
    def counted(call):
        def counting(*arguments, **named):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)
        return counting
    for name in ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink", "open"):
        setattr(os, name, counted(getattr(os, name)))

for step in range(1, 1000, every):
    copy = copies / f"{step:03}"
    copy.mkdir()
    shutil.copytree(target, copy / "backup")
    child = os.fork()
    if child == 0:
        inject_kill(step)
        run(copy)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
print(step)
"""


def killed_at_every_step(action: str, folder: DataFolder, target: Path, *, every: int = 1) -> list[Path]:
    """Return copies of a backup folder, each after a kill at a later step. The last one is complete."""
    copies = target.parent / "copies"
    copies.mkdir()
    words = [sys.executable, "-c", KILLED, action, str(every), str(folder.path), str(target), str(copies)]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert int(result.stdout) >= 5 * every
    return sorted(copies.iterdir())


def whole_generations(target: Path) -> int:
    """Return the number of generations, after checking that all are intact."""
    repository = Repository(target)
    for name in repository.generation_names():
        for chunk in repository.read(name).chunks:
            repository.chunks.load(chunk)
    return len(repository.generation_names())


def test_a_backup_killed_at_any_step_leaves_intact_generations(folder: DataFolder, target: Path) -> None:
    create_backup(folder, target)
    (folder.path / OPEN).unlink()
    load(folder, 4)
    copies = killed_at_every_step("backup", folder, target, every=3)

    counts = [whole_generations(copy / "backup") for copy in copies]
    assert counts == sorted(counts), "the manifest comes last"
    assert set(counts) == {1, 2}
    for copy in copies[::3]:
        create_backup(folder, copy / "backup")
        restored_files = restored(copy / "backup", copy / "new")
        assert restored_files == {name: content for name, content in expected(folder).items() if name != OPEN}


def test_a_first_backup_killed_at_any_step_can_be_repeated(folder: DataFolder, target: Path) -> None:
    target.mkdir()
    for copy in killed_at_every_step("backup", folder, target, every=7):
        create_backup(folder, copy / "backup")
        assert whole_generations(copy / "backup") in (1, 2)


def test_a_deletion_killed_at_any_step_leaves_intact_generations(folder: DataFolder, target: Path) -> None:
    for number in (5, 6, 7):
        load(folder, number)
        create_backup(folder, target)
    for copy in killed_at_every_step("delete", folder, target):
        assert whole_generations(copy / "backup") in (1, 2, 3)
        Repository(copy / "backup").delete_all_but(1)
        assert whole_generations(copy / "backup") == 1


def test_no_server_opens_the_folder_of_a_restore_killed_at_any_step(folder: DataFolder, target: Path) -> None:
    create_backup(folder, target)
    copies = killed_at_every_step("restore", folder, target)
    half = 0
    for copy in copies:
        new = DataFolder(copy / "new")
        if new.restoring.exists():
            half += 1
            with pytest.raises(Misconfigured, match="is only partly restored"):
                new.create()
        else:
            assert contents(new.path) in ({}, expected(folder))
    assert half > 10
    assert contents(copies[-1] / "new") == expected(folder)
