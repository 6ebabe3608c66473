"""Results of dbt syncs across kills and restarts: a result that was answered with 200 is stored and unchanged."""

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.client.http_client import HttpClient
from embedsink.errors import EmbedsinkError, Refused
from embedsink.ingest.records import read_syncs, sync_line
from embedsink.journal.segment import trailer
from embedsink.key_scope import EVERYTHING
from embedsink.protocol.dbt_sync import CUBE_COUNT_FIELD, Sync, digest_of
from embedsink.reasons import Reason
from embedsink.store.sql_files import read_sql
from tests.support.app import Server, open_server, problem
from tests.support.crash_harness import Server as Process
from tests.support.servers import running_server, wait_until

NEVER_S = "3600"
# Disable loading, so that results can only come from the journal.
NO_LOADING = """
from embedsink.loader.loader import Loader
assert hasattr(Loader, "load_pending")
Loader.load_pending = lambda self: iter(())
"""


def result(job: str = "job1", **fields: Any) -> dict[str, Any]:
    return {
        "syncJobId": job,
        "generatedFiles": [{"path": "cubes/orders.yml"}],
        "manifestStats": {"models": 3, "sources": 2, "macros": 1},
        "svcCount": 4,
        "completedAt": "2026-11-02T10:00:00Z",
        "durationMs": 5_000,
    } | fields


class Client:
    """A client with an admin key for the servers on one data folder."""

    def __init__(self, data: Path) -> None:
        data.mkdir(exist_ok=True)
        self.data = data
        _, self.key = KeyStore(data / "keys.json").create(KeyKind.ADMIN, now=time.time())

    def put(self, server: Process, body: dict[str, Any]) -> dict[str, Any]:
        http = HttpClient(f"http://127.0.0.1:{server.port}", self.key)
        answer: dict[str, Any] = json.loads(http.put(*_path(body["syncJobId"]), body=json.dumps(body).encode()))
        return answer

    def get(self, server: Process, job: str) -> dict[str, Any]:
        http = HttpClient(f"http://127.0.0.1:{server.port}", self.key)
        answer: dict[str, Any] = json.loads(http.get(*_path(job)))
        return answer

    @contextlib.contextmanager
    def serving(self, *, injected: str = "", **env: str) -> Iterator[Process]:
        server = Process(self.data, injected=injected, trace_command=(), **env)
        try:
            server.wait_until_ready()
            yield server
        finally:
            server.kill()


def _path(job: str) -> tuple[str, ...]:
    return ("deployments", "1", "dbt-sync", job, "result")


def refused(reason: Reason) -> Any:
    return pytest.raises(Refused, check=lambda error: error.reason is reason)


@pytest.mark.server
def test_a_result_survives_kills_before_it_is_loaded_and_conflicts_with_another(tmp_path: Path) -> None:
    client = Client(tmp_path / "data")
    with client.serving(EMBEDSINK_SEGMENT_SEAL_S=NEVER_S) as server:
        assert client.put(server, result()) == result()
        server.kill()
    for injected in (NO_LOADING, NO_LOADING, ""):  # Kill the server twice before it loads anything.
        with client.serving(injected=injected, EMBEDSINK_SEGMENT_SEAL_S=NEVER_S) as server:
            assert client.get(server, "job1") == result()
            assert client.put(server, result()) == result()
            with refused(Reason.CONFLICT):
                client.put(server, result(durationMs=1))
            server.kill()
        if injected:
            assert loaded(tmp_path / "data") == []
    with client.serving() as server:
        assert client.get(server, "job1") == result()
        assert server.stop() == 0
    assert loaded(tmp_path / "data") == [("job1", 5_000)]


def loaded(data: Path) -> list[Any]:
    """Return the results in the store of a stopped server."""
    with contextlib.closing(duckdb.connect(str(data / "store.duckdb"), read_only=True)) as store:
        return store.execute("select sync_job_id, duration_ms from sync").fetchall()


