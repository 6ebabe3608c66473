"""`journal.last`: a loss of the newest segments is detected, even after a kill before they were in a snapshot."""

from pathlib import Path

import pytest

from embedsink.backup.create import create_backup
from embedsink.data_folder import DataFolder
from embedsink.doctor import examine
from embedsink.journal.last_sealed import LastSealed
from embedsink.settings import Settings
from tests.support.app import open_server
from tests.support.envelopes import view
from tests.support.servers import running_server, wait_until


def test_a_number_is_overwritten_in_place(tmp_path: Path) -> None:
    last = LastSealed(tmp_path / "journal.last")
    assert last.read() == 0
    for number in (5, 123_456_789_012):
        last.write(number)
        assert last.read() == number
    LastSealed(tmp_path / "journal.last").write(7)  # after a restart, a deferred segment
    assert (tmp_path / "journal.last").read_bytes() == b"123456789012\n"


@pytest.mark.parametrize("content", [b"", bytes(13), b"x", b"12x"])
def test_an_unreadable_file_reads_as_0(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.last").write_bytes(content)
    assert LastSealed(tmp_path / "journal.last").read() == 0


def test_a_failed_write_is_ignored(tmp_path: Path) -> None:
    LastSealed(tmp_path / "missing" / "journal.last").write(1)


@pytest.mark.server
@pytest.mark.parametrize("and_store", [False, True])
def test_a_sealed_segment_deleted_after_a_kill_is_reported(tmp_path: Path, and_store: bool) -> None:
    folder = DataFolder(tmp_path / "data")
    with running_server(folder.path, checks_store=False, EMBEDSINK_SNAPSHOT_INTERVAL_S="600") as server:
        assert server.post(view(), key=server.key()).status == 202
        wait_until(folder.last_sealed.exists, description="a segment is sealed and its number stored")
        server.kill()
    for path in [*folder.journal.iterdir(), *(folder.path.glob("*.duckdb*") if and_store else [])]:
        path.unlink()
    [journal_finding] = [finding for finding in examine(folder, Settings()) if finding.check == "journal"]
    assert "segment 1 is in neither the snapshot nor the journal" in journal_finding.details
    assert create_backup(folder, tmp_path / "backup").warnings == (
        "journal: segment 1 is missing. Run `embedsink doctor` for advice.",
    )
    with open_server(folder.path) as server:
        lost = b"segment 1 is in neither the store nor the journal"
        wait_until(lambda: lost in server.get("/readyz").content, description="the loss is reported")
        assert server.post(view(), key=server.key()).status_code == 202
        assert [path.name[:12] for path in folder.journal.glob("*.open")] == ["000000000002"]
