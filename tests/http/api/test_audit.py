"""The audit trail of a real server and its commands: each action leaves one entry, and only admins read the entries."""

import contextlib
import fcntl
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from embedsink.audit.entry import Action
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import Key, KeyKind
from tests.http.pages.test_provider_login import server_with
from tests.support.disks import mounted
from tests.support.envelopes import view
from tests.support.login_provider import log_in_at_provider, running_provider
from tests.support.servers import RunningServer, fetch, running_server, wait_until

pytestmark = pytest.mark.server

AUDIT = "/api/v1/audit"
USER = "cli:" + subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def command(*words: object, data: Path, code: int = 0, warning: str = "") -> str:
    """Run a command on a data folder, and return its stdout. Its stderr must contain the warning."""
    result = subprocess.run(
        [sys.executable, "-m", "embedsink", *map(str, words), "--data", str(data)],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("EMBEDSINK_")},
        timeout=60,
    )
    assert result.returncode == code, result.stderr
    assert warning in result.stderr
    return str(result.stdout)


def keys_in(data: Path) -> list[Key]:
    return KeyStore(data / "keys.json").keys()


def in_folder(data: Path, **fields: Any) -> list[dict[str, Any]]:
    """Return the entries in the files that have these fields, the oldest first."""
    lines = [line for path in sorted(data.glob("audit/*.ndjson")) for line in path.read_bytes().splitlines()]
    entries = [json.loads(line) for line in lines]
    return [entry for entry in entries if fields.items() <= entry.items()]


def is_verified(data: Path) -> bool:
    """Return whether `embedsink doctor` accepts the chain."""
    process = subprocess.run(
        [sys.executable, "-m", "embedsink", "doctor", "--data", str(data)], capture_output=True, text=True
    )
    [line] = [line for line in process.stdout.splitlines() if line.strip().startswith("audit")]
    return line.split()[1] == "ok"


