"""The erasure of a person on a live server: afterwards, no file of the data folder names them."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

from embedsink.erasure.erasures import DELAY_IN_LOG
from embedsink.erasure.run import _hide
from embedsink.journal.segment import trailer
from tests.support.envelopes import event_or_action, view
from tests.support.kills import kill_at
from tests.support.servers import RunningServer, fetch, running_server, wait_until
from tests.support.stores import make_folder

ANN = "ann-Xq7@example.com"
QUESTION = "Which of my own customers in Ulm left us last spring?"
ERASURES = "/api/v1/erasures"


def delivery(viewer: str | None, session: str, *envelopes: dict[str, Any], **context: Any) -> dict[str, Any]:
    return {"context": {"deployment": 1, "session": session, "viewer": viewer, **context}, "events": list(envelopes)}


def journal_line(viewer: str | None, session: str, text: str, *, deployment: int = 1) -> bytes:
    context = {"deployment": deployment, "session": session} | ({} if viewer is None else {"viewer": viewer})
    return json.dumps({"kind": "event", "key_id": "k", "context": context, "text": text}).encode() + b"\n"


def question(text: str) -> dict[str, Any]:
    return event_or_action("event:ai-query", {"query": text, "status": "submitted"})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path / "data", EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        yield server


def wait_for_snapshot(server: RunningServer, count: int) -> None:
    wait_until(lambda: len(reported(server)) >= count, description=f"{count} sessions are in a report")


def reported(server: RunningServer) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = server.get("/api/v1/reports/sessions.json", key=server.key("read")).json()
    return rows


def erase(server: RunningServer, key: str | None = None, **person: Any) -> dict[str, Any]:
    """Erase a person, and return the certificate."""
    key = key or server.key("admin")
    response = server.post({"viewer": ANN, **person}, path=ERASURES, key=key)
    assert response.status == 202, response.body
    path = response.headers["location"]
    assert path == f"{ERASURES}/{response.json()['id']}"
    wait_until(lambda: server.get(path, key=key).json()["status"] == "finished", description="the erasure is finished")
    certificate: dict[str, Any] = server.get(path, key=key).json()
    return certificate


def files_with(data: Path, *texts: str) -> set[str]:
    """Return the names of the files of a data folder, and its server's log, that contain one of the texts."""
    files = [path for path in [*data.rglob("*"), data.parent / f"{data.name}.log"] if path.is_file()]
    return {path.name for path in files if any(text.encode() in path.read_bytes() for text in texts)}


def rows_with(data: Path, *texts: str) -> list[str]:
    """Return the tables of the snapshot that contain one of the texts. DuckDB compresses the texts in its file."""
    copy = data.parent / "copy.duckdb"  # A server may replace the snapshot at any moment.
    wait_until((data / "analytics.duckdb").exists, description="a snapshot is published")
    shutil.copyfile(data / "analytics.duckdb", copy)
    with duckdb.connect(str(copy), read_only=True) as connection:
        tables = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
        return [
            name
            for name in tables
            if any(text in str(connection.execute(f'from "{name}"').fetchall()) for text in texts)
        ]


def test_no_file_names_an_erased_person(server: RunningServer) -> None:
    ingest = server.key()
    for viewer, session, text in ((ANN, "ann-session-1", QUESTION), ("bob", "bob-session-1", "What did we sell?")):
        body = delivery(viewer, session, view(), question(text), event_or_action("action:refresh"), {"type": "x"})
        assert server.post(body, key=ingest).status == 202
    assert server.post(delivery(None, "ann-session-1", view()), key=ingest).status == 202
    wait_for_snapshot(server, 2)
    wait_until(lambda: rows_with(server.data, ANN) != [], description="the snapshot has the events")
    before = reported(server)
    admin = server.key("admin")
    would_remove = server.post({"viewer": ANN}, path=f"{ERASURES}/dry-run", key=admin).json()["wouldRemove"]
    certificate = erase(server, admin)
    assert would_remove == {
        "events": 3,
        "actions": 1,
        "rejections": 1,
        "losses": 0,
        "directoryUsers": 0,
        "damagedLines": 0,
    }
    assert certificate["removed"] == would_remove
    assert (certificate["foundIn"], certificate["remainingRows"]) == ([], 0)
    assert certificate["searchedTextCount"] == 2  # the viewer and the question; the session is too short
    assert {"store.duckdb", "analytics.duckdb", "analytics.previous.duckdb", "keys.json"} <= {
        file["path"] for file in certificate["searchedFiles"]
    }
    assert files_with(server.data, ANN, QUESTION, "ann-session-1") == set()
    assert rows_with(server.data, ANN, QUESTION, "ann-session-1") == []
    assert reported(server) == [row for row in before if row["session"] == "bob-session-1"]
    entries = [
        json.loads(line) for file in (server.data / "audit").glob("*.ndjson") for line in file.read_text().splitlines()
    ]
    assert [entry["action"] for entry in entries if entry["action"].startswith("eras")] == ["erasure", "erased"]


