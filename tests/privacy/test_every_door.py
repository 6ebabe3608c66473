"""Personal data through every door of a real server: none of it reaches the data folder, the log or the metrics."""

import gzip
import json
import subprocess
import sys
import urllib.request
from base64 import b64decode
from pathlib import Path
from typing import Any

import duckdb
import pytest

from embedsink.privacy.hashing import SecretFile, hash_text
from tests.support.envelopes import event_or_action, view
from tests.support.servers import RunningServer, fetch, running_server, wait_until
from tests.support.stores import make_folder

CANARY = "canary-7Qm"
NDJSON = {"Content-Type": "application/x-ndjson"}
CONTEXT = {
    "deployment": 1,
    "session": f"s-{CANARY}",
    "viewer": f"v-{CANARY}",
    "tenant": f"t-{CANARY}",
    "page": f"https://a.example/{CANARY}?q={CANARY}",
}
EVERY_TEXT = [
    view({"path": f"/p/{CANARY}?q={CANARY}", "title": CANARY, "extra": CANARY}, note=CANARY),
    event_or_action("event:navigate", {"path": CANARY, "previousPath": CANARY}),
    event_or_action("event:ready", {"embedTenant": CANARY, "mode": "signed", "surface": "app", "deploymentId": 1}),
    event_or_action("event:drilldown", {"member": "orders.total", "value": {"buyer": CANARY}}),
    event_or_action("event:x-filter", {"filters": {"buyer": [CANARY], "region": CANARY}, "path": CANARY}),
    event_or_action("event:x-feedback", {"chatId": CANARY, "text": CANARY}),
    event_or_action("event:ai-query", {"query": CANARY, "status": "submitted", "chatId": CANARY}),
    event_or_action("event:error", {"message": CANARY, "context": CANARY}),
    event_or_action("action:set-filter", {"filterUrlParameter": f'f_orders.buyer="{CANARY}"'}),
    event_or_action("action:set-theme", {"primaryColor": CANARY, CANARY: 1}),
]
REJECTED = [
    view({"path": CANARY, "surface": CANARY}),
    view({"title": CANARY, "path": {"a": CANARY}}),
    event_or_action("event:error", {"message": CANARY}) | {"type": "svc:event:later"},
    event_or_action("event:x-feedback", {"rating": CANARY, "text": CANARY}),
    event_or_action("event:x-filter", {"filters": CANARY}),
    event_or_action("event:x-filter", {"filters": {"buyer": CANARY}, "path": [CANARY]}),
    event_or_action("event:x-filter", {"filters": {CANARY * 30: 1}}),
    CANARY,
]
UNREADABLE = [
    f'{{"viewer": "{CANARY}"'.encode(),
    CANARY.encode("utf-16"),
    f'{{"a": "{CANARY}", "a": 1}}'.encode(),
    f"[{'[' * 50}{json.dumps(CANARY)}{']' * 50}]".encode(),
]
SYNC = {
    "syncJobId": "job1",
    "generatedFiles": [{"path": f"model/{CANARY}.yml", "author": CANARY}],
    "manifestStats": {"models": 1, "sources": 1, "macros": 0},
    "svcCount": 1,
    "completedAt": "2026-11-02T10:00:00Z",
    "durationMs": 1,
    "triggeredBy": CANARY,
}


def traces_in_files(data: Path) -> list[str]:
    """Return the files of a data folder, and its server's log, that contain the canary."""
    files = [path for path in [*data.rglob("*"), data.parent / f"{data.name}.log"] if path.is_file()]
    return [path.name for path in files if CANARY.lower().encode() in path.read_bytes().lower()]


def traces_in_tables(data: Path) -> list[str]:
    """Return the tables of the snapshot that contain the canary. DuckDB compresses texts, so its file is not enough."""
    with duckdb.connect(str(data / "analytics.duckdb"), read_only=True) as connection:
        tables = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
        return [
            name for name in tables if CANARY.lower() in str(connection.execute(f'from "{name}"').fetchall()).lower()
        ]


