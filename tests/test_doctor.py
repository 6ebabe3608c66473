"""The doctor: it reports missing, shortened and foreign files in a data folder, and changes nothing."""

import contextlib
from pathlib import Path

import duckdb
import pytest

from embedsink.data_folder import DataFolder
from embedsink.doctor import Finding, examine
from embedsink.journal.segment import sealed_name
from embedsink.loader.loader import Loader
from embedsink.settings import Settings
from embedsink.store.database import Store
from tests.support.given import write_segment
from tests.support.stores import make_folder


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """Create a folder whose snapshot has the segments 1 and 2, which are also in the journal."""
    folder = make_folder(tmp_path / "data")
    for number in (1, 2):
        add_segment(folder, number)
    loader = Loader(folder, Store(folder.store))
    loader.open_store()
    loader.run_once(is_last=True)
    loader.close()
    return folder


def add_segment(folder: DataFolder, number: int) -> Path:
    path = write_segment(folder.journal, [{"type": "view", "id": number}], number=number)
    return path.rename(path.with_name(sealed_name(path.stem, path.stat().st_size)))


def finding(folder: DataFolder, check: str) -> Finding:
    [finding_read] = [finding_read for finding_read in examine(folder, Settings()) if finding_read.check == check]
    return finding_read


def test_a_healthy_folder_has_no_findings(folder: DataFolder) -> None:
    for number in (3, 4):
        add_segment(folder, number)
    assert [result for result in examine(folder, Settings()) if result.state != "ok"] == []


def test_rows_of_an_older_schema_are_reported_as_unchecked(folder: DataFolder) -> None:
    with contextlib.closing(duckdb.connect(str(folder.snapshot))) as snapshot:
        snapshot.execute("alter table loaded_segment drop column counted_only_count")
        snapshot.execute("delete from migration where name >= '0008'")
    wrong = [result for result in examine(folder, Settings()) if result.state != "ok"]
    assert [result.check for result in wrong] == ["rows"]
    message = "are not checked, because an older version of embedsink created the snapshot. Create a new snapshot"
    assert message in wrong[0].details


def test_a_segment_missing_from_snapshot_and_journal_is_reported(folder: DataFolder) -> None:
    for number in (4, 7):
        add_segment(folder, number)
    found = finding(folder, "journal")
    assert found.state == "problem"
    assert "3 of the segments 3 to 6 are in neither the snapshot nor the journal" in found.details


@pytest.mark.parametrize("left", [0, 10])
def test_a_shortened_segment_is_reported(folder: DataFolder, left: int) -> None:
    path = add_segment(folder, 3)
    content = path.read_bytes()
    path.write_bytes(content[:left])
    found = finding(folder, "journal")
    assert found.state == "problem"
    assert f"{path.name}: bytes are missing: {left} of {len(content)} are left" in found.details


@pytest.mark.parametrize("is_oldest", [False, True])
def test_a_segment_of_another_data_folder_is_reported(folder: DataFolder, is_oldest: bool) -> None:
    path = add_segment(folder, 3)
    if is_oldest:
        for other in folder.journal.glob("*-00000000.*"):
            if other != path:
                other.unlink()
    path.rename(path.with_name("000000000002-ffffffff.ndjson"))
    found = finding(folder, "journal")
    assert found.state == "problem"
    assert "000000000002-ffffffff: has the number of 000000000002-00000000" in found.details


@pytest.mark.parametrize("name", ["zzz.ndjson", "000000000003-00000000.ndjson", "000000000003-00000000.open"])
@pytest.mark.parametrize("make", ["folder", "link"])
def test_a_foreign_file_in_the_journal_is_reported(folder: DataFolder, name: str, make: str) -> None:
    odd = folder.journal / name
    odd.mkdir() if make == "folder" else odd.symlink_to("nowhere")
    found = finding(folder, "journal")
    assert (found.state, name in found.details) == ("problem", True)


def test_a_damaged_group_of_an_open_segment_is_reported_and_a_torn_one_is_not(folder: DataFolder) -> None:
    sealed = add_segment(folder, 3)
    content = bytearray(sealed.read_bytes())
    sealed.unlink()
    growing = folder.journal / "000000000003-00000000.open"
    growing.write_bytes(content[:-3])
    assert finding(folder, "journal").state == "ok"
    content[3] ^= 1
    growing.write_bytes(content)
    assert f"{growing.name}: its checksum does not match (offset 0)" in finding(folder, "journal").details


@pytest.mark.parametrize("name", ["000000000003-00000000.open", "000000000003-00000000.group-88.ndjson", "lost-1.txt"])
def test_files_in_damaged_are_reported(folder: DataFolder, name: str) -> None:
    (folder.damaged / name).touch()
    found = finding(folder, "damaged")
    assert (found.state, name in found.details) == ("problem", True)


def test_a_torn_tail_in_damaged_is_not_reported(folder: DataFolder) -> None:
    (folder.damaged / "000000000003-00000000.tail-88").touch()
    assert finding(folder, "damaged").state == "ok"


def test_a_data_folder_inside_the_data_folder_is_reported(folder: DataFolder) -> None:
    (folder.path / "backup" / "journal").mkdir(parents=True)
    found = finding(folder, "folder")
    assert found.state == "problem"
    assert f"{folder.path / 'backup'}: is a data folder inside this one" in found.details