def test_a_certificate_counts_rows_that_were_not_deleted(tmp_path: Path) -> None:
    injected = """
import embedsink.store.database as database
from embedsink.store.erasure import ErasedRows

database.delete_person = lambda connection, variables: ErasedRows(0, 0, 0, 0, ())
"""
    with running_server(tmp_path / "data", injected=injected) as server:
        assert server.post(delivery(ANN, "s1", view(), view()), key=server.key()).status == 202
        certificate = erase(server)
    assert (certificate["foundIn"], certificate["remainingRows"]) == ([], 2)


def test_deliveries_of_an_erased_person_are_rejected(server: RunningServer) -> None:
    erase(server)
    ingest = server.key()
    response = server.post(delivery(ANN, "s9", view(), question(QUESTION), tenant="acme"), key=ingest)
    assert response.status == 422
    assert [one["reason"] for one in response.json()["rejected"]] == ["erased"] * 2
    large = delivery(ANN, "s9", *[question(f"{QUESTION} {number}") for number in range(300)])
    assert server.post(large, key=ingest).status == 422
    unreadable = f'{{"context": {{"viewer": "{ANN}"}}, "events": ['.encode()
    assert server.post(unreadable, key=ingest).status == 400
    assert server.post(delivery("bob", "s9", view()), key=ingest).status == 202
    wait_for_snapshot(server, 1)
    wait_until(
        lambda: len(server.get("/api/v1/quarantine", key=server.key("read")).json()) == 100, description="are loaded"
    )
    assert files_with(server.data, ANN, QUESTION) == set()
    assert rows_with(server.data, ANN, QUESTION) == []
    [row] = [
        row for row in server.get("/api/v1/quarantine?limit=1000", key=server.key("read")).json() if row["tenant"]
    ][:1]
    assert (row["deployment"], row["tenant"], row["reason"], row["raw"]) == (1, "acme", "erased", "")


def test_a_limited_key_erases_within_its_scope(server: RunningServer) -> None:
    ingest = server.key()
    for deployment, session in ((1, "s1"), (2, "the-only-session")):
        assert server.post(delivery(ANN, session, view(), deployment=deployment), key=ingest).status == 202
    wait_for_snapshot(server, 2)
    others_line = journal_line(None, "s2", "b", deployment=1)
    damaged = server.data / "damaged" / "000000000001-1a2b3c4d-900.ndjson"
    damaged.write_bytes(journal_line(ANN, "s2", "a", deployment=2) + others_line)
    limited = server.key("admin", deployments={2})
    refused = server.post({"viewer": ANN, "deployment": 1}, path=ERASURES, key=limited)
    assert (refused.status, refused.json()["reason"]) == (403, "out_of_scope")
    certificate = erase(server, limited)
    assert (certificate["deployments"], certificate["removed"]["events"]) == ([2], 1)
    assert certificate["removed"]["damagedLines"] == 1
    assert [path.read_bytes() for path in (server.data / "damaged").iterdir()] == [others_line]
    assert "searchedFiles" not in certificate  # The names of files are not in its scope.
    assert (certificate["searchedFileCount"] > 0, certificate["foundFileCount"]) == (True, 0)
    assert certificate["remainingRows"] == 0
    assert [row["session"] for row in reported(server)] == ["s1"]
    assert server.post(delivery(ANN, "s3", view(), deployment=2), key=ingest).status == 422
    assert server.post(delivery(ANN, "s3", view(), deployment=1), key=ingest).status == 202
    # It sees only its own requests.
    other = erase(server, viewer="bob-Xq7@example.com", tenant="acme")
    # A limited request searches for no id, because it may remain elsewhere.
    counts = [other[name] for name in ("searchedTextCount", "searchedFileCount", "foundFileCount")]
    assert (counts, other["searchedFiles"], other["foundIn"]) == ([0, 0, 0], [], [])
    assert [one["id"] for one in server.get(ERASURES, key=limited).json()] == [certificate["id"]]
    assert server.get(f"{ERASURES}/{other['id']}", key=limited).status == 404
    assert len(server.get(ERASURES, key=server.key("admin")).json()) == 2


