"""Durable file operations: renames never replace a file, and new folders survive a power failure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from embedsink.durable_files import create_folder, rename_new
from tests.support.programs import require


def test_an_existing_target_is_refused_and_both_files_stay(tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        rename_new(tmp_path / "source", tmp_path / "target")
    assert [(tmp_path / name).read_text() for name in ("source", "target")] == ["source", "target"]


def test_a_broken_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "source").touch()
    (tmp_path / "target").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        rename_new(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").is_symlink()


def test_a_file_is_renamed_to_a_free_name(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("content")
    rename_new(tmp_path / "source", tmp_path / "target é")
    assert [path.name for path in tmp_path.iterdir()] == ["target é"]


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="source"):
        rename_new(tmp_path / "source", tmp_path / "target")


def test_the_entry_of_each_new_folder_is_synced_after_its_creation(tmp_path: Path) -> None:
    require("strace")
    create = "from embedsink.durable_files import *; create_folder(Path('a/b/c'), mode=0o700)"
    trace = tmp_path / "trace"
    strace = ["strace", "-y", "-e", "trace=/^mkdir,fsync", "-o", str(trace)]
    subprocess.run([*strace, sys.executable, "-c", create], cwd=tmp_path, check=True)
    calls = trace.read_text()
    for parent in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        assert f"<{parent}>)" in calls[calls.rindex("mkdir") :], calls
    assert re.findall(r'^mkdir.*"([abc/]+)", \w+\) += 0$', calls, re.MULTILINE) == ["a", "a/b", "a/b/c"]
    # An interrupted call may have created the folder without a sync.
    subprocess.run([*strace, sys.executable, "-c", create], cwd=tmp_path, check=True)
    assert f"<{tmp_path / 'a' / 'b'}>)" in trace.read_text()


def test_a_folder_in_a_parent_that_can_not_be_read_or_written_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "parent" / "folder"
    create_folder(folder)
    folder.parent.chmod(0o111)
    if os.getuid() != 0:
        create_folder(folder)
        return
    for path in (tmp_path, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o111)
    child = os.fork()
    if child == 0:  # Root may read every folder, so continue as another user.
        exit_code = 1
        try:
            os.setuid(65_534)
            create_folder(folder)
            exit_code = 0
        finally:
            os._exit(exit_code)
    assert os.waitpid(child, 0)[1] == 0
