"""The data folder is closed to other users, under any umask and any owner."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.permissions import restrict, restricted_umask
from embedsink.settings import Settings
from tests.support.all_writes import cause_all_writes, log_in
from tests.support.envelopes import view
from tests.support.servers import running_server, wait_until
from tests.support.stores import make_folder

DASHBOARD = {"title": "Mine", "description": "", "position": 9, "sections": []}
SECRET_FILES = {"keys.json", "keys.json.lock"}

OWN_NAMES = ("dashboards", "file", "gone", "link")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    """Return the mode of each file and folder below a folder; `.` is the folder itself."""
    modes_by_path = {}
    for path in (folder, *folder.rglob("*")):
        try:
            modes_by_path[str(path.relative_to(folder))] = mode_of(path)
        except FileNotFoundError:
            continue  # A running server seals and deletes segments.
    return modes_by_path


def exposed(folder: Path) -> dict[str, str]:
    """Return the paths in a folder that have too many permissions, with their modes."""
    allowed = {name: 0o750 if (folder / name).is_dir() else 0o640 for name in modes(folder)}
    return {name: oct(mode) for name, mode in modes(folder).items() if mode & ~allowed.get(name, 0o640)}


def run(*words: object, status: int = 0) -> str:
    """Run a command. Return its stdout."""
    command = [sys.executable, "-m", "embedsink", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == status, result.stderr
    return result.stdout


@pytest.mark.server
@pytest.mark.parametrize("mask", [0o000, 0o077], ids=oct)
def test_a_server_creates_files_with_0640_and_folders_with_0750_under_any_umask(tmp_path: Path, mask: int) -> None:
    data = tmp_path / "data"
    with umask(mask):
        (data / "dashboards").mkdir(parents=True)
        (data / "dashboards" / "mine.json").write_text(json.dumps(DASHBOARD))
        (data / "journal").mkdir()
        (data / "journal" / "000000000001-0f3a9c21.open").write_bytes(b"torn")
        with running_server(data, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.1") as server:
            cause_all_writes(server)
            assert exposed(data) == {}
    assert exposed(data) == {}
    created = modes(data)
    made = ("analytics.duckdb", "store.duckdb", *(name for name in created if name.startswith(("pages/", "damaged/"))))
    assert {created[name] for name in made} == {0o640}
    assert {created[name] for name in ("damaged", "pages")} == {0o750}
    assert {created[name] for name in SECRET_FILES} == {0o600}
    # stricter permissions stay
    assert {created[name] for name in (".", "journal", "dashboards")} == {0o750 & ~mask}


@pytest.mark.server
def test_commands_create_files_as_a_server_does_and_restrict_older_files(tmp_path: Path) -> None:
    data, events = tmp_path / "data", tmp_path / "events.ndjson"
    events.write_text(json.dumps(view()))
    with umask(0):
        run("keys", "create", "--kind", "read", "--data", data)
        assert exposed(data) == {}
        for command in (("import", events), ("snapshot",), ("rebuild",)):
            for path in (data, *data.rglob("*")):
                path.chmod(0o777 if path.is_dir() else 0o666)
            run(*command, "--data", data)
            assert exposed(data) == {}


@pytest.mark.server
def test_files_elsewhere_follow_the_umask(tmp_path: Path) -> None:
    data, events = tmp_path / "data", tmp_path / "events.ndjson"
    events.write_text(json.dumps(view()))
    with umask(0o022):
        run("import", events, "--data", data)
        run("export", "-o", tmp_path / "all.ndjson", "--data", data)
        run("report", "views", "-o", tmp_path / "views.csv", "--data", data)
    assert mode_of(tmp_path / "all.ndjson") == mode_of(tmp_path / "views.csv") == 0o644


def test_the_umask_is_restored(tmp_path: Path) -> None:
    with umask(0o002):
        with restricted_umask():
            (tmp_path / "file").touch()
        assert os.umask(0o002) == 0o002
    assert mode_of(tmp_path / "file") == 0o640


def test_stricter_permissions_and_the_setgid_bit_of_a_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o400)
    tmp_path.chmod(0o2770)
    assert restrict(tmp_path, own_names=OWN_NAMES) == []
    assert modes(tmp_path) == {".": 0o2750, "file": 0o400}


def test_files_of_other_programs_in_the_folder_keep_their_permissions(tmp_path: Path) -> None:
    program = tmp_path / "www" / "bin" / "run"
    program.parent.mkdir(parents=True)
    program.touch()
    page = tmp_path / "index.html"
    page.touch()
    tmp_path.chmod(0o755)
    for path in (program, page):
        path.chmod(0o755)
    with umask(0o022):
        DataFolder(tmp_path).create()
    assert [mode_of(path) for path in (tmp_path, program, page)] == [0o750, 0o755, 0o755]


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    outside, data = tmp_path / "outside", tmp_path / "data"
    for folder in (outside, data):
        folder.mkdir()
    (outside / "file").touch()
    for path, mode in ((outside, 0o755), (outside / "file", 0o644)):
        path.chmod(mode)
    (data / "dashboards").symlink_to(outside)
    (data / "link.json").symlink_to(outside / "file")
    (data / "gone.json").symlink_to(outside / "gone")
    assert restrict(data, own_names=OWN_NAMES) == []
    assert modes(outside) == {".": 0o755, "file": 0o644}


def test_files_of_another_user_are_logged_and_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o644)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert restrict(tmp_path, own_names=OWN_NAMES) == [tmp_path / "file"]
    assert modes(tmp_path) == {".": 0o700, "file": 0o644}
    tmp_path.chmod(0o777)
    assert restrict(tmp_path, own_names=OWN_NAMES) == [tmp_path]


def test_a_start_logs_files_that_stay_exposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_folder(tmp_path / "data")
    folder.store.chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    async def start() -> None:
        async with Engine(folder, Settings()):
            pass

    asyncio.run(start())
    [warning] = [record for record in caplog.records if record.message == "folder_exposed"]
    assert warning.__dict__["detail"] == (
        f"{folder.store}: other users may read or change it, and this user can't change its permissions. "
        f"As the owner, run `chmod -R g-w,o= {folder.path}`."
    )
    assert mode_of(folder.store) == 0o666


@pytest.mark.server
def test_a_stolen_data_folder_contains_no_usable_key(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        key, reader, admin = server.key(), server.key("read"), server.key("admin")
        stray = view({"title": f"my key is {reader}", reader: admin})
        assert server.post([stray, {"source": admin}], key=key).status == 202
        assert server.post({"key": key, "events": [view()], "context": {"viewer": admin}}).status == 202
        assert server.post(f"{{{key} {reader}".encode(), key=key).status == 400
        assert server.get(f"/api/v1/reports/views.csv?key={reader}").status in (400, 401)
        log_in(server, reader)
        wait_until(
            lambda: server.get("/api/v1/inspect?since=1h", key=reader).json()["isComplete"], description="it is loaded"
        )
        output = server.get("/api/v1/events.ndjson", key=reader).body
        output += server.get("/api/v1/quarantine?limit=100", key=reader).body
    output += b"".join(path.read_bytes() for path in server.data.rglob("*") if path.is_file()) + server.log.read_bytes()
    assert b"my key is es_read_\xe2\x80\xa6" in output
    for token in (key, reader, admin):
        assert token.encode() not in output
        assert token.encode()[-24:] not in output