@pytest.mark.parametrize(
    ("function", "imports"),
    [
        ("database.delete_person", "import embedsink.store.database as database"),
        ("database.write_copy", "import embedsink.store.database as database"),
        ("StoreErasure.request_snapshot", "from embedsink.loader.erasure import StoreErasure"),
        ("StoreErasure.delete_damaged_databases", "from embedsink.loader.erasure import StoreErasure"),
        ("run.remove_lines", "import embedsink.erasure.run as run"),
        ("FileSearch.run", "from embedsink.erasure.file_search import FileSearch"),
    ],
)
def test_an_erasure_continues_after_a_kill(tmp_path: Path, function: str, imports: str) -> None:
    data = tmp_path / "data"
    killed = kill_at(1, [function], imports=imports)
    # A kill may leave a new store without its views, which the next start creates.
    with running_server(data, injected=killed, checks_store=False, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        ingest = server.key()
        for viewer in (ANN, "bob"):
            assert server.post(delivery(viewer, f"session-{viewer}", view()), key=ingest).status == 202
        wait_for_snapshot(server, 2)
        admin = server.key("admin")
        path = server.post({"viewer": ANN}, path=ERASURES, key=admin).headers["location"]
        assert server.process.wait(timeout=20) == -signal.SIGKILL
    with running_server(data, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        assert server.post(delivery(ANN, "s9", view()), key=ingest).status == 422
        wait_until(lambda: server.get(path, key=admin).json()["status"] == "finished", description="it is finished")
        certificate = server.get(path, key=admin).json()
        assert certificate["removed"]["events"] == 1
        assert certificate["foundIn"] == []
        assert files_with(data, ANN) == set()
        assert [row["session"] for row in reported(server)] == ["session-bob"]


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "embedsink", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "", **env})


def test_a_command_erases_from_a_folder_and_from_a_server(tmp_path: Path) -> None:
    events, folder = tmp_path / "events.ndjson", make_folder(tmp_path / "data").path
    events.write_text("".join(json.dumps(delivery(name, f"session-{name}", view())) + "\n" for name in (ANN, "bob")))
    assert run("import", str(events), "--data", str(folder)).returncode == 0
    counted = run("erase", "--viewer", ANN, "--dry-run", "--data", str(folder))
    assert json.loads(counted.stdout)["wouldRemove"]["events"] == 1
    assert files_with(folder, ANN) != set()
    erased = run("erase", "--viewer", ANN, "-o", str(tmp_path / "certificate.json"), "--data", str(folder))
    assert erased.returncode == 0, erased.stderr
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert (certificate["removed"]["events"], certificate["foundIn"]) == (1, [])
    assert files_with(folder, ANN) == set()
    # An import of the same file rejects the person's events.
    imported = run("import", str(events), "--data", str(folder))
    assert "context.viewer: The viewer was erased" in imported.stdout + imported.stderr
    assert files_with(folder, ANN) == set()
    # Without the file of the erasure, the block is lifted.
    (folder / "erasures" / f"{certificate['id']}.json").rename(tmp_path / "lifted.json")
    assert "rejected 0." in run("import", str(events), "--data", str(folder)).stderr
    assert files_with(folder, ANN) != set()
    with running_server(folder) as server:
        refused = run("erase", "--viewer", "bob", "--data", str(folder))
        assert "Use that server with --url" in refused.stderr
        remote = {"EMBEDSINK_KEY": server.key("admin")}
        counted = run("erase", "--viewer", "bob", "--dry-run", "--url", server.url, **remote)
        assert json.loads(counted.stdout)["wouldRemove"]["events"] == 1
        erased = run("erase", "--viewer", "bob", "--url", server.url, **remote)
        assert json.loads(erased.stdout)["removed"]["events"] == 1
    for words in (
        ["--viewer", ""],
        ["--viewer", "a\udcff"],
        ["--viewer", "a", "--tenant", ""],
        ["--viewer", "a", "-o", str(tmp_path / "none" / "x.json")],
    ):
        result = run("erase", *words, "--data", str(folder))
        assert (result.returncode, result.stdout, "Traceback" in result.stderr) == (2, "", False)


