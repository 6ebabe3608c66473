"""A proxy between a browser and a server: it forwards and counts requests, and fails on demand."""

import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.servers import wait_until

# Hop-by-hop headers, and headers that this proxy sets itself.
_OWN_HEADERS = {"connection", "transfer-encoding", "content-length", "date", "server", "keep-alive"}


class Gate:
    """A proxy with its own port, so that the server behind it can be replaced.

    `answered` has the status and the body of each delivery that the server answered. `refused_count` counts the other
    deliveries, and `refused_at` is the time of the last response without the server. A closed gate drops deliveries,
    but serves the modules, as a browser's cache does. A gate with `events_max` answers 413 to larger deliveries, and
    a gate with `delay_s` answers deliveries that much later. `modules` has the texts of further modules, by path.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.is_closed = False
        self.events_max: int | None = None
        self.next_responses: list[tuple[int, dict[str, str]]] = []
        self.answered: list[tuple[int, dict[str, Any]]] = []
        self.refused_count = 0
        self.refused_at = 0.0
        self.drops_responses = False
        self.delay_s = 0.0
        self.modules: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"gate": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, status: int, *, times: int = 1, **headers: str) -> None:
        """Answer the next deliveries with this status, without a server."""
        self.next_responses += [(status, {name.replace("_", "-"): value for name, value in headers.items()})] * times

    def ids(self) -> list[str]:
        """Return the ids of all acknowledged events, with repetitions."""
        return [event["id"] for status, body in self.answered if status == 202 for event in body["events"]]

    def first_body(self) -> dict[str, Any]:
        """Wait for the first delivery that the server answers, and return its body."""
        wait_until(lambda: bool(self.answered), description="a delivery is answered")
        return self.answered[0][1]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """The handler of the requests to a gate, which is its class attribute `gate`."""

    gate: Gate
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a failing test shows its own details."""

    def do_GET(self) -> None:
        if module := self.gate.modules.get(self.path):
            headers = {"Access-Control-Allow-Origin": "*", "Content-Type": "text/javascript"}
            self._answer(200, headers, module.encode())
        else:
            self._forward(None)

    def do_OPTIONS(self) -> None:
        self._forward(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.gate.next_responses:
            self.gate.refused_at = time.monotonic()
            self.gate.refused_count += 1
            status, headers = self.gate.next_responses.pop(0)
            self._answer(status, {"Access-Control-Allow-Origin": "*", **headers}, b"{}")
        elif self.gate.is_closed:
            self._drop()
        elif self.gate.events_max is not None and len(json.loads(body)["events"]) > self.gate.events_max:
            self.gate.refused_count += 1
            self._answer(413, {"Access-Control-Allow-Origin": "*"}, b"{}")
        else:
            self._forward(body)

    def _forward(self, body: bytes | None) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS}
        request = urllib.request.Request(self.gate.target + self.path, data=body, headers=headers, method=self.command)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                status, received, content = response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, received, content = error.code, error.headers, error.read()
        except OSError:
            self._drop()
            return
        if body is not None:
            self.gate.answered.append((status, json.loads(body)))
            time.sleep(self.gate.delay_s)
        if self.gate.drops_responses:
            self._drop()
            return
        forwarded = {name: value for name, value in received.items() if name.lower() not in _OWN_HEADERS}
        self._answer(status, forwarded, content)

    def _drop(self) -> None:
        self.gate.refused_count += 1
        self.close_connection = True

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        try:
            self.send_response_only(status)
            for name, value in {"Access-Control-Expose-Headers": "Retry-After", **headers}.items():
                self.send_header(name, value)
            if status != 304:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # The page has closed.
