"""A data folder to back up, and the backup folder."""

import shutil
from pathlib import Path

import pytest

from embedsink.data_folder import DataFolder
from tests.support.backups import make_data


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return make_data(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture
def folder(shared_folder: DataFolder, tmp_path: Path) -> DataFolder:
    """Return a copy of the shared folder that a test may change."""
    return DataFolder(shutil.copytree(shared_folder.path, tmp_path / "data"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backup"