@pytest.mark.parametrize("output", [".", "/proc/certificate.json"])
def test_a_certificate_that_cannot_be_written_prevents_the_erasure(tmp_path: Path, output: str) -> None:
    folder = make_folder(tmp_path / "data").path
    result = run("erase", "--viewer", ANN, "-o", str(tmp_path / output), "--data", str(folder))
    assert (result.returncode, "Choose another path." in result.stderr) == (1, True)
    assert not (folder / "erasures").exists()


def test_an_invalid_request_erases_nothing(server: RunningServer) -> None:
    admin = server.key("admin")
    for body, field in (
        ({}, "viewer"),
        ({"viewer": ""}, "viewer"),
        ({"viewer": 7}, "viewer"),
        ({"viewer": ANN, "tenants": ["acme"]}, "tenants"),
        ({"viewer": ANN, "deployment": "1"}, "deployment"),
        ({"viewer": "a\0b"}, "body"),
        ([], "body"),
    ):
        for path in (ERASURES, f"{ERASURES}/dry-run"):
            response = server.post(body, path=path, key=admin)
            assert (response.status, response.json()["errors"][0]["field"]) == (422, field)
            assert "delivery" not in response.body.decode()
    assert server.post({"viewer": ANN}, path=ERASURES, key=server.key("read")).json()["reason"] == "wrong_kind"
    assert server.get(ERASURES, key=admin).json() == []
    assert not (server.data / "erasures").exists()


def test_people_are_blocked_for_some_days_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server(data, EMBEDSINK_ERASURE_BLOCK_DAYS="0") as server:
        ingest = server.key()
        certificate = erase(server)
        assert certificate["blockedUntil"] == certificate["requestedAt"]
    with running_server(data) as server:
        assert server.post(delivery(ANN, "s1", view()), key=ingest).status == 202
        [path] = (data / "erasures").glob("*.json")
        assert json.loads(path.read_text())["blocked"] is None
        finished = server.get(f"{ERASURES}/{path.stem}", key=server.key("admin")).json()
        assert finished["searchedFiles"] == certificate["searchedFiles"] != []
        server.stop()
    content = json.loads(path.read_text())
    content["result"]["finished_at"] -= 401 * 86_400_000
    path.write_text(json.dumps(content))
    with running_server(data):
        wait_until(lambda: not path.exists(), description="the certificate is deleted")


def test_segments_in_damaged_lose_the_lines_of_the_person(server: RunningServer) -> None:
    groups = [
        [
            journal_line(ANN, "s1", "a"),
            journal_line("bob", "s2", "b"),
            journal_line(None, "s1", "c"),
            journal_line(None, "s2", "d"),
        ],
        [journal_line("bob", "s3", "e"), journal_line(ANN, "s3", "f"), journal_line(None, "s3", "g")],
    ]
    torn = journal_line(ANN, "s4", "h")[:-9] + b"\n"
    content = b"".join(b"".join(group) + trailer(b"".join(group)) for group in groups) + torn
    path = server.data / "damaged" / f"000000000001-1a2b3c4d-{len(content) + 100}.ndjson"
    path.write_bytes(content)
    counted = server.post({"viewer": ANN}, path=f"{ERASURES}/dry-run", key=server.key("admin")).json()
    assert counted["wouldRemove"]["damagedLines"] == 4
    certificate = erase(server)
    assert certificate["removed"]["damagedLines"] == 4
    [remaining] = (server.data / "damaged").iterdir()
    kept = [[groups[0][1], groups[0][3]], [groups[1][0], groups[1][2]]]
    assert remaining.read_bytes() == b"".join(b"".join(group) + trailer(b"".join(group)) for group in kept)
    # The size in the name still says how much the damage took.
    assert remaining.name == f"000000000001-1a2b3c4d-{remaining.stat().st_size + 100}.ndjson"


