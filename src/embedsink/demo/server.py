"""The server as a child process: started on loopback, read over HTTP, stopped with SIGTERM."""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from embedsink.data_folder import DataFolder
from embedsink.demo.ports import HOST
from embedsink.demo.stop import Stop
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.store.reader import EVERYTHING, open_snapshot

READY_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 30.0
_LOG_LINES_SHOWN = 5
# Publish quickly, so that a notebook sees everything at once. All other settings have their defaults.
_DEMO_SETTINGS = {"EMBEDSINK_SNAPSHOT_INTERVAL_S": "2"}


class ChildServer:
    """A Python module that serves HTTP on loopback in a child process.

    Use it as a context manager: inside the block, the server is ready. `ready_after_s` is how long its start took.

    Args:
        module: the arguments after `python -m`.
        port: the port that the module listens on.
        ready_path: the path that answers 200 when the server is ready.
        environment: the variables of the child; those of this process by default.
    """

    ready_after_s: float
    stop_timeout_s = 120.0

    def __init__(
        self, module: list[str], port: int, *, ready_path: str = "/readyz", environment: dict[str, str] | None = None
    ) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self._command = [sys.executable, "-m", *module]
        self._ready_path = ready_path
        self._environment = environment

    def __enter__(self) -> Self:
        started_at = time.perf_counter()
        self._log = tempfile.TemporaryFile()
        self._child = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._environment,
            # Its own process group: Ctrl-C reaches only this process, which stops the server after its last request.
            process_group=0,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        self.ready_after_s = time.perf_counter() - started_at
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._child.pid

    def stop(self) -> int:
        """Send SIGTERM and wait; SIGKILL after the timeout. Return the exit code."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            return self._child.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()
        finally:
            self._log.close()

    def check(self, *, within_s: float = 0.0) -> None:
        """Raise EmbedsinkError with the last lines of the log if the server exits within `within_s`."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(within_s)
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
            raise EmbedsinkError(
                "\n".join([f"server: ended with exit code {self._child.returncode}. The end of its log:", *lines])
            )

    def get(self, path: str, key: str = "") -> bytes:
        """Return the body of a GET.

        Raises:
            EmbedsinkError: the status is not 200.
            OSError: no response.
        """
        connection = http.client.HTTPConnection(HOST, self.port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise EmbedsinkError(f"GET {path}: {response.status} {body[:300].decode(errors='replace')}")
        return body

    def loaded(self) -> dict[str, int]:
        """Return the number of loaded envelopes by outcome: accepted, duplicate, quarantined."""
        return self._counts("embedsink_loaded_envelopes_total")

    def received(self) -> dict[str, int]:
        """Return the number of durable envelopes of all senders by outcome: accepted (with duplicates), quarantined."""
        return self._counts("embedsink_envelopes_total")

    def _counts(self, metric: str) -> dict[str, int]:
        samples = re.findall(rf'^{metric}\{{outcome="(\w+)"\}} (\S+)$', self.get("/metrics").decode(), re.MULTILINE)
        return {outcome: int(float(count)) for outcome, count in samples}

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < end:
            self.check()
            try:
                return self._check_ready()
            except (OSError, http.client.HTTPException, EmbedsinkError):
                self._pause()
        raise EmbedsinkError(f"server: is not ready after {READY_TIMEOUT_S:.0f} s.")

    def _check_ready(self) -> None:
        self.get(self._ready_path)

    def _pause(self) -> None:
        time.sleep(0.005)


class DemoServer(ChildServer):
    """`embedsink serve` with the demo's host page, and with dashboards that need no login.

    Args:
        data_folder: a folder with keys.
        port: the port on loopback.
        embed: the origin of the simulated embed.
        read_key: one of the keys. A server that took the port in the meantime refuses it.
        stop: cancels the start.
    """

    stop_timeout_s = 20.0

    def __init__(self, data_folder: Path, port: int, *, embed: str, read_key: str, stop: Stop) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDSINK_")}
        module = ["embedsink.demo.sites", str(data_folder), str(port), embed]
        super().__init__(module, port, environment=environment | _DEMO_SETTINGS)
        self._read_key = read_key
        self._stop = stop

    def get_json(self, path: str) -> Any:
        """Return the JSON of a GET with the read key. Raises the same as `get`."""
        return json.loads(self.get(path, self._read_key))

    def _check_ready(self) -> None:
        super()._check_ready()
        self.get_json("/api/v1/reports")

    def _pause(self) -> None:
        self._stop.pause(0.05)


def published_count(data_folder: Path) -> int:
    """Return the number of envelopes that the published snapshot covers; 0 before the first one."""
    try:
        with open_snapshot(DataFolder(data_folder).snapshot, EVERYTHING) as reader:
            column = [column.name for column in reader.columns("loaded_segment")].index("received_count")
            return sum(row[column] for rows in reader.rows("loaded_segment") for row in rows)
    except Misconfigured:
        return 0