def count_in(data: Path, sql: str) -> Any:
    with duckdb.connect(str(data / "analytics.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchone()


def run(*words: str, **env: str) -> str:
    command = [sys.executable, "-m", "embedsink", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={**env, "PATH": ""})
    assert result.returncode in (0, 1), result.stderr
    return result.stdout


def send_through_every_door(server: RunningServer, imported: Path) -> None:
    ingest = server.key()
    headers = {"User-Agent": CANARY, "X-Forwarded-For": CANARY, "Referer": f"https://{CANARY}.example/"}
    delivery = {"context": CONTEXT, "events": EVERY_TEXT, "lost": {CANARY: 3}}
    large = {"context": CONTEXT, "events": EVERY_TEXT * 50}  # The worker process parses it.
    bad_vendor = {"context": {**CONTEXT, "vendor": CANARY}, "events": [view()]}
    bad_context = {"context": {**CONTEXT, "viewer": [CANARY], CANARY: 1}, "events": [view({"title": CANARY})]}
    lines = b"\n".join(json.dumps(one).encode() for one in (*EVERY_TEXT, *REJECTED)) + b'\n{"x": "' + CANARY.encode()
    for body, status, more in (
        (delivery, 202, {}),
        (large, 202, {}),
        (gzip.compress(json.dumps(large).encode()), 202, {"Content-Encoding": "gzip"}),
        ({"context": CONTEXT, "events": [*REJECTED, EVERY_TEXT[0]]}, 202, {}),
        ({"context": CONTEXT, "events": [*REJECTED, *REJECTED * 120]}, 422, {}),
        (bad_vendor, 422, {}),
        (bad_context, 422, {}),
        (lines, 202, NDJSON),
        *((body, 400, {}) for body in UNREADABLE),
    ):
        assert server.post(body, key=ingest, **headers, **more).status == status
    sync = urllib.request.Request(
        f"{server.url}/api/v1/deployments/1/dbt-sync/job1/result",
        data=json.dumps(SYNC).encode(),
        method="PUT",
        headers={"Authorization": f"Bearer {server.key('sync')}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(sync) as response:
        assert response.status == 200
    run("import", str(imported), "--url", server.url, EMBEDSINK_KEY=ingest)


@pytest.mark.parametrize("rotates", [False, True], ids=["one secret", "two secrets"])
def test_no_door_stores_what_the_rules_forbid(tmp_path: Path, *, rotates: bool) -> None:
    data = make_folder(tmp_path / "data").path
    (data / "privacy.toml").write_text('preset = "strict"\n')
    imported = tmp_path / "events.ndjson"
    imported.write_bytes(
        b"\n".join(json.dumps(one).encode() for one in (*EVERY_TEXT, *REJECTED, {"context": CONTEXT, "events": []}))
    )
    if rotates:
        SecretFile(data / "privacy_secrets.json").read_or_create()
        run("privacy", "rotate-secret", "--data", str(data))
    with running_server(data) as server:
        send_through_every_door(server, imported)
        admin = server.key("admin")
        assert fetch(f"{server.url}/api/v1/quarantine/replay", key=admin, body=b"").status == 200
        metrics = server.get("/metrics", key=admin)
        assert metrics.status == 200
        assert CANARY.lower() not in metrics.body.decode().lower()
        assert traces_in_files(data) == []  # the journal, before and after the load
    run("import", str(imported), "--data", str(data))
    run("snapshot", "--data", str(data))
    assert traces_in_files(data) == []
    assert traces_in_tables(data) == []
    with duckdb.connect(str(data / "analytics.duckdb"), read_only=True) as connection:
        encoded = connection.execute("select raw from quarantine where raw_encoding = 'base64'").fetchall()
    assert all(CANARY.encode("utf-16-le") not in b64decode(raw) for (raw,) in encoded)
    newest = SecretFile(data / "privacy_secrets.json").read()[0]
    viewers = count_in(data, "select distinct viewer from event where viewer is not null")
    assert viewers == (hash_text("viewer", f"v-{CANARY}", newest),)
    # Nothing was lost: the events and rejections are stored.
    assert count_in(data, "select count(*) > 400 from event")[0]
    assert count_in(data, "select count(*) > 200, max(whole_bytes) > 0 from quarantine") == (True, True)


def test_an_opt_out_leaves_no_person(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data").path
    (data / "privacy.toml").write_text('opt_out = "anonymize"\n')
    with running_server(data) as server:
        ingest = server.key()
        delivery = {"context": CONTEXT | {"tenant": "acme"}, "events": [view({"title": CANARY})]}
        large = delivery | {"events": [view({"title": CANARY}, note=CANARY)] * 200}
        assert server.post(delivery, key=ingest, **{"Sec-GPC": "1"}).status == 202
        assert server.post(large, key=ingest, **{"Sec-GPC": "1"}).status == 202
        assert server.post(delivery | {"optedOut": True}, key=ingest).status == 202
        assert server.post(delivery | {"optedOut": CANARY}, key=ingest).status == 422
        assert server.post(CANARY.encode(), key=ingest, **{"Sec-GPC": "1"}).status == 400
        other = {"context": {"viewer": "bob"}, "events": [view({"title": "Sales"})], "optedOut": False}
        assert server.post(other, key=ingest, **{"Sec-GPC": "0"}).status == 202
        server.stop()
    assert traces_in_files(data) == []
    assert traces_in_tables(data) == []
    assert count_in(
        data, "select count(*), count(tenant), max(viewer), count(viewer), max(title), count(title) from event"
    ) == (
        203,
        202,
        *("bob", 1),
        *("Sales", 1),
    )
    assert count_in(data, "select count(*) from quarantine") == (2,)


def test_a_tenant_is_read_in_clear_text_although_it_is_hashed(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data").path
    (data / "privacy.toml").write_text('[fields]\ntenant = "hash"\n')
    with running_server(data) as server:
        ingest = server.key()
        for tenant, count in (("acme", 2), ("other", 1)):
            delivery = {"context": {"deployment": 1, "tenant": tenant}, "events": [view()] * count}
            assert server.post(delivery, key=ingest).status == 202
        limited, reader = server.key("read", tenants=["acme"]), server.key("read")
        hashed = hash_text("tenant", "acme", SecretFile(data / "privacy_secrets.json").read()[0])

        def view_counts(key: str, query: str = "") -> Any:
            response = server.get(f"/api/v1/reports/views{query}", key=key)
            return [row["view_count"] for row in response.json()] if response.status == 200 else response.status

        wait_until(lambda: sum(view_counts(reader)) == 3, description="loaded")
        for query in ("", "?tenant=acme", f"?tenant={hashed}"):
            assert view_counts(limited, query) == [2]
        assert view_counts(reader, "?tenant=acme") == view_counts(reader, f"?tenant={hashed}") == [2]
        assert view_counts(limited, "?tenant=other") == 403
        assert view_counts(reader, "?tenant=none") == []
        stored = server.get("/api/v1/events.csv?columns=tenant", key=limited).body.decode()
        assert set(stored.split()) == {"tenant", hashed}