def test_a_user_who_is_deleted_over_scim_is_erased(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_ERASE_ON_SCIM_DELETE="on") as server:
        ingest, scim, admin = server.key(), server.key("scim"), server.key("admin")
        assert server.post(delivery("e-42-Xq7", "session-e-42", view()), key=ingest).status == 202
        user = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": ANN, "externalId": "e-42-Xq7"}
        created = server.post(user, path="/api/scim/v2/Users", key=scim)
        assert created.status == 201
        wait_for_snapshot(server, 1)
        response = fetch(f"{server.url}/api/scim/v2/Users/{created.json()['id']}", key=scim, method="DELETE")
        assert response.status == 204
        [erasure] = server.get(ERASURES, key=admin).json()
        path = f"{ERASURES}/{erasure['id']}"
        wait_until(lambda: server.get(path, key=admin).json()["status"] == "finished", description="it is finished")
        certificate = server.get(path, key=admin).json()
        assert (certificate["removed"]["events"], certificate["removed"]["directoryUsers"]) == (1, 1)
        assert certificate["searchedTextCount"] == 2
        assert files_with(server.data, "e-42-Xq7", ANN) == set()
        assert rows_with(server.data, "e-42-Xq7", ANN) == []


def test_a_user_whose_deletion_was_killed_is_deleted_by_the_erasure(tmp_path: Path) -> None:
    setting: dict[str, Any] = {"EMBEDSINK_ERASE_ON_SCIM_DELETE": "on"}
    path = "/api/scim/v2/Users"
    injected = """
import os, signal
from embedsink.engine import Engine
erase_users = Engine._erase_deleted_users

async def kill_afterwards(engine, users):
    await erase_users(engine, users)
    os.kill(os.getpid(), signal.SIGKILL)

Engine._erase_deleted_users = kill_afterwards
"""
    with running_server(tmp_path / "data", injected=injected, checks_store=False, **setting) as server:
        scim, admin = server.key("scim"), server.key("admin")
        user = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": ANN, "externalId": "e-42-Xq7"}
        user_id = server.post(user, path=path, key=scim).json()["id"]
        with pytest.raises(OSError, match=r"closed|reset"):
            fetch(f"{server.url}{path}/{user_id}", key=scim, method="DELETE")
        server.process.wait(timeout=10)
    with running_server(tmp_path / "data", **setting) as server:

        def are_finished() -> bool:
            return [one["status"] for one in server.get(ERASURES, key=admin).json()] == ["finished"]

        wait_until(are_finished, description="the erasure is finished")
        [certificate] = server.get(ERASURES, key=admin).json()
        assert (certificate["removed"]["directoryUsers"], certificate["foundFileCount"]) == (1, 0)
        assert server.get(path, key=scim).json()["totalResults"] == 0
        assert files_with(server.data, "e-42-Xq7", ANN) == set()


def test_a_user_who_is_created_again_stays(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_ERASE_ON_SCIM_DELETE="on") as server:
        scim, admin = server.key("scim"), server.key("admin")
        user = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": ANN, "externalId": "e-42-Xq7"}
        path = "/api/scim/v2/Users"
        user_id = server.post(user, path=path, key=scim).json()["id"]
        assert fetch(f"{server.url}{path}/{user_id}", key=scim, method="DELETE").status == 204
        created = server.post(user, path=path, key=scim)
        assert created.status == 201

        def are_finished() -> bool:
            return [one["status"] for one in server.get(ERASURES, key=admin).json()] == ["finished"]

        wait_until(are_finished, description="the erasure is finished")
        assert server.get(f"{path}/{created.json()['id']}", key=scim).status == 200


def test_an_erasure_deletes_the_user_in_the_directory(server: RunningServer) -> None:
    scim = server.key("scim")
    user = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "Ann-Xq7 Archer", "externalId": ANN}
    assert server.post(user, path="/api/scim/v2/Users", key=scim).status == 201
    certificate = erase(server)
    assert certificate["removed"]["directoryUsers"] == 1
    assert server.get("/api/scim/v2/Users", key=scim).json()["totalResults"] == 0
    assert files_with(server.data, ANN, "Ann-Xq7 Archer") == set()
    assert rows_with(server.data, ANN, "Ann-Xq7 Archer") == []
    assert len(server.get(ERASURES, key=server.key("admin")).json()) == 1


def test_several_requests_are_erased_together(server: RunningServer) -> None:
    ingest, admin = server.key(), server.key("admin")
    viewers = [f"viewer-Xq7-{number}" for number in range(25)]
    for viewer in (*viewers, "bob"):
        assert server.post(delivery(viewer, f"session-{viewer}", view()), key=ingest).status == 202
    wait_for_snapshot(server, 26)
    for viewer in (*viewers, viewers[0]):
        assert server.post({"viewer": viewer}, path=ERASURES, key=admin).status == 202

    def are_finished() -> bool:
        return all(one["status"] == "finished" for one in server.get(ERASURES, key=admin).json())

    wait_until(are_finished, description="all are finished")
    removed = [one["removed"]["events"] for one in server.get(ERASURES, key=admin).json()]
    assert removed == [0, *[1] * 25]
    assert files_with(server.data, *viewers) == set()
    assert [row["session"] for row in reported(server)] == ["session-bob"]


