"""The commands `embedsink backup` and `embedsink restore`."""

import re
from pathlib import Path

import pytest

from embedsink.backup.create import create_backup
from embedsink.data_folder import DataFolder
from tests.cli.test_cli import RunCommand, assert_failed, run_command
from tests.support.backups import flip, load
from tests.support.given import write_segment
from tests.support.stores import make_folder

__all__ = ["run_command"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = make_folder(tmp_path / "data")
    load(folder, 1, 2)
    return folder.path


def test_backup_and_restore_print_the_time_up_to_which_they_have_events(
    data: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    result = run_command("backup", tmp_path / "target", "--data", data)
    assert result.returncode == 0
    assert re.fullmatch(rf"{tmp_path}/target/generations/\d{{8}}T\d{{6}}\.\d{{3}}Z\.json\n", result.stdout)
    message = (
        r"Backed up every event acknowledged up to (\S+Z): [\d,]+ bytes in \d files, of which [\d,]+ bytes are new"
    )
    assert (backed_up := re.search(message, result.stderr))

    listed = run_command("backup", tmp_path / "target", "--list")
    assert listed.returncode == 0
    assert backed_up[1] in listed.stdout

    result = run_command("restore", tmp_path / "target", "--data", tmp_path / "new")
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (0, "", 1)
    assert f"restored every event acknowledged up to {backed_up[1]}" in result.stderr
    assert f"`embedsink serve --data {tmp_path / 'new'}`" in result.stderr
    assert (tmp_path / "new/analytics.duckdb").read_bytes() == (data / "analytics.duckdb").read_bytes()


def test_old_generations_are_deleted_and_a_damaged_manifest_is_listed(
    data: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    for _ in range(2):
        create_backup(DataFolder(data), tmp_path / "target")
    result = run_command("backup", tmp_path / "target", "--data", data, "--keep", "2")
    assert result.returncode == 0
    assert "Older generations deleted: 1." in result.stderr
    flip(Path(result.stdout.strip()))
    listed = run_command("backup", tmp_path / "target", "--list").stdout
    assert listed.count(".json") == 2
    assert listed.count("damaged") == 1


def test_a_failed_backup_prints_one_line(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    target = tmp_path / "target"
    assert_failed(run_command("backup", target, "--list"), "is not a backup, because it has no generations/.")
    assert_failed(run_command("restore", target, "--data", tmp_path / "new"), "is not a backup")
    assert_failed(run_command("backup", data / "backup", "--data", data), "is inside the data folder")
    (tmp_path / "file").touch()
    assert_failed(run_command("backup", tmp_path / "file", "--data", data), "File exists. Correct this, and retry.")
    create_backup(DataFolder(data), target)
    assert_failed(run_command("restore", target, "--data", data), "is not empty. Name a new folder with --data.")


def test_a_backup_with_a_warning_succeeds(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    write_segment(DataFolder(data).journal, [{"type": "view"}], number=9)
    result = run_command("backup", tmp_path / "target", "--data", data)
    assert (result.returncode, result.stdout.count(".json")) == (0, 1)
    assert "Warning: journal: segments 3 to 8 are missing" in result.stderr
