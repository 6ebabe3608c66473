"""Access tokens at a real server: ingest, reading, scope, challenges, rotation and expiry."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx2
import pytest

import embedsink
from tests.support.envelopes import view
from tests.support.issuer import Issuer, running_issuer
from tests.support.live_client import open_stream
from tests.support.servers import RunningServer, ServerResponse, free_port, running_server, wait_until
from tests.support.stores import make_folder

PAGE = "https://app.example.com"
OWN, OTHER = 7_100_001, 7_200_002
VIEWS = "/api/v1/reports/views.json"

pytestmark = pytest.mark.server


@contextmanager
def server_that_trusts(issuer: Issuer, folder: Path, *, injected: str = "", **fields: Any) -> Iterator[RunningServer]:
    """Run a server whose `identity.toml` has an issuer with these fields."""
    data = folder / "data"
    make_folder(data)
    (data / "identity.toml").write_text(issuer.toml(**fields))
    with running_server(data, injected=injected) as server:
        yield server


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("tokens")
    with server_that_trusts(issuer, folder, deployments_claim="deployments", origins=[PAGE]) as server:
        assert server.get(VIEWS, key=issuer.token(scope="embedsink:read", deployments="*")).status == 200
        yield server


def token(issuer: Issuer, *kinds: str, deployments: Any = "*", **changes: Any) -> str:
    """Return a token with these permissions."""
    return issuer.token(scope=" ".join(f"embedsink:{kind}" for kind in kinds), deployments=deployments, **changes)


def reason(response: ServerResponse) -> tuple[int, str]:
    return response.status, response.json()["reason"]


def test_each_scope_permits_what_the_same_kind_of_key_permits(issuer: Issuer, server: RunningServer) -> None:
    responses = {
        kind: (
            server.post(view(), key=token(issuer, kind)).status,
            server.get(VIEWS, key=token(issuer, kind)).status,
            server.get(f"/api/v1/deployments/{OWN}/dbt-sync/none/result", key=token(issuer, kind)).status,
            server.post(b"", path="/api/v1/quarantine/replay", key=token(issuer, kind)).status,
        )
        for kind in ("ingest", "read", "sync", "admin")
    }
    assert responses == {
        "ingest": (202, 403, 403, 403),
        "read": (403, 200, 404, 403),
        "sync": (403, 403, 404, 403),
        "admin": (202, 200, 404, 200),
    }
    both = token(issuer, "ingest", "read")
    assert (server.post(view(), key=both).status, server.get(VIEWS, key=both).status) == (202, 200)


def test_a_token_without_a_scope_of_embedsink_gets_403(issuer: Issuer, server: RunningServer) -> None:
    for response in (
        server.post(view(), key=issuer.token(deployments="*", scope="openid")),
        server.get(VIEWS, key=issuer.token(deployments="*", scope="openid")),
    ):
        assert reason(response) == (403, "wrong_kind")
        assert "the key has no permission" in response.json()["detail"]
        assert response.headers["www-authenticate"] == 'Bearer realm="embedsink", error="insufficient_scope"'


@pytest.mark.parametrize(
    "changes", [{"exp": 1_700_000_000}, {"aud": "https://other.example"}, {"iss": "https://evil.example"}]
)
def test_an_invalid_token_gets_401_with_its_cause(
    issuer: Issuer, server: RunningServer, changes: dict[str, Any]
) -> None:
    invalid = token(issuer, "admin", **changes)
    for response in (server.post(view(), key=invalid), server.get(VIEWS, key=invalid)):
        assert reason(response) == (401, "bad_credential")
        assert response.json()["detail"].startswith("authorization: the access token ")
        assert response.headers["www-authenticate"] == 'Bearer realm="embedsink", error="invalid_token"'
        assert invalid not in response.body.decode()
    assert invalid not in server.log.read_text()


def test_a_token_reads_and_writes_only_its_deployments(issuer: Issuer, server: RunningServer) -> None:
    scoped = token(issuer, "ingest", "read", deployments=[OWN])

    def delivery(deployment: int | None) -> dict[str, Any]:
        return {"context": {"deployment": deployment}, "events": [view()]}

    assert server.post(delivery(OWN), key=scoped).status == 202
    assert reason(server.post(delivery(OTHER), key=scoped)) == (403, "out_of_scope")
    assert reason(server.get(f"{VIEWS}?deployment={OTHER}", key=scoped)) == (403, "out_of_scope")
    assert server.post(delivery(OTHER), key=token(issuer, "ingest")).status == 202
    all_views = f"/api/v1/inspect?deployment={OTHER}&since=1h"
    wait_until(
        lambda: server.get(all_views, key=token(issuer, "read")).json()["isComplete"], description="it is loaded"
    )
    rows = server.get("/api/v1/deployments", key=scoped).json()["deployments"]
    assert [row["deploymentId"] for row in rows] == [OWN]
    assert str(OTHER) not in server.get("/api/v1/events.ndjson", key=scoped).body.decode()
    assert reason(server.get(VIEWS, key=token(issuer, "read", deployments=None))) == (401, "bad_credential")
    assert reason(server.get(VIEWS, key=token(issuer, "read", deployments=[]))) == (401, "bad_credential")


def test_pages_of_the_origins_may_send_events(issuer: Issuer, server: RunningServer) -> None:
    key = token(issuer, "ingest")
    assert server.post(view(), key=key, Origin=PAGE).status == 202
    assert reason(server.post(view(), key=key, Origin="https://evil.example")) == (403, "wrong_origin")
    assert server.get(VIEWS, key=token(issuer, "read"), Origin="https://evil.example").status == 403


def test_without_origins_only_programs_may_use_tokens(own_issuer: Issuer, tmp_path: Path) -> None:
    with server_that_trusts(own_issuer, tmp_path) as server:
        key = own_issuer.token(scope="embedsink:read embedsink:ingest")
        assert server.get(VIEWS, key=key).status == 200
        assert server.post(view(), key=key).status == 202
        assert reason(server.post(view(), key=key, Origin=PAGE)) == (403, "wrong_origin")
        assert reason(server.get(VIEWS, key=key, Origin=PAGE)) == (403, "wrong_origin")
        assert httpx2.options(f"{server.url}/api/v1/events", headers={"Origin": PAGE}).status_code == 403


def test_a_body_and_a_login_accept_no_token(issuer: Issuer, server: RunningServer) -> None:
    key = token(issuer, "admin")
    assert reason(server.post({"key": key, "events": [view()]})) == (401, "no_credential")
    form = f"key={key}&next=/dashboards/".encode()
    login = server.post(form, path="/login", **{"Content-Type": "application/x-www-form-urlencoded"})
    assert (login.status, "set-cookie" in login.headers) == (401, False)
    assert "This key is unknown, expired or revoked." in login.body.decode()
    assert reason(server.get(f"{VIEWS}?access_token={key}")) == (401, "bad_credential")


def test_a_field_of_an_event_may_look_like_a_token(server: RunningServer) -> None:
    key = server.key("ingest")
    for text in ("sales.orders.total", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"):
        event = view()
        event["payload"]["key"] = text
        for body in ({"key": key, "events": [event]}, {"events": [event], "key": key}):
            assert server.post(body).status == 202


def test_a_notebook_reads_with_a_token(issuer: Issuer, server: RunningServer) -> None:
    assert "period_start" in embedsink.connect(server.url, key=token(issuer, "read")).report("views").columns


def test_events_have_the_id_of_the_subject(issuer: Issuer, server: RunningServer) -> None:
    for number in (1, 2):
        response = server.post(
            {"context": {"deployment": OWN}, "events": [view(), {}]},
            key=token(issuer, "ingest", jti=str(number), sub="pipeline"),
        )
        assert response.status == 202
    reader = token(issuer, "read")
    assert server.get("/api/v1/inspect?since=1h&wait=5", key=reader).json()["isComplete"]
    [key_id] = {row["key_id"] for row in server.get("/api/v1/quarantine", key=reader).json()}
    assert re.fullmatch("t_[0-9a-f]{12}", key_id)


def test_no_token_is_stored(issuer: Issuer, server: RunningServer) -> None:
    secret = token(issuer, "admin")
    key = server.key("ingest")
    for body in (
        [{"key": secret, "type": "x"}],
        [view() | {"source": secret}],
        f'{{"key":"{secret}","events":['.encode(),
    ):
        server.post(body, key=key)
    # A token in the header of a request with a malformed body.
    server.post(f'{{"key":"{secret}","events":['.encode(), key=token(issuer, "ingest"))
    server.post(view({"path": f"/?token={secret}"}), key=key)
    reader = server.key("read")
    wait_until(
        lambda: b"jwt_\xe2\x80\xa6" in server.get("/api/v1/quarantine", key=reader).body, description="rejections"
    )
    signature = secret.rpartition(".")[2].encode()
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert [path.name for path in files if signature in path.read_bytes()] == []


@pytest.fixture
def own_issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


def test_a_rotated_key_is_accepted_at_once_and_a_removed_key_is_refused(own_issuer: Issuer, tmp_path: Path) -> None:
    injected = "from embedsink.auth import signing_keys; signing_keys.COOL_DOWN_S = 0.1"
    with server_that_trusts(own_issuer, tmp_path, injected=injected) as server:
        old = own_issuer.token(scope="embedsink:read")
        assert server.get(VIEWS, key=old).status == 200
        with open_stream(server.url, old) as stream:
            stream.message("connected")
            time.sleep(0.2)
            own_issuer.rotate("second", keep=False)
            # A request for a report waits until the keys are fetched.
            assert server.get(VIEWS, key=own_issuer.token(scope="embedsink:read")).status == 200
            wait_until(lambda: stream.ended_at is not None, description="the stream has ended")
        wait_until(lambda: server.get(VIEWS, key=old).status == 401, description="the old token is refused")
        time.sleep(0.2)
        own_issuer.rotate("third")
        key = own_issuer.token(scope="embedsink:ingest")
        first_response = server.post(view(), key=key)  # The fast path does not wait.
        assert reason(first_response) == (503, "not_ready")
        assert int(first_response.headers["retry-after"]) <= 2
        wait_until(lambda: server.post(view(), key=key).status == 202, description="the token is accepted")


def test_without_its_issuer_a_server_accepts_keys_and_answers_503_to_tokens(own_issuer: Issuer, tmp_path: Path) -> None:
    own_issuer.respond = own_issuer.fail
    with server_that_trusts(own_issuer, tmp_path) as server:
        key = own_issuer.token(scope="embedsink:read embedsink:ingest")
        for response in (server.get(VIEWS, key=key), server.post(view(), key=key)):
            assert reason(response) == (503, "not_ready")
            assert "retry-after" in response.headers
        assert server.get(VIEWS, key=server.key("read")).status == 200
        assert server.post(view(), key=server.key("ingest")).status == 202
        assert "issuer_unreachable" in server.log.read_text()


def test_a_silent_issuer_delays_neither_keys_nor_the_shutdown(own_issuer: Issuer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    make_folder(data)
    is_over = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not is_over.wait(0.1):
            handler.wfile.write(b"X: 1\r\n")

    own_issuer.respond = trickle
    (data / "identity.toml").write_text(own_issuer.toml())
    injected = "from embedsink.auth import signing_keys as s; s.FETCH_S_MAX = 2.0; s.COOL_DOWN_S = 0.1"
    with running_server(data, injected=injected) as server:
        assert server.post(view(), key=server.key("ingest")).status == 202
        key = own_issuer.token(scope="embedsink:read")
        assert reason(server.get(VIEWS, key=key)) == (503, "not_ready")
        wait_until(lambda: len(own_issuer.paths) > 1, description="the fetch is given up, and the next one starts")
        stopped_at = time.monotonic()
        server.stop()
        assert time.monotonic() - stopped_at < 10
        assert "did not respond within 2 s" in server.log.read_text()
    is_over.set()


def test_a_stream_ends_when_its_token_expires(own_issuer: Issuer, tmp_path: Path) -> None:
    injected = "from embedsink.auth import claims, signed_tokens as s; claims.LEEWAY_S = s.LEEWAY_S = 0"
    with server_that_trusts(own_issuer, tmp_path, injected=injected) as server:
        key = own_issuer.token(scope="embedsink:read", exp=int(time.time()) + 10)
        with open_stream(server.url, key) as stream:
            stream.message("connected")
            wait_until(lambda: stream.ended_at is not None, description="the stream has ended", timeout_s=20)
        assert reason(server.get(VIEWS, key=key)) == (401, "bad_credential")


def test_a_server_without_issuers_does_not_import_cryptography() -> None:
    code = "import sys, embedsink.http.server; sys.exit('cryptography' in sys.modules or 'joserfc' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_invalid_identity_file_stops_the_start_with_one_message(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make_folder(data)
    (data / "identity.toml").write_text("[[issuers]]\nissuer = 'http://login.example.com'\naudience = 'a'\n")
    served, examined = (
        subprocess.run([sys.executable, "-m", "embedsink", *words, "--data", data], capture_output=True, text=True)
        for words in (["serve", "--port", str(free_port())], ["doctor"])
    )
    assert (served.returncode, served.stdout, len(served.stderr.splitlines())) == (1, "", 1)
    assert "identity.toml: issuers[0].issuer: " in served.stderr
    assert "identity.toml: issuers[0].issuer: " in examined.stdout
