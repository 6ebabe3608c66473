"""The HTTP client: responses of other servers, malformed URLs, proxies and redirects."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import embedsink
from embedsink.auth.keys import KeyKind
from embedsink.auth.tokens import new_token
from embedsink.client.http_client import HttpClient, NotEmbedsink, Unreachable
from embedsink.client.notebook import RemoteClient
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.protocol.delivery import Rules
from embedsink.transfer.bulk_import import ImportCounts, import_to_server
from embedsink.transfer.import_file import read_deliveries
from tests.cli.test_cli import RunCommand, assert_failed, run_command
from tests.support.envelopes import view

__all__ = ["run_command"]

KEY = new_token(KeyKind.READ)
PORTAL = (b"<html>Welcome to the hotel</html>", "text/html; charset=utf-8")
UNTYPED = (b"<html>Welcome to the hotel</html>", None)
CUT = (b'[{"name": "vi', "application/json")
OTHER = (b'{"ok": true}', "application/json")
OTHERS = (b'[{"ok": true}]', "application/json")


@contextmanager
def answering(content: bytes, media_type: str | None) -> Iterator[tuple[str, list[str]]]:
    """Run a server that always gives one response. Yield its URL, and a list of the request methods."""
    methods: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            methods.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            if media_type:
                self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_GET  # noqa: N815  the names of http.server

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", methods
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("answer", [PORTAL, UNTYPED, CUT, OTHER, OTHERS])
@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["report", "views", "--describe"],
        ["sync-result", __file__, "--deployment", "1", "--job", "j"],
        ["inspect", "--session", "s"],
        ["quarantine", "list"],
        ["quarantine", "replay"],
        ["render", "overview", "-o", "never.svg"],
    ],
    ids=lambda words: f"{words[0]}-{words[-1].rpartition('/')[2]}",
)
def test_a_command_reports_the_response_of_another_server(
    run_command: RunCommand, words: list[str], answer: tuple[bytes, str | None]
) -> None:
    with answering(*answer) as (url, _):
        done = run_command(*words, "--url", url, EMBEDSINK_KEY=KEY)
    assert_failed(done, f"{url}: answered 200, but is not an embedsink server.")


@pytest.mark.parametrize("answer", [PORTAL, UNTYPED, CUT, OTHER])
def test_the_response_of_another_server_is_not_shown_as_a_report(
    run_command: RunCommand, answer: tuple[bytes, str | None]
) -> None:
    with answering(*answer) as (url, _):
        done = run_command("report", "views", "--url", url, EMBEDSINK_KEY=KEY)
    assert_failed(done, "but is not an embedsink server")


@pytest.mark.parametrize("answer", [PORTAL, UNTYPED, CUT, OTHER])
def test_an_import_counts_nothing_when_another_server_answers(
    answer: tuple[bytes, str | None],
) -> None:
    lines = [(number, json.dumps(view()).encode()) for number in range(1, 9)]
    counts = ImportCounts()
    with answering(*answer) as (url, methods):
        sending = read_deliveries(lines, Rules(), is_remote=True)
        with pytest.raises(EmbedsinkError, match=r"line 1: .* is not an embedsink server"):
            import_to_server(HttpClient(url, KEY), sending, counts)
    assert (counts, methods) == (ImportCounts(), ["POST"])


@pytest.mark.parametrize(
    "read", [lambda client: client.reports(), lambda client: client.report("views")], ids=["list", "rows"]
)
def test_a_notebook_reports_the_response_of_another_server(read: Callable[[RemoteClient], object]) -> None:
    with answering(*PORTAL) as (url, _), pytest.raises(NotEmbedsink, match="is not an embedsink server"):
        read(embedsink.connect(url, key=KEY))


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Run a proxy, and set all proxy variables of the environment to its URL. Yield the heads of its requests."""
    heads: list[bytes] = []

    class Recorder(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            heads.append(b"".join(iter(self.rfile.readline, b"\r\n")))
            self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Recorder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_address[1]}")
            monkeypatch.setenv(name.upper(), f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("no_proxy", "elsewhere.example")
        monkeypatch.delenv("REQUEST_METHOD", raising=False)
        try:
            yield heads
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_requests_to_loopback_bypass_the_proxy(proxy: list[bytes], host: str) -> None:
    with answering(b"[]", "application/json") as (url, methods):
        port = url.rpartition(":")[2]
        HttpClient(f"http://{host}:{port}", KEY).get_rows("reports")
    assert (methods, proxy) == (["GET"], [])


@pytest.mark.parametrize("url", ["http://[::1]:1", "http://127.8.9.1:1", "https://localhost:1"])
def test_unanswered_requests_to_loopback_bypass_the_proxy(proxy: list[bytes], url: str) -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        HttpClient(url, KEY).get("reports")
    assert proxy == []


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["report", "views"],
        ["report", "--all", "-o", "never.zip"],
        ["import", "EVENTS"],
        ["sync-result", __file__, "--deployment", "1", "--job", "j"],
        ["inspect", "--session", "s"],
        ["quarantine", "list"],
        ["quarantine", "show", "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"],
        ["quarantine", "replay"],
        ["render", "overview", "-o", "never.svg"],
    ],
    ids=" ".join,
)
def test_commands_bypass_the_proxy_for_loopback(
    proxy: list[bytes], run_command: RunCommand, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "EVENTS").write_text(json.dumps(view()))
    with answering(b"{}", "application/json") as (url, methods), chdir(tmp_path):
        run_command(*words, "--url", url, EMBEDSINK_KEY=KEY)
    assert methods
    assert proxy == []


def test_a_notebook_bypasses_the_proxy_for_loopback(proxy: list[bytes]) -> None:
    with answering(b"[]", "application/json") as (url, _):
        assert embedsink.connect(url, key=KEY).reports().empty
    assert proxy == []


def test_a_proxy_sees_no_key(proxy: list[bytes]) -> None:
    with pytest.raises(Unreachable):
        HttpClient("https://events.example", KEY).get("reports")
    [head] = proxy
    assert head.startswith(b"CONNECT events.example:443 ")
    assert KEY.encode() not in head


def test_a_redirect_is_not_followed() -> None:
    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(307)
            self.send_header("Location", f"{target_url}/api/v1/reports")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with (
        answering(b"[]", "application/json") as (target_url, methods),
        ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server,
    ):
        threading.Thread(target=server.handle_request).start()
        with pytest.raises(EmbedsinkError, match="answered 307"):
            HttpClient(f"http://127.0.0.1:{server.server_port}", KEY).get("reports")
    assert methods == []


@pytest.mark.parametrize(
    "url",
    [
        "http://[",
        "http://localhost:99999",
        "http://localhost:x",
        "http://localhost:1 /",
        "http://localhost/\u00e9",
        "http://localhost/a\nb",
        "https://a..b",
        "localhost:8321",
    ],
)
def test_a_malformed_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(Misconfigured, match=r"is not the URL of a server\. Example: "):
        HttpClient(url, KEY)