class Site:
    """A server with keys."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.admin, self.read = server.key("admin", label="Ops"), server.key("read")
        self.ids = {key.kind: key.key_id for key in keys_in(server.data)}

    def entries(self, query: str = "", *, key: str = "") -> list[dict[str, Any]]:
        """Return the entries of the API, the newest first."""
        response = self.server.get(f"{AUDIT}?limit=1000{query}", key=key or self.admin)
        assert response.status == 200, response.body
        entries: list[dict[str, Any]] = response.json()["entries"]
        return entries

    def newest_number(self) -> int:
        return int(self.entries()[0]["number"])

    def log_in(self, key: str, **headers: str) -> httpx2.Response:
        return httpx2.post(f"{self.server.url}/login", data={"key": key}, headers=headers)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_server(tmp_path_factory.mktemp("audit") / "data", EMBEDSINK_DEPTH_MAX="20") as server:
        yield Site(server)
    assert is_verified(server.data)


EXPORTS = {
    "/api/v1/reports/views.csv?since=7d": "views.csv",
    "/api/v1/reports/views.parquet": "views.parquet",
    "/api/v1/reports/views.arrow": "views.arrow",
    "/api/v1/events.csv": "events.csv",
    "/api/v1/events.ndjson": "events.ndjson",
    "/api/v1/events.parquet": "events.parquet",
    "/api/v1/summary.zip": "summary.zip",
    "/api/v1/quarantine": "quarantine",
    "/api/v1/analytics.duckdb": "analytics.duckdb",
    f"{AUDIT}.csv": "audit.csv",
    f"{AUDIT}.ndjson": "audit.ndjson",
}
NO_EXPORTS = (
    "/api/v1/reports/views",
    "/api/v1/reports/views.json",
    "/api/v1/reports",
    "/api/v1/dashboards/overview/sections/use",
    "/api/v1/inspect?since=1h&wait=0",
    "/api/v1/deployments",
    "/api/v1/reports/views.csv?columns=unknown",
    "/dashboards/",
    AUDIT,
)


def test_each_export_leaves_one_entry_and_other_reads_leave_none(site: Site) -> None:
    wait_until(
        lambda: site.server.get("/api/v1/analytics.duckdb", key=site.read).status == 200, description="a snapshot"
    )
    before = site.newest_number()
    key = site.server.key("admin", label="exports")
    [key_id] = [key.key_id for key in keys_in(site.server.data) if key.label == "exports"]
    for path in (*NO_EXPORTS, *EXPORTS):
        assert site.server.get(path, key=key).status in (200, 400), path
    assert httpx2.head(f"{site.server.url}/api/v1/events.csv", headers={"Authorization": f"Bearer {key}"}).is_success
    entries = [entry for entry in reversed(site.entries(f"&actor={key_id}")) if entry["number"] > before]
    assert [entry["target"] for entry in entries] == list(EXPORTS.values())
    assert {(entry["action"], entry["via"], entry["outcome"], entry["count"]) for entry in entries} == {
        ("export", "api", "done", 1)
    }
    assert {(entry["actorLabel"], entry["clientAddress"]) for entry in entries} == {("exports", "127.0.0.1")}
    assert entries[0]["detail"]["parameters"] == {"since": "7d"}
    assert all("bytes" in entry["detail"] for entry in entries)


def test_logins_name_their_key_and_failures_their_cause(site: Site) -> None:
    before = site.newest_number()
    ingest = site.server.key("ingest")
    response = site.log_in(site.read)
    assert site.log_in("es_read_wrong").status_code == site.log_in(ingest).status_code == 401
    cookie = {"Cookie": response.headers["set-cookie"].partition(";")[0]}
    assert httpx2.get(f"{site.server.url}/api/v1/reports/errors.csv", headers=cookie).status_code == 200
    for _ in range(2):  # The second one has no session.
        httpx2.post(f"{site.server.url}/logout", headers=cookie)
    actions = [
        (entry["action"], entry["actor"], entry["via"], entry["outcome"], entry["detail"].get("cause"))
        for entry in reversed(site.entries())
        if entry["number"] > before and entry["action"] != "key_created"
    ]
    [ingest_id] = [key.key_id for key in keys_in(site.server.data) if key.kind == "ingest"]
    assert actions == [
        ("login", site.ids[KeyKind.READ], "page", "done", None),
        ("login_failed", "anonymous", "page", "refused", "unknown, expired or revoked key"),
        ("login_failed", ingest_id, "page", "refused", "ingest key"),
        ("export", site.ids[KeyKind.READ], "page", "done", None),
        ("logout", site.ids[KeyKind.READ], "page", "done", None),
    ]
    assert "es_read_wrong" not in str(site.entries())


def test_purges_and_replays_leave_one_entry(site: Site) -> None:
    before = site.newest_number()
    headers = {"Authorization": f"Bearer {site.admin}"}
    assert httpx2.post(f"{site.server.url}/api/v1/quarantine/replay", headers=headers).status_code == 200
    url = f"{site.server.url}/api/v1/quarantine"
    assert httpx2.delete(url, params={"before": "400d"}, headers=headers).status_code == 200
    assert httpx2.delete(url, params={"before": "nonsense"}, headers=headers).status_code == 400
    entries = [entry for entry in reversed(site.entries()) if entry["number"] > before]
    assert [(entry["action"], entry["actor"], entry["detail"]) for entry in entries] == [
        ("replay", site.ids[KeyKind.ADMIN], {}),
        ("purge", site.ids[KeyKind.ADMIN], {"before": "400d"}),
    ]


def test_changes_of_keys_are_recorded_once_with_their_author(site: Site) -> None:
    before = site.newest_number()
    data = site.server.data
    command("keys", "create", "--kind", "read", "--deployment", "12", "--label", "BI", data=data)
    key_id = keys_in(data)[-1].key_id
    command("keys", "revoke", key_id, data=data)
    command("keys", "revoke", key_id, data=data)  # changes nothing

    def is_recorded(action: str, *, of: str | None = None) -> bool:
        entries = site.entries(f"&action={action}")
        return any(one["number"] > before and one["target"] != of for one in entries)

    other = site.server.key("read", label="edited")
    # The server compares the file with what is recorded: an earlier edit would be recorded as a part of the creation.
    wait_until(lambda: is_recorded("key_created", of=key_id), description="the creation is recorded")
    document = json.loads((data / "keys.json").read_text())
    del document["checksum"]
    entry = next(entry for entry in document["keys"] if entry["label"] == "edited")
    entry["deployments"] = [7]
    (data / "keys.json").write_text(json.dumps(document))

    def is_edited() -> bool:
        try:
            return site.server.get("/api/v1/reports/views?deployment=8", key=other).status == 403
        except ConnectionError:
            return False  # The edit ends responses with the previous scope.

    wait_until(is_edited, description="edited")
    wait_until(lambda: is_recorded("key_changed"), description="the edit is recorded")
    document["keys"].remove(entry)
    (data / "keys.json").write_text(json.dumps(document))
    wait_until(lambda: is_recorded("key_removed"), description="the removal is recorded")
    time.sleep(0.2)  # Nothing is recorded twice.
    entries = [entry for entry in reversed(site.entries()) if entry["number"] > before]
    assert [(entry["action"], entry["target"], entry["actor"], entry["via"]) for entry in entries] == [
        ("key_created", key_id, USER, "cli"),
        ("key_revoked", key_id, USER, "cli"),
        ("key_created", entry["key_id"], "unknown", "server"),
        ("key_changed", entry["key_id"], "unknown", "server"),
        ("key_removed", entry["key_id"], "unknown", "server"),
    ]
    assert entries[0]["detail"] | {"created_at": "", "token": ""} == {
        "kinds": ["read"],
        "label": "BI",
        "deployments": [12],
        "tenants": None,
        "names": False,
        "origins": None,
        "created_at": "",
        "expires_at": None,
        "revoked_at": None,
        "token": "",
    }
    assert entries[3]["detail"] == {"deployments": {"old": None, "new": [7]}}


def test_only_admins_without_a_scope_read_the_entries(site: Site) -> None:
    keys = {
        "read": site.read,
        "sync": site.server.key("sync"),
        "ingest": site.server.key("ingest"),
        "limited": site.server.key("admin", deployments=[1]),
        "tenant": site.server.key("admin", tenants=["acme"]),
    }
    for name, key in keys.items():
        reason = "wrong_kind" if name in ("read", "sync", "ingest") else "out_of_scope"
        for path in (AUDIT, f"{AUDIT}.csv", f"{AUDIT}.ndjson"):
            response = site.server.get(path, key=key)
            assert (response.status, response.json()["reason"]) == (403, reason)
    assert site.server.get(AUDIT).status == 401
    link = "/dashboards/audit"
    pages = {name: _pages_of(site, keys[name]) for name in ("read", "limited", "tenant")}
    assert {name: statuses for name, (statuses, _) in pages.items()} == dict.fromkeys(pages, (200, 403))
    assert not any(link in text for _, text in pages.values())
    statuses, text = _pages_of(site, site.admin)
    assert statuses == (200, 200)
    assert link in text
    assert httpx2.get(f"{site.server.url}{link}").headers["location"] == "/login?next=%2Fdashboards%2Faudit"


def _pages_of(site: Site, key: str) -> tuple[tuple[int, int], str]:
    """Log in. Return the statuses of the list of dashboards and of the audit page, and the text of the list."""
    cookie = {"Cookie": site.log_in(key).headers["set-cookie"].partition(";")[0], "Accept": "text/html"}
    dashboards = httpx2.get(f"{site.server.url}/dashboards/", headers=cookie)
    audit = httpx2.get(f"{site.server.url}/dashboards/audit", headers=cookie)
    return (dashboards.status_code, audit.status_code), dashboards.text


def test_pages_and_filters_select_entries(site: Site) -> None:
    for index in range(3):
        site.log_in(f"es_read_{index}", **{"X-Number": str(index)})
    everything = site.entries()
    paged: list[dict[str, Any]] = []
    path: str | None = f"{AUDIT}?limit=4"
    while path:
        page = site.server.get(path, key=site.admin).json()
        paged += page["entries"]
        assert len(page["entries"]) == 4 or page["nextCursor"] is None
        path = f"{AUDIT}?limit=4&cursor={page['nextCursor']}" if page["nextCursor"] else None
    assert paged == everything
    assert [entry["number"] for entry in everything] == list(range(len(everything), 0, -1))
    assert {entry["action"] for entry in site.entries("&action=login_failed")} == {"login_failed"}
    assert {entry["actor"] for entry in site.entries("&actor=Ops")} <= {site.ids[KeyKind.ADMIN]}
    assert site.entries("&until=1d") == []
    assert len(site.entries("&since=1h")) >= len(everything)
    for query in ("action=unknown", "since=x", "cursor=1", "limit=0", "actor=a&actor=b", "unknown=1"):
        assert site.server.get(f"{AUDIT}?{query}", key=site.admin).status == 400, query
    assert site.server.get(f"{AUDIT}.xml", key=site.admin).status == 404
    lines = site.server.get(f"{AUDIT}.csv?action=settings_changed", key=site.admin).body.decode().splitlines()
    assert lines[0] == (
        "number,recorded_at,action,actor,actor_label,via,client_address,target,outcome,action_count,detail"
    )
    assert any("EMBEDSINK_DEPTH_MAX" in line and '""new"":20' in line for line in lines)
    rows = [json.loads(line) for line in site.server.get(f"{AUDIT}.ndjson", key=site.admin).body.splitlines()]
    assert [row["number"] for row in rows] == sorted(row["number"] for row in rows)


def test_the_server_and_commands_extend_one_chain(site: Site) -> None:
    before = site.newest_number()
    keys = [site.server.key("read", label=f"parallel {index}") for index in range(4)]

    def export(key: str) -> None:
        for hours in range(1, 11):
            assert site.server.get(f"/api/v1/reports/views.csv?since={hours}h", key=key).status == 200

    threads = [threading.Thread(target=export, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for _ in range(3):
        command("keys", "create", "--kind", "read", data=site.server.data)
    for thread in threads:
        thread.join()
    entries = [entry for entry in site.entries() if entry["number"] > before]
    assert sum(entry["action"] == "export" for entry in entries) == 40
    assert sum((entry["action"], entry["actor"]) == ("key_created", USER) for entry in entries) == 3
    assert is_verified(site.server.data)


def test_commands_on_a_folder_are_recorded_and_a_backup_has_the_trail(tmp_path: Path) -> None:
    data, backup, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    (tmp_path / "events.ndjson").write_text(json.dumps(view()) + "\n" + json.dumps(view({"path": 1})) + "\n")
    command("import", tmp_path / "events.ndjson", data=data, code=1)
    command("quarantine", "replay", data=data)
    command("quarantine", "purge", "--reason", "bad_field", data=data)
    command("export", "-o", tmp_path / "out.csv", data=data)
    command("backup", backup, data=data)
    command("backup", data / "inside", data=data, code=1)
    expected = [
        ("import", "events.ndjson", "done", {}),
        ("replay", "quarantine", "done", {}),
        ("purge", "quarantine", "done", {"reason": "bad_field"}),
        ("export", "events.csv", "done", {}),
        ("backup", str(backup), "done", {}),
    ]
    entries = in_folder(data)
    assert {(entry["actor"], entry["via"]) for entry in entries} == {(USER, "cli")}
    found = [(entry["action"], entry["target"], entry["outcome"], entry["detail"]) for entry in entries]
    assert found[:5] == expected
    assert [entry[:3] for entry in found[5:]] == [
        ("backup", str(data / "inside"), "done"),
        ("backup", str(data / "inside"), "failed"),
    ]
    command("restore", backup, data=restored)
    restored_entries = in_folder(restored)
    assert restored_entries[:5] == entries[:5]
    assert [(entry["action"], entry["target"]) for entry in restored_entries[5:]] == [("restore", str(backup))]
    assert is_verified(restored)
    table = command("audit", "--limit", "3", data=restored)
    assert re.findall(r" (restore|backup|export|purge) ", table) == ["restore", "backup", "export"]
    rows = json.loads(command("audit", "--format", "json", "--action", "purge", data=restored))
    assert [row["detail"] for row in rows] == [{"reason": "bad_field"}]
    assert len(command("audit", "--format", "csv", "--actor", USER, data=restored).splitlines()) == 7
    command("audit", "--format", "csv", "-o", tmp_path / "audit.csv", data=restored)
    assert (tmp_path / "audit.csv").read_text().count("\n") == 7
    assert command("audit", "--action", "nonsense", data=restored, code=2) == ""


def test_commands_without_a_trail_change_nothing_but_can_save_the_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "events.ndjson").write_text(json.dumps(view()) + "\n")
    command("import", tmp_path / "events.ndjson", data=data)
    (data / "audit").rename(tmp_path / "moved")
    (data / "audit").write_text("not a folder")
    command("export", "-o", tmp_path / "out.csv", data=data, warning="this is not recorded in the audit trail")
    command("backup", tmp_path / "backup", data=data, warning="this is not recorded in the audit trail")
    command("keys", "create", "--kind", "read", data=data, code=1)
    command("quarantine", "purge", data=data, code=1)
    command("quarantine", "replay", data=data, code=1)
    command("import", tmp_path / "events.ndjson", data=data, code=1)
    assert not (data / "keys.json").exists()


def test_a_removed_file_of_keys_is_recorded_also_without_a_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command("keys", "create", "--kind", "read", data=data)
    (data / "keys.json").unlink()
    with running_server(data):
        wait_until(lambda: len(in_folder(data, action="key_removed")) == 1, description="the removal is recorded")


def test_settings_and_roles_are_compared_with_those_of_the_last_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_provider() as provider:
        with server_with(tmp_path, provider) as server:
            wait_until(lambda: bool(in_folder(data, target="version")), description="the settings are recorded")
            with httpx2.Client() as browser:
                assert log_in_at_provider(browser, server.url, "root").status_code == 303
                log_in_at_provider(browser, server.url, "guest")
                links = browser.get(f"{server.url}/dashboards/").text
                assert "/dashboards/audit" in links
                assert browser.get(f"{server.url}/dashboards/audit").status_code == 200
        first = in_folder(data, action="settings_changed")
        assert {entry["target"]: entry["detail"]["new"] for entry in first}["EMBEDSINK_LOGIN_CLIENT_SECRET"] == "set"
        assert any(entry["target"] == "identity.toml: login.admins" for entry in first)
        [login] = in_folder(data, action="login")
        assert (login["via"], login["actor"][:2], login["actor_label"]) == ("provider", "p_", "root@example.com")
        [failed] = in_folder(data, action="login_failed")
        assert (failed["actor"], failed["via"]) == ("anonymous", "provider")
        assert "guest@example.com has no group" in failed["detail"]["cause"]
        identity = (data / "identity.toml").read_text()
        (data / "identity.toml").write_text(identity.replace("readers = [", 'readers = ["interns", '))
        with running_server(data, EMBEDSINK_LOGIN_CLIENT_SECRET="another", EMBEDSINK_AUDIT_DAYS="30"):
            wait_until(
                lambda: len(in_folder(data, action="settings_changed")) > len(first), description="recorded again"
            )
    changes = {entry["target"]: entry["detail"] for entry in in_folder(data, action="settings_changed")[len(first) :]}
    assert changes["EMBEDSINK_AUDIT_DAYS"] == {"old": 400, "new": 30}
    assert changes["identity.toml: login.readers"]["new"][0] == "interns"
    assert "secret" not in str(changes)
    assert changes.keys() == {"EMBEDSINK_AUDIT_DAYS", "identity.toml: login.readers"}


def test_keys_of_an_earlier_version_are_recorded_at_the_first_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    store = KeyStore(data / "keys.json")
    keys = [store.create(KeyKind.READ, now=time.time())[0].key_id for _ in range(3)]
    for _ in range(2):
        with running_server(data):
            wait_until(lambda: len(in_folder(data, action="key_created")) >= 3, description="the keys are recorded")
    assert [entry["target"] for entry in in_folder(data, action="key_created")] == keys


def test_the_server_deletes_old_days(tmp_path: Path) -> None:
    data = tmp_path / "data"
    patch = "import embedsink.retention_schedule; embedsink.retention_schedule.INTERVAL_S = 0.2"
    with running_server(data):
        wait_until(lambda: bool(in_folder(data, target="version")), description="the settings are recorded")
    [path] = data.glob("audit/*.ndjson")
    path.rename(path.with_name("2024-02-29.ndjson"))
    with running_server(data, injected=patch) as server:
        server.key("read")  # The newest day is never deleted.
        wait_until(lambda: not list(data.glob("audit/2024-*.ndjson")), description="the old day is deleted")
    [entry] = in_folder(data, action="audit_expired")
    assert (entry["actor"], entry["count"]) == ("server", 1)
    assert is_verified(data)


def test_a_killed_server_keeps_every_recorded_export(tmp_path: Path) -> None:
    data = tmp_path / "data"
    answered = 0
    for round_ in range(3):
        with running_server(data, checks_store=False) as server:
            key = server.key("read")
            began = time.monotonic()
            for hours in range(1, 20):
                answered += server.get(f"/api/v1/reports/views.csv?since={hours}h", key=key).status == 200
                if time.monotonic() - began > 0.3 * round_:
                    break
            server.kill()
    exports = in_folder(data, action="export")
    assert len(exports) >= answered > 0
    assert is_verified(data)


def test_on_a_full_disk_what_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path / "audit-disk", mebibytes=1) as disk:
        data = tmp_path / "data"
        data.mkdir()
        (data / "audit").symlink_to(disk, target_is_directory=True)
        with running_server(data) as server:
            read, admin, ingest = server.key("read"), server.key("admin"), server.key("ingest")
            # The server writes this file last. It replaces an older one, which frees a block.
            recorded = data / "audit/recorded-keys.json"
            wait_until(
                lambda: recorded.exists() and len(json.loads(recorded.read_text())) == 3,
                description="the keys are recorded",
            )
            with (disk / "filler").open("wb", buffering=0) as filler:
                for size in (4_096, 1):
                    with contextlib.suppress(OSError):  # The disk is full.
                        while filler.write(bytes(size)):
                            pass
            newest = max(path for path in disk.glob("*.ndjson"))
            padding = -newest.stat().st_size % 4_096  # The last block has this space.
            while padding > 300:
                assert fetch(f"{server.url}/api/v1/reports/views.csv?since={padding}h", key=read).status == 200
                padding = -newest.stat().st_size % 4_096
            responses = [server.get(path, key=admin) for path in EXPORTS]
            headers = {"Authorization": f"Bearer {admin}"}
            responses += [
                server.post(b"", path="/api/v1/quarantine/replay", key=admin),
                server.post(
                    f"key={read}".encode(), path="/login", **{"Content-Type": "application/x-www-form-urlencoded"}
                ),
            ]
            reasons = [response.json()["reason"] for response in responses if response.status == 503]
            assert len(reasons) >= len(responses) - 1
            assert set(reasons) == {"storage_low"}
            assert httpx2.delete(f"{server.url}/api/v1/quarantine", headers=headers).status_code == 503
            count = len(keys_in(data))
            command("keys", "create", "--kind", "read", data=data, code=1)
            assert len(keys_in(data)) == count
            assert server.get("/api/v1/reports/views", key=read).status == 200
            assert server.get("/readyz").status == 200
            assert server.post(view(), key=ingest).status == 202
            (disk / "filler").unlink()
            assert server.get("/api/v1/events.csv", key=admin).status == 200
        assert is_verified(data)


def test_a_lock_that_hangs_delays_neither_events_nor_the_shutdown(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_SHUTDOWN_TIMEOUT_S="1") as server:
        read, ingest = server.key("read"), server.key("ingest")
        wait_until(lambda: len(in_folder(server.data, action="key_created")) == 2, description="the keys are recorded")
        with (server.data / "audit.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = threading.Thread(target=lambda: _try_export(server, read))
            waiting.start()
            assert server.post(view(), key=ingest).status == 202
            assert server.get("/api/v1/reports/views", key=read).status == 200
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < 15
        waiting.join()


def _try_export(server: RunningServer, key: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        assert server.get("/api/v1/reports/views.csv", key=key).status != 200


def test_the_list_of_actions_is_closed_and_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", text.partition("## Actions")[2].partition("\n## ")[0], re.MULTILINE)
    assert documented == [str(action) for action in Action]