def test_texts_of_others_are_not_found(server: RunningServer) -> None:
    ingest = server.key()
    for viewer in ("viewer-7", "viewer-77", f"{ANN} and Bob"):
        question_ = question(f"What does {viewer} ask about the year?")
        assert server.post(delivery(viewer, f"session of {viewer}", view(), question_), key=ingest).status == 202
    wait_for_snapshot(server, 3)
    for viewer in ("viewer-7", ANN):
        certificate = erase(server, viewer=viewer)
        assert certificate["foundIn"] == []
    (server.data / "dashboards").mkdir(exist_ok=True)
    (server.data / "dashboards" / "own.txt").write_text(f'{{"viewer": "{ANN}"}}, viewer-77')
    for viewer in ("viewer-77", ANN):
        (server.data / "dashboards" / f"{viewer}.txt").touch()
    certificate = erase(server)
    assert certificate["foundIn"] == [{"path": "dashboards/own.txt", "textCount": 1}]
    assert ANN not in json.dumps(certificate)
    assert erase(server, viewer="viewer-7")["foundIn"] == []
    certificate = erase(server, viewer="viewer-77")
    assert certificate["foundIn"] == [{"path": f"dashboards/{name}.txt", "textCount": 1} for name in ("own", "…")]
    assert "viewer-77" not in json.dumps(certificate)


def test_rejections_in_base64_are_erased(server: RunningServer) -> None:
    ingest, read = server.key(), server.key("read")
    body = f'{{"context": {{"viewer": "{ANN}"}}, "events": [{{"x": "'.encode()
    for end in (b"\xff", b"\0"):
        assert server.post(body + end, key=ingest).status == 400
    assert server.post(body.decode().encode("utf-16"), key=ingest).status == 400
    wait_until(lambda: len(server.get("/api/v1/quarantine", key=read).json()) == 3, description="they are loaded")
    assert erase(server)["removed"]["rejections"] == 3
    assert server.get("/api/v1/quarantine", key=read).json() == []


def test_rejections_that_name_the_person_in_another_form_are_erased(server: RunningServer) -> None:
    ingest, read = server.key(), server.key("read")
    assert server.post({"context": {"viewer": 4217}, "events": [view()]}, key=ingest).status == 422
    assert server.post(b"{'context': {'viewer': '4217'}}", key=ingest).status == 400
    assert server.post(b"{'context': {'viewer': '42170'}}", key=ingest).status == 400
    wait_until(lambda: len(server.get("/api/v1/quarantine", key=read).json()) == 3, description="they are loaded")
    certificate = erase(server, viewer="4217")
    assert (certificate["removed"]["rejections"], certificate["remainingRejections"]) == (2, 0)
    [other] = server.get("/api/v1/quarantine", key=read).json()
    assert "42170" in other["raw"]
    assert server.post({"context": {"viewer": 4217}, "events": [view()]}, key=ingest).status == 422
    wait_until(lambda: len(server.get("/api/v1/quarantine", key=read).json()) == 2, description="it is loaded")
    assert [row["raw"] for row in server.get("/api/v1/quarantine", key=read).json() if "42170" not in row["raw"]] == [
        ""
    ]


@pytest.mark.parametrize(
    "body",
    [
        b'{"context": {"viewer": ["4217"]}, "events": []}',
        b'{"context": {"viewer": {"id": "4217", "n": {"a": 1}}}, "events": []}',
        b'{"context": {"Viewer": "4217"}, "events": []}',
        b"x=1&viewer=4217",
    ],
)
def test_rejections_with_an_invalid_viewer_are_erased(server: RunningServer, body: bytes) -> None:
    ingest, read = server.key(), server.key("read")
    for content in (body, body.replace(b"4217", b"42170")):
        assert server.post(content, key=ingest).status in {400, 422}
    wait_until(lambda: len(server.get("/api/v1/quarantine", key=read).json()) == 2, description="they are loaded")
    assert erase(server, viewer="4217")["removed"]["rejections"] == 1
    [other] = server.get("/api/v1/quarantine", key=read).json()
    assert "42170" in other["raw"]
    assert server.post(body, key=ingest).status in {400, 422}
    wait_until(lambda: len(server.get("/api/v1/quarantine", key=read).json()) == 2, description="it is loaded")
    contents = [row["raw"] for row in server.get("/api/v1/quarantine", key=read).json()]
    assert sorted(contents) == ["", other["raw"]]


