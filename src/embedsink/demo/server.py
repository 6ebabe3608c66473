"""The real server, as a child of the demo: started on a free port, asked over HTTP, ended by SIGTERM."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from embedsink.data_folder import DataFolder
from embedsink.demo.stopping import Stop
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.store.reader import EVERYTHING, open_snapshot

HOST = "127.0.0.1"
# Not that of `embedsink serve`, which one may want to try meanwhile.
PREFERRED_PORT = 8322
READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 20.0
REQUEST_TIMEOUT_S = 30.0
_LOG_LINES_SHOWN = 5
# So that a notebook opened at once sees everything; otherwise the server runs with its defaults.
_SETTINGS = {"EMBEDSINK_SNAPSHOT_INTERVAL_S": "2"}
_LOADED = re.compile(r'^embedsink_loaded_envelopes_total\{outcome="(\w+)"\} (\S+)$', re.MULTILINE)
_RECEIVED = re.compile(r'^embedsink_envelopes_total\{outcome="\w+"\} (\S+)$', re.MULTILINE)


class DemoServer:
    """`embedsink serve` on a data folder, with the demo's page, and dashboards that open by themselves.

    Use it as a context manager: inside, it is ready.

    Args:
        data_folder: with its keys.
        port: where it listens, on loopback.
        embed: the origin of the pretend embed, for the page around it.
        read_key: one of the keys. Only our server knows it, not one that took the port just before.
        stop: looked at while waiting.
    """

    def __init__(self, data_folder: Path, port: int, *, embed: str, read_key: str, stop: Stop) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self._data_folder = data_folder
        self._embed = embed
        self._read_key = read_key
        self._stop = stop

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        settings = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDSINK_")} | _SETTINGS
        told = (str(self._data_folder), str(self.port), self._embed)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "embedsink.demo.host_site", *told],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=settings,
            # A group of its own: Ctrl-C reaches the demo alone, which ends the server when nothing is sent any more.
            process_group=0,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> int:
        """End it and wait for it; its exit code."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            code = self._child.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        self._log.close()
        return code

    def check(self, *, within_s: float = 0.0) -> None:
        """Raises EmbedsinkError with the end of its log when the server is no longer there, or not for much longer."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(within_s)
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
            raise EmbedsinkError("\n".join([f"server: ended with {self._child.returncode}. Its last words:", *lines]))

    def get(self, path: str, key: str = "") -> bytes:
        """The body of a GET.

        Raises:
            EmbedsinkError: another answer than 200.
            OSError: no answer.
        """
        connection = http.client.HTTPConnection(HOST, self.port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise EmbedsinkError(f"GET {path}: {answer.status} {body[:300].decode(errors='replace')}")
        return body

    def get_json(self, path: str) -> Any:
        """The same with the read key, as JSON."""
        return json.loads(self.get(path, self._read_key))

    def loaded(self) -> dict[str, int]:
        """How many envelopes the loader has seen, by outcome: accepted, duplicate, quarantined."""
        return {outcome: int(float(count)) for outcome, count in _LOADED.findall(self.get("/metrics").decode())}

    def received_count(self) -> int:
        """How many envelopes are durable, from whoever sent them: the demo, its page, or somebody with curl."""
        return sum(int(float(count)) for count in _RECEIVED.findall(self.get("/metrics").decode()))

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < end:
            self.check()
            try:
                self.get("/readyz")
                self.get("/api/v1/reports", self._read_key)
            except (OSError, EmbedsinkError):
                self._stop.pause(0.05)
            else:
                return
        raise EmbedsinkError(f"server: is not ready after {READY_TIMEOUT_S:.0f} s.")


def published_count(data_folder: Path) -> int:
    """How many envelopes the published snapshot covers, whatever their outcome; 0 while there is none."""
    try:
        with open_snapshot(DataFolder(data_folder).snapshot, EVERYTHING) as reader:
            place = [column.name for column in reader.columns("loaded_segment")].index("received_count")
            return sum(row[place] for rows in reader.rows("loaded_segment") for row in rows)
    except Misconfigured:
        return 0


def choose_port(wanted: int | None) -> int:
    """The wanted port; without a wish the usual one, or any when that is taken.

    Raises:
        Misconfigured: the wanted port is taken.
    """
    if _is_free(wanted or PREFERRED_PORT):
        return wanted or PREFERRED_PORT
    if wanted:
        raise Misconfigured(f"--port {wanted}: is in use. Choose another, or leave --port out for a free one.")
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
