"""A server over HTTP: what answers and is another is told as that, and so is an address that can be none."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import embedsink
from embedsink.client import ConnectedSink
from embedsink.deliveries import read_deliveries
from embedsink.envelope import Rules
from embedsink.errors import EmbedsinkError, Misconfigured
from embedsink.keys import KeyKind
from embedsink.keys.token import new_token
from embedsink.remote import NotEmbedsink, Remote
from embedsink.transfer import Sums, import_there
from tests.envelope.sending import view
from tests.test_cli import Call, assert_failed, called

__all__ = ["called"]

KEY = new_token(KeyKind.READ)
PORTAL = (b"<html>Welcome to the hotel</html>", "text/html; charset=utf-8")
UNTYPED = (b"<html>Welcome to the hotel</html>", None)
CUT = (b'[{"name": "vi', "application/json")
OTHER = (b'{"ok": true}', "application/json")
OTHERS = (b'[{"ok": true}]', "application/json")


@contextmanager
def answering(content: bytes, media_type: str | None) -> Iterator[tuple[str, list[str]]]:
    """The address of a server that answers everything with the same, and the methods that it was asked by."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.command)
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
            yield f"http://127.0.0.1:{server.server_port}", asked
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
def test_a_command_says_that_something_else_answers(
    called: Call, words: list[str], answer: tuple[bytes, str | None]
) -> None:
    with answering(*answer) as (url, _):
        done = called(*words, "--url", url, EMBEDSINK_KEY=KEY)
    assert_failed(done, f"{url}: answered 200, and not as embedsink does.")


@pytest.mark.parametrize("answer", [PORTAL, UNTYPED, CUT, OTHER])
def test_neither_is_it_a_report(called: Call, answer: tuple[bytes, str | None]) -> None:
    with answering(*answer) as (url, _):
        done = called("report", "views", "--url", url, EMBEDSINK_KEY=KEY)
    assert_failed(done, "and not as embedsink does")


@pytest.mark.parametrize("answer", [PORTAL, UNTYPED, CUT, OTHER])
def test_an_import_that_something_else_answered_counts_nothing_and_names_the_line(
    answer: tuple[bytes, str | None],
) -> None:
    lines = [(number, json.dumps(view()).encode()) for number in range(1, 9)]
    sums = Sums()
    with answering(*answer) as (url, asked):
        sending = read_deliveries(lines, Rules(), is_remote=True)
        with pytest.raises(EmbedsinkError, match=r"line 1: .* not as embedsink does"):
            import_there(Remote(url, KEY), sending, sums)
    assert (sums, asked) == (Sums(), ["POST"])


@pytest.mark.parametrize("ask", [lambda sink: sink.reports(), lambda sink: sink.report("views")], ids=["list", "rows"])
def test_a_notebook_is_told_the_same(ask: Callable[[ConnectedSink], object]) -> None:
    with answering(*PORTAL) as (url, _), pytest.raises(NotEmbedsink, match="See whether a server of it is there"):
        ask(embedsink.connect(url, key=KEY))


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
def test_what_can_be_no_address_is_told_before_anything_is_sent(url: str) -> None:
    with pytest.raises(Misconfigured, match=r"is no address of a server\. Write it like"):
        Remote(url, KEY)
