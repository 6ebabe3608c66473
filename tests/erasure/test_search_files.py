"""The search of a folder for texts."""

import os
from pathlib import Path
from typing import Any

import pytest

from embedsink.erasure.search_files import search


def fail_to_read(patch: pytest.MonkeyPatch, folder: Path, error: OSError) -> None:
    scandir = os.scandir

    def fail(path: Any) -> Any:
        if Path(path) == folder:
            raise error
        return scandir(path)

    patch.setattr(os, "scandir", fail)


def searched(folder: Path) -> list[str]:
    return [file.path for file in search(folder, ["ann"])]


def test_a_folder_that_cannot_be_read_fails_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    with monkeypatch.context() as patch:
        fail_to_read(patch, tmp_path / "a", FileNotFoundError())
        assert searched(tmp_path) == ["b/file"]
    # Root can read every folder, so a mode without permissions is not enough.
    fail_to_read(monkeypatch, tmp_path / "a", PermissionError())
    with pytest.raises(PermissionError):
        searched(tmp_path)


def test_the_folder_of_the_file_system_and_the_requests_are_left_out(tmp_path: Path) -> None:
    for name in ("erasures", "lost+found", "journal/lost+found", "journal/erasures"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    assert searched(tmp_path) == ["journal/erasures/file"]
