"""A harness that kills a real server at random moments under load, and compares its store with its responses.

The senders record each id as answered (202), unknown (no complete response) or refused. The server promises:

    answered ⊆ stored ⊆ answered ∪ unknown, each id once, and the ledger adds up
"""

import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.store.sql_files import read_sql
from tests.support.forked_program import start_program
from tests.support.servers import free_port, wait_until

SENDER_COUNT = 6
TEST_SETTINGS = {
    "EMBEDSINK_SEGMENT_SEAL_S": "0.1",
    "EMBEDSINK_SNAPSHOT_INTERVAL_S": "0.3",
    "EMBEDSINK_SEGMENT_BYTES_MAX": "65536",
}


class Server:
    """A server process. `injected` is Python code that runs before the command and breaks a promise."""

    def __init__(self, data: Path, *, injected: str = "", trace_command: tuple[str, ...] = (), **env: str) -> None:
        data.mkdir(exist_ok=True)
        self.port = free_port()
        self.log = data.with_suffix(".log")
        words = ["serve", "--data", str(data), "--port", str(self.port)]
        environment = os.environ | TEST_SETTINGS | env
        self.process = start_program(
            words, log=self.log, environment=environment, wrapper=trace_command, injected=injected
        )

    def wait_until_ready(self) -> None:
        """Wait until the server responds, and check that it has not ended."""
        wait_until(self._is_responding, description="the server answers", timeout_s=30)

    def _is_responding(self) -> bool:
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4_000:]
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == 200
            except OSError:
                return False

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM. Return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


class DeliveryLog:
    """A record of each id's status at the senders. An answered id stays answered."""

    def __init__(self) -> None:
        self.sent: dict[str, dict[str, Any]] = {}
        self.answered: set[str] = set()
        self.unknown: set[str] = set()
        self._lock = threading.Lock()

    def delivery(self, rng: random.Random) -> list[dict[str, Any]]:
        """Return one to five new envelopes, and sometimes an earlier one."""
        new = [_envelope(rng.random()) for _ in range(rng.randint(1, 5))]
        with self._lock:
            resent = [self.sent[name] for name in rng.sample(sorted(self.unknown)[-50:], 1)] if self.unknown else []
            self.sent |= {envelope["id"]: envelope for envelope in new}
        return new + resent * rng.randint(0, 1)

    def record(self, envelopes: list[dict[str, Any]], status: int | None) -> None:
        """Record the status of a response; None without a response."""
        ids = {envelope["id"] for envelope in envelopes}
        with self._lock:
            if status == 202:
                self.answered |= ids
            elif status is None:
                self.unknown |= ids


def _envelope(size: float) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "source": "svc-embed",
        "direction": "event",
        "type": "svc:event:view",
        "payload": {"surface": "dashboard", "path": "/" + "x" * int(1_000 * size**4)},
        "timestamp": time.time_ns() // 1_000_000,
        "surface": "dashboard",
    }


@contextlib.contextmanager
def senders(port: int, token: str, log: DeliveryLog, *, count: int = SENDER_COUNT) -> Iterator[threading.Event]:
    """Send on many connections until the block or the server ends."""
    stopping = threading.Event()
    threads = [threading.Thread(target=_send, args=(port, token, log, stopping)) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield stopping
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _send(port: int, token: str, log: DeliveryLog, stopping: threading.Event) -> None:
    rng = random.Random()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        while not stopping.is_set():
            envelopes = log.delivery(rng)
            status = None
            try:
                body = json.dumps({"events": envelopes})
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                connection.request("POST", "/api/v1/events", body, headers)
                response = connection.getresponse()
                response.read()
                status = response.status
            except (OSError, http.client.HTTPException):
                stopping.set()
            log.record(envelopes, status)


class CrashHarness:
    """A data folder and the successive servers on it."""

    def __init__(self, data: Path, *, injected: str = "", seed: int = 1) -> None:
        data.mkdir()
        self.data = data
        self.log = DeliveryLog()
        self._injected = injected
        self._rng = random.Random(seed)
        _, self.token = KeyStore(data / "keys.json").create(KeyKind.INGEST, now=time.time())

    def run_and_kill(self) -> None:
        """Start a server, send events to it, and kill it at a random moment, sometimes during its recovery."""
        server = Server(self.data, injected=self._injected)
        try:
            if self._rng.random() < 0.25:
                time.sleep(self._rng.uniform(0.2, 1.2))
                return
            server.wait_until_ready()
            with senders(server.port, self.token, self.log):
                time.sleep(self._rng.uniform(0.02, 0.8))
                server.kill()
        finally:
            server.kill()

    def restart_and_check(self) -> list[str]:
        """Start and stop a server without load. Return the broken promises."""
        server = Server(self.data, injected=self._injected)
        try:
            server.wait_until_ready()
            code = server.stop()
        finally:
            server.kill()
        broken = [f"exit code: {code}"] * (code != 0) + broken_promises(self.data, self.log)
        return broken + ["traceback in the log"] * ("Traceback" in server.log.read_text(errors="replace"))


def broken_promises(data: Path, log: DeliveryLog) -> list[str]:
    """Compare the store of a stopped server with the senders' record."""
    with contextlib.closing(duckdb.connect(str(data / "store.duckdb"), read_only=True)) as store:
        stored = [str(row[0]) for row in store.execute("select event_id from event").fetchall()]
        offending = {name: len(store.execute(sql).fetchall()) for name, sql in read_sql("checks").items()}
    broken = {
        "answered with 202, but not stored": len(log.answered - set(stored)),
        "stored, but never sent or refused": len(set(stored) - log.answered - log.unknown),
        "stored more than once": len(stored) - len(set(stored)),
        **{f"check {name}": count for name, count in offending.items()},
        "damaged files": sum(path.suffix in (".ndjson", ".open") for path in (data / "damaged").iterdir()),
    }
    return [f"{promise}: {count}" for promise, count in broken.items() if count]
