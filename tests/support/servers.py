"""A real server in a separate process, on a free port of this machine.

with running_server(tmp_path / "data") as server:
    server.post(body, key=server.key("ingest"))
    assert server.stop() == 0
"""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.demo.ports import free_port_pairs
from embedsink.key_scope import EVERYTHING
from embedsink.store.database import Store
from embedsink.store.snapshot_reader import open_snapshot
from embedsink.store.sql_files import read_sql
from tests.support.forked_program import Program, start_program
from tests.support.stores import make_folder

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
# New keys and events take effect quickly, so that tests don't wait.
TEST_SETTINGS = {"EMBEDSINK_KEYS_RELOAD_S": "0.05", "EMBEDSINK_SEGMENT_SEAL_S": "0.1"}
# Each pytest-xdist worker has its own range of ports, below the range from which the system assigns ports.
OWN_PORTS_MAX = 2_000
OWN_PORTS = 12_000 + OWN_PORTS_MAX * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = free_port_pairs(OWN_PORTS, OWN_PORTS_MAX)


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """A response of a server: status, headers by lower-case name, and the bytes of the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, parsed as JSON."""
        return json.loads(self.body)


@dataclass
class RunningServer:
    """A server that is ready. `data` is its data folder, and `log` the file with its stdout and stderr."""

    data: Path
    url: str
    process: Program
    log: Path
    environment: dict[str, str] = field(repr=False)

    @property
    def pid(self) -> int:
        """Return the id of the server process."""
        return self.process.pid

    def key(self, kind: str = "ingest", **options: Any) -> str:
        """Create a key and wait until the server knows it. The options are those of `KeyStore.create`."""
        _, token = KeyStore(self.data / "keys.json").create(KeyKind(kind), now=time.time(), **options)
        https = {"X-Forwarded-Proto": "https"}  # for a server behind a proxy
        wait_until(
            lambda: self.get("/api/v1/reports", key=token, **https).status != 401,
            description=f"the {kind} key is known",
        )
        return token

    def get(self, path: str, *, key: str | None = None, **headers: str) -> ServerResponse:
        """GET a path."""
        return fetch(self.url + path, key=key, headers=headers)

    def post(
        self, body: Any, *, path: str = "/api/v1/events", key: str | None = None, **headers: str
    ) -> ServerResponse:
        """POST bytes unchanged, and any other value as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return fetch(self.url + path, key=key, headers={"Content-Type": "application/json"} | headers, body=content)

    def stop(self) -> int:
        """Send SIGTERM unless the server has ended. Return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def running_server(
    data: Path,
    *,
    arguments: Sequence[str] = (),
    wrapper: Sequence[str] = (),
    injected: str = "",
    checks_store: bool = True,
    port: int | None = None,
    **env: str,
) -> Iterator[RunningServer]:
    """Start `embedsink serve` and wait until it is ready. At the end of the block, stop it and check its store.

    Args:
        data: the data folder. If it is missing or empty, it gets an empty store.
        arguments: further arguments of `embedsink serve`.
        wrapper: a command that runs the server's command, such as `nice`.
        injected: Python code that runs before the command.
        checks_store: whether all checks of `sql/checks` must pass at the end. Use False in tests that damage the store.
        port: the port; None for any free one.
        env: additional environment variables, such as `EMBEDSINK_EVENTS_MAX="10"`.
    """
    make_folder(data)
    port = port or free_port()
    environment = os.environ | TEST_SETTINGS | env
    log = data.parent / f"{data.name}.log"
    words = ["serve", "--data", str(data), "--port", str(port), *arguments]
    process = start_program(words, log=log, environment=environment, wrapper=wrapper, injected=injected)
    server = RunningServer(data, f"http://127.0.0.1:{port}", process, log, environment)
    try:
        wait_until(lambda: _is_ready(server), description="the server is ready", timeout_s=READY_TIMEOUT_S)
        yield server
    finally:
        _stop_or_kill(server)
    if checks_store:
        assert offending_rows(data) == {}


def _stop_or_kill(server: RunningServer) -> None:
    try:
        server.stop()
    except subprocess.TimeoutExpired:
        server.kill()
        raise


def offending_rows(data: Path) -> dict[str, dict[str, Any]]:
    """Return the first row of each check of `sql/checks` that returns rows, for the store of a stopped server."""
    store = data / "store.duckdb"
    if not store.exists():
        return {}
    _create_missing_views(store)
    with open_snapshot(store, EVERYTHING.variables()) as reader:
        first_rows = {check: reader.first_row(sql) for check, sql in read_sql("checks").items()}
    return {check: first for check, (first, count) in first_rows.items() if count}


def _create_missing_views(store: Path) -> None:
    """Open a store without views as the next start does. A kill during a rewrite leaves one."""
    with closing(duckdb.connect(str(store), read_only=True)) as connection:
        [(has_views,)] = connection.execute("select count(*) > 0 from duckdb_views() where not internal").fetchall()
    if not has_views:
        with closing(Store(store)) as opened:
            opened.open()


def wait_until(condition: Callable[[], bool], *, description: str, timeout_s: float = 60.0) -> None:
    """Poll until a condition is true, or fail after the timeout."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"after {timeout_s} s this is still false: {description}"
        time.sleep(0.02)


def fetch(
    url: str,
    *,
    key: str | None = None,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    method: str | None = None,
) -> ServerResponse:
    """Send a request, by default a POST with a body, or a GET without one. Return the response with any status."""
    request = urllib.request.Request(url, data=body, headers=headers or {}, method=method)
    if key is not None:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return _response_of(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return _response_of(error.code, error.headers, error.read())


def free_port() -> int:
    """Return a free port of this machine. The next port is free too."""
    return next(_PORTS)


def _response_of(status: int, headers: Any, body: bytes) -> ServerResponse:
    return ServerResponse(status, {name.lower(): value for name, value in headers.items()}, body)


def _is_ready(server: RunningServer) -> bool:
    assert server.process.poll() is None, f"the server ended: {server.log.read_text(errors='replace')[-4_000:]}"
    try:
        return server.get("/readyz").status == 200
    except OSError:
        return False