@pytest.mark.slow
@pytest.mark.server
def test_kills_at_random_moments_lose_and_change_no_result(tmp_path: Path) -> None:
    client, rng = Client(tmp_path / "data"), random.Random(7)
    answered: dict[str, dict[str, Any]] = {}
    jobs = [f"job{number}" for number in range(60)]

    def send(server: Process, stopping: threading.Event) -> None:
        sender_rng = random.Random(rng.random())
        while not stopping.is_set():
            body = result(sender_rng.choice(jobs), durationMs=sender_rng.randint(0, 2))
            try:
                assert client.put(server, body) == body
            except Refused as refusal:
                if refusal.reason is not Reason.CONFLICT:
                    raise
            except EmbedsinkError:
                stopping.set()  # the server was killed
            else:
                assert answered.setdefault(body["syncJobId"], body) == body

    for _ in range(8):
        with client.serving(EMBEDSINK_SEGMENT_SEAL_S="0.05", EMBEDSINK_SNAPSHOT_INTERVAL_S="0.1") as server:
            for job, body in answered.items():
                assert client.get(server, job) == body
            stopping = threading.Event()
            threads = [threading.Thread(target=send, args=(server, stopping)) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(rng.uniform(0.05, 0.5))
            server.kill()
            for thread in threads:
                thread.join()
    with client.serving() as server:
        for job, body in answered.items():
            assert client.get(server, job) == body
        assert server.stop() == 0
    assert len(answered) > 10
    assert_stored(tmp_path / "data" / "store.duckdb", {job: body["durationMs"] for job, body in answered.items()})


def assert_stored(store_path: Path, durations_ms: dict[str, int]) -> None:
    """Assert that the store passes all checks, and has the duration of each job."""
    with contextlib.closing(duckdb.connect(str(store_path), read_only=True)) as store:
        stored = dict(store.execute("select sync_job_id, duration_ms from sync").fetchall())
        failed_checks = {check for check, sql in read_sql("checks").items() if store.execute(sql).fetchall()}
    assert durations_ms.items() <= stored.items()
    assert not failed_checks


@pytest.mark.server
def test_a_result_is_in_the_report_and_in_the_snapshot(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_SNAPSHOT_INTERVAL_S="0.1") as server:
        HttpClient(server.url, server.key("sync")).put(*_path("job1"), body=json.dumps(result()).encode())
        reader = server.key("read")
        path = "/api/v1/reports/sync_impact"
        wait_until(lambda: bool(server.get(path, key=reader).json()), description="it is in the report")
        assert server.get(path, key=reader).json()[0]["completed_at"] == "2026-11-02T10:00:00Z"
        assert server.stop() == 0
    with contextlib.closing(duckdb.connect(str(tmp_path / "data" / "analytics.duckdb"), read_only=True)) as copied:
        assert copied.execute("select sync_job_id from sync_impact").fetchall() == [("job1",)]


def record(server: Server, body: dict[str, Any]) -> Any:
    return server.request("PUT", "/api/v1/" + "/".join(_path(body["syncJobId"])), key=server.key("sync"), json=body)


def test_results_are_found_after_the_store_was_replaced(tmp_path: Path) -> None:
    """The results come from the newest segments, which the snapshot that the store was restored from lacks."""
    with open_server(tmp_path, segment_seal_s=0.01, snapshot_interval_s=3_600) as server:
        for job in ("job1", "job2"):
            assert record(server, result(job)).status_code == 200

        def is_loaded() -> bool:
            server.get("/healthz")
            return not server.engine.syncs._unloaded

        wait_until(is_loaded, description="it is loaded")
        with server.engine.store.reader(
            EVERYTHING.variables()
        ) as reader:  # The loader may be using its own connection.
            reader._execute("delete from sync; delete from sync_file")
        server.engine.store.opened_count += 1
        for job in ("job1", "job2"):
            read = server.get("/api/v1/" + "/".join(_path(job)), key=server.key("read"))
            assert read.json() == result(job)
            assert problem(record(server, result(job, durationMs=1))) == "conflict"


@pytest.mark.parametrize("damage", ["a wrong checksum", "a missing group"])
def test_results_in_a_damaged_segment_are_not_found(tmp_path: Path, damage: str) -> None:
    (tmp_path / "journal").mkdir()
    body = result()
    body[CUBE_COUNT_FIELD] = body.pop("svcCount")
    lines = sync_line(Sync(1, "job1", 0, 0, digest_of(body), body), key_id="k_1")
    group = lines + trailer(lines)
    if damage == "a missing group":
        # The size in the name is that of both groups.
        (tmp_path / "journal" / f"000000000001-00000000-{2 * len(group):012d}.ndjson").write_bytes(group)
    else:
        (tmp_path / "journal" / "000000000001-00000000.ndjson").write_bytes(lines + trailer(lines + b" "))
    with open_server(tmp_path) as server:
        # The loader moves the segment to damaged/, so the result would be missing after a restart.
        assert problem(server.get("/api/v1/" + "/".join(_path("job1")), key=server.key("read"))) == "not_found"


def test_encoded_syncs_are_decoded_unchanged() -> None:
    body = result("ä \u2028 \x01")
    syncs = [
        Sync(number, body["syncJobId"], 1, 2, digest_of(body), body, extra)
        for number, extra in enumerate([None, {"x": [1.5, None]}])
    ]
    event = b'{"kind":"event","extra":{"kind":"sync","result":{}}}\n'
    lines = event + b"".join(sync_line(sync, key_id="k_1") for sync in syncs)
    assert list(read_syncs(lines + trailer(lines) + event)) == syncs
    assert list(read_syncs(event)) == []


def test_a_digest_depends_on_the_content_and_not_on_its_form() -> None:
    assert digest_of({"a": 1, "b": {"c": 2, "d": [1, 2]}}) == digest_of({"b": {"d": [1, 2], "c": 2}, "a": 1})
    assert digest_of({"a": [1, 2]}) != digest_of({"a": [2, 1]})
    assert digest_of({"a": 1}) != digest_of({"a": "1"})