def test_a_long_rejection_is_erased_whole(server: RunningServer) -> None:
    # A row has 16,384 characters of it. The rest is in another table.
    body = f'{{"context": {{"viewer": "{ANN}"}}, "events": "{"x" * 40_000}"}}'.encode()
    assert server.post(body, key=server.key()).status == 422
    read = server.key("read")
    wait_until(lambda: len(server.get("/api/v1/quarantine", key=read).json()) == 1, description="it is loaded")
    assert erase(server)["removed"]["rejections"] == 1
    server.stop()
    with duckdb.connect(str(server.data / "store.duckdb"), read_only=True) as connection:
        query = "select (select count(*) from quarantine), (select count(*) from quarantine_rest)"
        assert connection.execute(query).fetchall() == [(0, 0)]


def test_lines_of_any_shape_in_damaged_stop_no_erasure(server: RunningServer) -> None:
    records: list[Any] = [
        {"kind": "quarantined", "raw": "abc", "raw_encoding": "base64"},
        {"context": [1]},
        {"context": {"viewer": ["x"], "session": ["s"]}},
        {"context": {"deployment": [1], "viewer": ANN}},
        {"raw": 7},
        [ANN],
        7,
    ]
    content = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    (server.data / "damaged" / "000000000001-1a2b3c4d-9.ndjson").write_bytes(content)
    assert erase(server)["removed"]["damagedLines"] == 2
    [path] = (server.data / "damaged").iterdir()
    assert ANN.encode() not in path.read_bytes()


