"""The real application on a real data folder, called in the test's process without a socket.

with open_server(tmp_path) as server:
    assert server.post(view(), key=server.key()).status_code == 202
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.http.app import Demo, create_app
from embedsink.http.transport import Transport
from embedsink.settings import Settings
from tests.support.stores import make_folder

EVENTS = "/api/v1/events"
PAGE = "https://app.example.com"
# Tests check that refused requests store nothing, so all records stay in one segment that is never sealed.
NEVER_S = 3_600.0
WAIT_S_MAX = 15.0


class Server:
    """An application that has started. `journaled` returns its durable records."""

    def __init__(self, app: Starlette, folder: DataFolder, runner: asyncio.Runner, state: Any) -> None:
        self.app = app
        self.folder = folder
        self.state = state
        self.engine: Engine = state["engine"]
        self._runner = runner

    def key(self, kind: str = "ingest", **options: Any) -> str:
        """Create a key, which is valid at once. The options are those of `KeyStore.create`."""
        _, token = KeyStore(self.folder.keys).create(KeyKind(kind), now=time.time(), **options)
        self.engine.keys.refresh()
        return token

    def revoke(self, token: str) -> None:
        """Revoke a key at once."""
        KeyStore(self.folder.keys).revoke(token, now=time.time())
        self.engine.keys.refresh()

    def request(self, method: str, path: str, *, key: str | None = None, **options: Any) -> httpx2.Response:
        """Send a request from any thread; `options` are those of httpx2."""
        headers = list(httpx2.Headers(options.pop("headers", {})).raw)
        if key is not None:
            headers.append((b"authorization", f"Bearer {key}".encode()))
        pending, loop = self._request(method, path, headers, options), self._runner.get_loop()
        if loop.is_running():
            return asyncio.run_coroutine_threadsafe(pending, loop).result(WAIT_S_MAX)
        return self._runner.run(pending)

    def get(self, path: str, *, key: str | None = None, **options: Any) -> httpx2.Response:
        """GET a path."""
        return self.request("GET", path, key=key, **options)

    def get_concurrently(self, *requests: tuple[str, str]) -> list[httpx2.Response]:
        """GET paths concurrently, each with its key."""

        async def gather() -> list[httpx2.Response]:
            bearers = ([(b"authorization", f"Bearer {key}".encode())] for _, key in requests)
            return await asyncio.gather(
                *(self._request("GET", path, bearer, {}) for (path, _), bearer in zip(requests, bearers, strict=True))
            )

        return self._runner.run(gather())

    def post(
        self, body: Any, *, key: str | None = None, type_: str = "application/json", **headers: str
    ) -> httpx2.Response:
        """POST a body to ingest: bytes unchanged, and any other value as JSON."""
        content = body if isinstance(body, bytes) or hasattr(body, "__aiter__") else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", EVENTS, key=key, content=content, headers={"content-type": type_} | named)

    def append(self, lines: bytes) -> None:
        """Append lines to the journal."""

        async def append() -> None:
            await self.engine.journal.append(lines)

        self._runner.run(append())

    def run(self, messages: list[Message], headers: list[tuple[bytes, bytes]]) -> list[Message]:
        """Send ASGI messages to ingest, and return the messages of the response."""
        sent: list[Message] = []

        async def receive() -> Message:
            return messages.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": EVENTS,
            "raw_path": EVENTS.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "server": ("test", 80),
            "client": ("test", 1),
        }
        self._runner.run(self.call_app(scope, receive, send))
        return sent

    async def call_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, with the lifespan's state in each request, as a server does."""
        if scope["type"] == "http":
            scope["state"] = dict(self.state)
        await self.app(scope, receive, send)

    @contextmanager
    def streaming(self, path: str, key: str, write: Callable[[bytes], Awaitable[None]]) -> Iterator[None]:
        """Stream a response while other requests run, and disconnect at the end."""
        disconnected = asyncio.Event()

        async def receive() -> Message:
            await disconnected.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            await write(message.get("body", b""))

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(self.call_app(_scope_of(path, key), receive, send))

        async def end() -> None:
            disconnected.set()
            await request_task

        request_task = self._runner.run(begin())
        try:
            yield
        finally:
            self._runner.run(end())

    def journaled(self) -> list[dict[str, Any]]:
        """Return every durable record, without the trailers."""
        lines = [json.loads(line) for line in self.journal_bytes().splitlines()]
        return [line for line in lines if line.get("kind") in ("event", "action", "quarantined", "lost", "sync")]

    def journal_bytes(self) -> bytes:
        """Return the bytes of all segments in order."""
        try:
            return b"".join(segment.read_bytes() for segment in sorted(self.folder.journal.iterdir()))
        except FileNotFoundError:
            return self.journal_bytes()  # a segment was sealed or deleted meanwhile

    def rows(self, path: str, *, key: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for a number of rows of a report or the quarantine, and return them."""
        end = time.monotonic() + WAIT_S_MAX
        while True:
            rows_read: list[dict[str, Any]] = self.get(path, key=key).json()
            if len(rows_read) >= count:
                return rows_read
            assert time.monotonic() < end, f"{path}: still {len(rows_read)} rows"
            time.sleep(0.02)

    async def _request(self, method: str, path: str, headers: Any, options: dict[str, Any]) -> httpx2.Response:
        # After the 500 response, Starlette raises the exception again, and a server logs it.
        transport = httpx2.ASGITransport(self.call_app, raise_app_exceptions=False)
        base_url = options.pop("base_url", "http://test")
        async with httpx2.AsyncClient(transport=transport, base_url=base_url) as client:
            return await client.request(method, path, headers=headers, **options)


def _scope_of(path: str, key: str) -> Scope:
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"authorization", f"Bearer {key}".encode())],
        "server": ("test", 80),
        "client": ("test", 1),
    }


@contextmanager
def open_server(path: Path, *, https_only: bool = False, demo: Demo | None = None, **settings: Any) -> Iterator[Server]:
    """Open an application on a data folder, with some settings. A new folder gets an empty store."""
    folder = make_folder(path)
    chosen = Settings(**({"segment_seal_s": NEVER_S} | settings))
    transport = Transport.ENCRYPTED if https_only else Transport.ANYTHING
    app = create_app(folder, chosen, transport=transport, demo=demo)
    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        state = runner.run(lifespan.__aenter__())
        try:
            yield Server(app, folder, runner, state)
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


def problem(response: httpx2.Response) -> str:
    """Return the reason of an error response, after a check of its format (RFC 9457, section 3)."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body = response.json()
    assert body["status"] == response.status_code
    assert body["type"] == f"/problems/{body['reason']}"
    assert body["title"]
    assert body["detail"]
    assert response.headers["x-request-id"]
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503))
    assert ("www-authenticate" in response.headers) or response.status_code != 401
    reason: str = body["reason"]
    return reason
