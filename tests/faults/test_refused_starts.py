"""A failed start prints a clear error and exits with 1, without a traceback, and changes no file."""

import contextlib
import struct
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import embedsink
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured
from embedsink.journal.segment import trailer
from embedsink.key_scope import EVERYTHING
from embedsink.store.snapshot_reader import open_snapshot
from tests.support.given import write_segment
from tests.support.programs import require
from tests.support.servers import free_port
from tests.support.stores import make_folder

LINE = b'{"kind":"lost","received_at":1,"reason":"x","lost_count":1}\n'
READING = (
    ["report", "views"],
    ["report"],
    ["export", "-o", "events.csv"],
    ["quarantine", "list"],
    ["render", "overview"],
)
WRITING = (["snapshot"], ["rebuild"], ["import", "events.ndjson"], ["serve"])

pytestmark = pytest.mark.slow


def run(folder: DataFolder, command: list[str], *tracing: str) -> str:
    """Return the last line of a failed command's stderr. Check its exit code, and that it shows no traceback."""
    options = {"serve": ["--port", str(free_port())], "render": ["-o", "overview.svg"]}.get(command[0], [])
    (folder.path.parent / "events.ndjson").write_text("")
    result = subprocess.run(
        [*tracing, sys.executable, "-m", "embedsink", *command, *options, "--data", str(folder.path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder.path.parent,
    )
    lines = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert result.returncode == 1, f"{command}: {result.stdout}{result.stderr}"
    assert "Traceback" not in result.stderr
    # A command may first print its action.
    return lines[-1]


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """Create a folder with a store, a snapshot and a segment with a torn tail."""
    folder = make_folder(tmp_path / "data")
    folder.snapshot.write_bytes(folder.store.read_bytes())
    write_segment(folder.journal, [{"type": "view"}])
    (folder.journal / "000000000002-00000000.open").write_bytes(LINE + trailer(LINE) + b"torn")
    return folder


def make_newer(path: Path, change: str) -> None:
    """Give a database the schema of a newer version."""
    if change == "schema":
        with contextlib.closing(duckdb.connect(str(path))) as newer:
            newer.execute("insert into migration values ('9999_later', now()::timestamp)")
    else:
        header = bytearray(path.read_bytes()[:4_096])
        header[12:20] = (9_999).to_bytes(8, "little")  # the version of the file format
        checksum = 5_381
        for (word,) in struct.iter_unpack("<Q", header[8:]):
            checksum ^= word * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        header[:8] = checksum.to_bytes(8, "little")
        with path.open("r+b") as file:
            file.write(header)


@pytest.mark.parametrize("change", ["schema", "format"])
def test_every_writer_refuses_a_newer_store_and_does_not_change_it(folder: DataFolder, change: str) -> None:
    make_newer(folder.store, change)
    before = folder.store.read_bytes()
    for command in WRITING if change == "schema" else WRITING[:1]:
        message = run(folder, command)
        assert message.startswith("store.duckdb: ")
        assert "newer" in message
    assert folder.store.read_bytes() == before
    assert list(folder.damaged.iterdir()) == []


@pytest.mark.parametrize("change", ["schema", "format"])
def test_every_reader_refuses_a_newer_snapshot(folder: DataFolder, change: str) -> None:
    make_newer(folder.snapshot, change)
    for command in READING if change == "schema" else READING[:1]:
        message = run(folder, command)
        assert message.startswith("analytics.duckdb: ")
        assert "newer" in message
    assert "1 of" in run(folder, ["doctor"])
    with pytest.raises(Misconfigured, match=r"analytics\.duckdb: .*newer"):
        embedsink.open(folder.path).report("views")


def test_a_login_secret_without_a_login_is_a_clear_error(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDSINK_LOGIN_CLIENT_SECRET", "s3cret")
    message = run(folder, ["serve"])
    assert message.startswith("EMBEDSINK_LOGIN_CLIENT_SECRET: is set, but identity.toml has no [login]. Add it,")
    assert "s3cret" not in message


@pytest.mark.server
@pytest.mark.parametrize(
    ("name", "fault", "sentence"),
    [
        ("lock", "openat:error=EIO", "lock: Input/output error. Check the disk and the kernel log."),
        ("lock", "pwrite64:error=EIO", "lock: Input/output error. Check the disk and the kernel log."),
        ("journal", "fsync:error=EIO", "journal: Input/output error. Check the disk and the kernel log."),
        ("journal/000000000002-00000000.open", "fsync:error=EIO", "Input/output error. Check the disk"),
        ("journal/000000000002-00000000.open", "rename:error=EIO", "Input/output error. Check the disk"),
    ],
)
def test_a_failing_disk_at_the_start_is_a_clear_error(folder: DataFolder, name: str, fault: str, sentence: str) -> None:
    require("strace")
    path = folder.path / name
    path.touch()
    calls = f"trace={fault.split(':')[0]}"
    tracing = ("strace", "-f", "-o", "/dev/null", "-P", str(path), "-e", calls, "-e", f"inject={fault}")
    assert sentence in run(folder, ["serve"], *tracing)
    assert_nothing_is_lost(folder)


def assert_nothing_is_lost(folder: DataFolder) -> None:
    """Load all segments with a working disk, and compare the counts."""
    result = subprocess.run(
        [sys.executable, "-m", "embedsink", "snapshot", "--data", str(folder.path)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    with open_snapshot(folder.snapshot, EVERYTHING.variables()) as reader:
        counts, _ = reader.first_row(
            "select (select count(*) from event) as events, (select count(*) from loss) as lost"
        )
    assert counts == {"events": 1, "lost": 1}
