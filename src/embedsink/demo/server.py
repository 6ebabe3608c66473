"""The server as a child process: started on loopback, read over HTTP, stopped with SIGTERM."""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from embedsink.data_folder import DataFolder
from embedsink.demo.ports import HOST
from embedsink.demo.stop import Stop
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.key_scope import EVERYTHING
from embedsink.store.snapshot_reader import open_snapshot

READY_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 30.0
_LOG_LINES_SHOWN = 5
_ERROR_BYTES_SHOWN = 300
# Publish quickly, so that a notebook sees everything at once. All other settings have their defaults.
_DEMO_SETTINGS = {"EMBEDSINK_SNAPSHOT_INTERVAL_S": "2"}


class ChildServer:
    """A Python module that serves HTTP on loopback in a child process.

    Use it as a context manager: the server is ready inside the `with` block. `ready_after_s` is the duration of its
    start.

    Args:
        module_command: the name of the module and its arguments, as they follow `python -m`.
        port: the port that the module listens on.
        ready_path: the path that answers 200 when the server is ready.
        environment: the environment variables of the child; None to inherit the variables of this process.
    """

    ready_after_s: float
    stop_timeout_s = 120.0

    def __init__(
        self,
        module_command: list[str],
        port: int,
        *,
        ready_path: str = "/readyz",
        environment: dict[str, str] | None = None,
    ) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self._command = [sys.executable, "-m", *module_command]
        self._ready_path = ready_path
        self._environment = environment

    def __enter__(self) -> Self:
        """Start the child process, and wait until the server is ready."""
        started_at = time.perf_counter()
        self._log = tempfile.TemporaryFile()
        self._child = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._environment,
            # The child has its own process group, so Ctrl-C reaches only this process, which stops the child.
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
        """Send SIGTERM, or SIGKILL if the server still runs after the timeout. Return the exit code."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            return self._child.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()
        finally:
            self._log.close()

    def raise_if_exited(self, *, within_s: float = 0.0) -> None:
        """Raise EmbedsinkError with the last lines of the log if the server has exited, or exits within this time."""
        try:
            exit_code = self._child.wait(within_s)
        except subprocess.TimeoutExpired:
            return
        self._log.seek(0)
        log_lines = self._log.read().decode(errors="replace").splitlines()
        message = f"server: ended with exit code {exit_code}. The end of its log:"
        raise EmbedsinkError("\n".join([message, *log_lines[-_LOG_LINES_SHOWN:]]))

    def get(self, path: str, key: str = "") -> bytes:
        """Return the response body of a GET.

        Raises:
            EmbedsinkError: the status is not 200.
            OSError: the server did not respond.
        """
        connection = http.client.HTTPConnection(HOST, self.port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise EmbedsinkError(f"GET {path}: {response.status} {body[:_ERROR_BYTES_SHOWN].decode(errors='replace')}")
        return body

    def loaded_counts(self) -> dict[str, int]:
        """Return the number of loaded envelopes by outcome: accepted, duplicate, quarantined."""
        return self._counts_by_outcome("embedsink_loaded_envelopes_total")

    def received_counts(self) -> dict[str, int]:
        """Return the number of durable envelopes by outcome: accepted (including duplicates), quarantined."""
        return self._counts_by_outcome("embedsink_envelopes_total")

    def _counts_by_outcome(self, metric: str) -> dict[str, int]:
        """Return the values of a Prometheus metric by the label `outcome`."""
        metrics = self.get("/metrics").decode()
        # A sample is a line such as `embedsink_envelopes_total{outcome="accepted"} 12.0`.
        samples = re.findall(rf'^{metric}\{{outcome="(\w+)"\}} (\S+)$', metrics, re.MULTILINE)
        return {outcome: int(float(count)) for outcome, count in samples}

    def _wait_until_ready(self) -> None:
        """Wait until the server is ready. Raise EmbedsinkError if the server exits or is not ready in time."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            self.raise_if_exited()
            try:
                self._check_ready()
            except (OSError, http.client.HTTPException, EmbedsinkError):
                self._pause()  # The server is still starting.
            else:
                return
        raise EmbedsinkError(f"server: is not ready after {READY_TIMEOUT_S:.0f} s.")

    def _check_ready(self) -> None:
        """Raise an exception unless the server is ready."""
        self.get(self._ready_path)

    def _pause(self) -> None:
        """Wait until the next readiness check."""
        time.sleep(0.005)


class DemoServer(ChildServer):
    """`embedsink serve` with the demo's host page, and with dashboards that need no login.

    Args:
        data_folder: a folder with keys.
        port: the port on loopback.
        embed: the origin of the simulated embed.
        read_key: a read key of the data folder. Only a server with this data folder accepts it.
        stop: a stop request, which cancels the start.
    """

    stop_timeout_s = 20.0

    def __init__(self, data_folder: Path, port: int, *, embed_origin: str, read_key: str, stop: Stop) -> None:
        # The settings of the user's own server don't apply to the demo.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDSINK_")}
        module_command = ["embedsink.demo.sites", str(data_folder), str(port), embed_origin]
        super().__init__(module_command, port, environment=environment | _DEMO_SETTINGS)
        self._read_key = read_key
        self._stop = stop

    def get_json(self, path: str) -> Any:
        """Return the JSON of a GET with the read key. Raises the exceptions of `get`."""
        return json.loads(self.get(path, self._read_key))

    def _check_ready(self) -> None:
        """Raise an exception unless the server is ready and accepts the read key."""
        super()._check_ready()
        # Another server may have taken the port. It would refuse the read key.
        self.get_json("/api/v1/reports")

    def _pause(self) -> None:
        """Wait until the next readiness check. Raise Stopped if the user asks to stop."""
        self._stop.pause(0.05)


def published_count(data_folder: Path) -> int:
    """Return the number of received envelopes in the published snapshot, or 0 if there is no snapshot yet."""
    try:
        with open_snapshot(DataFolder(data_folder).snapshot, EVERYTHING.variables()) as reader:
            return sum(segment["received_count"] for segment in reader.dicts("loaded_segment"))
    except Misconfigured:  # There is no snapshot.
        return 0