def test_drafts_of_a_killed_process_are_deleted(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data").path
    (data / "erasures").mkdir()
    draft = data / "erasures" / "019ab9f0-6a00-7c4e-8000-000000000000.json.new"
    draft.write_text(ANN)
    with running_server(data) as server:
        assert not draft.exists()
        assert server.get(ERASURES, key=server.key("admin")).json() == []


def test_rows_that_a_rebuild_brings_back_are_erased_again(tmp_path: Path) -> None:
    """Between the copy of the store and the next snapshots, the former snapshot still has the rows."""
    injected = """
import embedsink.erasure.erasures as erasures
import embedsink.erasure.run as erasure_run
erasures.RETRY_AFTER_S = 0.2
publish = erasure_run.ErasureRun._publish
rebuilt = []
def rebuild(loader):
    loader._publisher.reset()
    loader._store.close()
    loader._rebuild("is damaged")
async def publish_after_rebuild(self):
    if not rebuilt:
        rebuilt.append(True)
        await self._in_loader(lambda: rebuild(self._loader))
    await publish(self)
erasure_run.ErasureRun._publish = publish_after_rebuild
"""
    with running_server(tmp_path / "data", injected=injected, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        assert server.post(delivery(ANN, "session-ann-Xq7", view()), key=server.key()).status == 202
        wait_for_snapshot(server, 1)
        wait_until(lambda: rows_with(server.data, ANN) != [], description="the snapshot has the events")
        certificate = erase(server)
        assert (certificate["removed"]["events"], certificate["foundIn"]) == (1, [])
        assert rows_with(server.data, ANN) == []
        assert b"rows of the person again" in server.log.read_bytes()


def test_a_command_ends_when_the_erasure_cannot_continue(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data").path
    (data / "damaged").mkdir(exist_ok=True)
    script = (
        "import embedsink.store.database as database; database.free_bytes = lambda path: 10;"
        f"import sys; sys.argv = ['embedsink', 'erase', '--viewer', 'ann', '--data', {str(data)!r}];"
        "from embedsink.cli.app import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert "needs" in result.stderr
    assert "The request is stored." in result.stderr
    finished = run("erase", "--viewer", "bob", "--data", str(data))
    assert json.loads(finished.stdout)["status"] == "finished"
    assert "Warning: nothing names this viewer. Ids are compared exactly" in finished.stderr


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            "import embedsink.loader.publisher as publisher, errno;"
            "publisher.Publisher._start_copy = "
            "lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, 'No space left'))",
            "No space left",
        ),
        (
            "from embedsink.loader.erasure import StoreErasure; StoreErasure.erase = lambda *_, **__: 1 / 0",
            "Report it with the traceback in the log",
        ),
    ],
    ids=["no snapshot", "bug"],
)
def test_a_command_ends_with_the_cause(tmp_path: Path, patch: str, message: str) -> None:
    data = make_folder(tmp_path / "data").path
    script = (
        f"{patch};import sys; sys.argv = ['embedsink', 'erase', '--viewer', 'ann', '--data', {str(data)!r}];"
        "from embedsink.cli.app import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert message in result.stderr
    assert "The request is stored." in result.stderr


@pytest.mark.parametrize("viewer", [ANN, "CORP\\\\alice.smith", "josé@example.com"])
def test_the_cause_of_a_delay_names_no_person(viewer: str) -> None:
    error = PermissionError(13, "Permission denied", f"damaged/{viewer}.ndjson")
    assert _hide([viewer], str(error)) == "[Errno 13] Permission denied: 'damaged/….ndjson'"


def test_no_sender_keeps_an_erasure_from_being_finished(server: RunningServer) -> None:
    ingest, admin, limited = server.key(), server.key("admin"), server.key("admin", deployments={12})
    is_finished = threading.Event()

    def send() -> None:
        # The store attributes the event to deployment 12, which its delivery does not name.
        number = 0
        while not is_finished.wait(0.1):
            number += 1
            ready = event_or_action("event:ready", {"deploymentId": 12})
            server.post(delivery(ANN, f"s{number}", view(), deployment=None), key=ingest)
            server.post(delivery(None, f"s{max(number - 20, 0)}", ready, deployment=None), key=ingest)
            server.post(b'{"userId": "bob-Xq7@example.com"', key=ingest)

    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send)
        try:
            would_remove = f"{ERASURES}/dry-run"
            wait_until(
                lambda: (
                    server.post({"viewer": ANN}, path=would_remove, key=limited).json()["wouldRemove"]["events"] > 0
                ),
                description="events are in deployment 12",
            )
            assert erase(server, limited)["removed"]["events"] > 0
            assert erase(server, admin, viewer="bob-Xq7@example.com")["removed"]["rejections"] > 0
        finally:
            is_finished.set()
        sending.result()


def test_a_delayed_erasure_shows_its_cause(tmp_path: Path) -> None:
    injected = "import embedsink.erasure.erasures as erasures; erasures.RETRY_AFTER_S = 0.2"
    data = tmp_path / "data"
    with running_server(data, injected=injected, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.1") as server:
        admin, limited = server.key("admin"), server.key("admin", deployments={1})
        obstacle = data / "damaged" / "000000000001-1a2b3c4d-9.ndjson.new"
        obstacle.mkdir(parents=True)  # It can't be deleted like a file.
        command = [sys.executable, "-m", "embedsink", "erase", "--viewer", ANN, "--url", server.url, "--key", admin]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: server.get("/readyz").json()["delays"] != [], description="the erasure is delayed")
            response = server.get("/readyz")
            assert (response.status, response.json()["delays"]) == (200, [DELAY_IN_LOG])
            [pending] = server.get(ERASURES, key=admin).json()
            cause = pending["delay"]
            assert obstacle.name.replace(ANN, "…") in cause
            assert server.get(f"{ERASURES}/{pending['id']}", key=admin).json()["delay"] == cause
            path = server.post({"viewer": "bob"}, path=ERASURES, key=limited).headers["location"]
            assert obstacle.name not in server.get(path, key=limited).json()["delay"]
            assert process.stderr is not None
            lines = [process.stderr.readline() for _ in range(2)]
            assert lines[1] == f"Delayed: {cause}\n"
            obstacle.rmdir()
            printed, remaining = process.communicate(timeout=60)
        certificate = json.loads(printed)
        assert (certificate["status"], "delay" in certificate) == ("finished", False)
        assert remaining.startswith("Warning: nothing names this viewer.")
        wait_until(lambda: server.get("/readyz").json()["delays"] == [], description="no erasure is delayed")


def test_a_server_with_digests_but_without_their_salt_does_not_start(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data").path
    with running_server(data) as server:
        erase(server)
    (data / "erasures" / "salt").unlink()
    result = run("erase", "--viewer", "bob", "--data", str(data))
    assert result.returncode == 1
    assert "salt: is missing or damaged" in result.stderr
