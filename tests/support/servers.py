"""A real server in a process of its own, on a free port of this machine.

with running_server(tmp_path / "data") as server:
    server.post(body, key=server.key("ingest"))
    assert server.stop() == 0
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.demo.ports import free_ports
from embedsink.store.reader import EVERYTHING, open_snapshot
from embedsink.store.sql_files import read_sql
from tests.support.stores import make_folder

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
# A key counts at once and events are visible soon, so that tests don't wait.
QUICK = {"EMBEDSINK_KEYS_RELOAD_S": "0.05", "EMBEDSINK_SEGMENT_SEAL_S": "0.1"}
# Each worker of pytest-xdist goes round in ports of its own, of which the system hands out none by itself.
OWN_PORTS_MAX = 2_000
OWN_PORTS = 12_000 + OWN_PORTS_MAX * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = free_ports(OWN_PORTS, OWN_PORTS_MAX)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered: status, headers by lower-case name, and the bytes of the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class RunningServer:
    """A server that answered `/readyz`. `data` is its folder, `log` what it wrote on stdout and stderr."""

    data: Path
    url: str
    process: "subprocess.Popen[bytes]"
    log: Path
    environment: dict[str, str] = field(repr=False)

    @property
    def pid(self) -> int:
        """The process to signal."""
        return self.process.pid

    def key(self, kind: str = "ingest", **options: Any) -> str:
        """Create a key and wait until the server knows it. The options are those of `KeyStore.create`."""
        _, token = KeyStore(self.data / "keys.json").create(KeyKind(kind), now=time.time(), **options)
        https = {"X-Forwarded-Proto": "https"}  # for a server behind a proxy
        wait_until(
            lambda: self.get("/api/v1/reports", key=token, **https).status != 401, what=f"the {kind} key is known"
        )
        return token

    def get(self, path: str, *, key: str | None = None, **headers: str) -> Answer:
        """GET a path."""
        return fetch(self.url + path, key=key, headers=headers)

    def post(self, body: Any, *, path: str = "/api/v1/events", key: str | None = None, **headers: str) -> Answer:
        """POST bytes as they are, and anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return fetch(self.url + path, key=key, headers={"Content-Type": "application/json"} | headers, body=content)

    def stop(self) -> int:
        """End it with SIGTERM, once; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def running_server(
    data: Path, *, arguments: Sequence[str] = (), within: Sequence[str] = (), is_sound: bool = True, **env: str
) -> Iterator[RunningServer]:
    """Start `embedsink serve` on a data folder and wait until it is ready; stop it at the end, and check its store.

    Args:
        data: the data folder; made if missing, with an empty store.
        arguments: further ones for `embedsink serve`.
        within: a command that executes the one that follows it, as `nice` does.
        is_sound: whether every check of `sql/checks` has to find nothing at the end; not where a test does damage.
        env: environment variables beside those of this process, such as `EMBEDSINK_EVENTS_MAX="10"`.
    """
    make_folder(data)
    port = free_port()
    environment = os.environ | QUICK | env
    log = data.parent / f"{data.name}.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*within, sys.executable, "-m", "embedsink", "serve", "--data", str(data), "--port", str(port), *arguments],
            stdout=file,
            stderr=file,
            env=environment,
        )
    server = RunningServer(data, f"http://127.0.0.1:{port}", process, log, environment)
    try:
        wait_until(lambda: _is_ready(server), what="the server is ready", timeout_s=READY_TIMEOUT_S)
        yield server
    finally:
        try:
            server.stop()
        except subprocess.TimeoutExpired:
            server.kill()
            raise
    if is_sound:
        assert offending_rows(data) == {}


def offending_rows(data: Path) -> dict[str, dict[str, Any]]:
    """What the checks of `sql/checks` find in the store of a stopped server: the first row of each that finds any."""
    store = data / "store.duckdb"
    if not store.exists():
        return {}
    with open_snapshot(store, EVERYTHING) as reader:
        found = {check: reader.first_row(sql) for check, sql in read_sql("checks").items()}
    return {check: first for check, (first, count) in found.items() if count}


def wait_until(holds: Callable[[], bool], *, what: str, timeout_s: float = 60.0) -> None:
    """Poll until a condition is true, or fail after the timeout."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"after {timeout_s} s it is still not so that {what}"
        time.sleep(0.02)


def fetch(
    url: str, *, key: str | None = None, headers: dict[str, str] | None = None, body: bytes | None = None
) -> Answer:
    """One HTTP request: POST with a body, GET without. An error status is an answer too."""
    request = urllib.request.Request(url, data=body, headers=headers or {})
    if key is not None:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return _answer(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return _answer(error.code, error.headers, error.read())


def free_port() -> int:
    """A port of this machine that is free, and so is the one after it."""
    return next(_PORTS)


def _answer(status: int, headers: Any, body: bytes) -> Answer:
    return Answer(status, {name.lower(): value for name, value in headers.items()}, body)


def _is_ready(server: RunningServer) -> bool:
    assert server.process.poll() is None, f"the server ended: {server.log.read_text(errors='replace')[-4_000:]}"
    try:
        return server.get("/readyz").status == 200
    except OSError:
        return False
