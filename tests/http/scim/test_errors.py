"""Errors of the server itself have the format of SCIM, and keep their headers (RFC 7644, section 3.12)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from embedsink.concurrency.limiter import ConcurrencyLimiter
from embedsink.errors import Unavailable
from embedsink.reasons import Reason
from tests.support.app import Server, open_server

ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
USERS = "/api/scim/v2/Users"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with open_server(tmp_path) as server:
        yield server


def assert_scim_error(response: httpx2.Response, status: int, *headers: str) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/scim+json"
    assert response.headers["cache-control"] == "no-store"
    assert {"x-request-id", *headers} <= response.headers.keys()
    body = response.json()
    assert body.pop("detail")
    assert body == {"schemas": [ERROR], "status": str(status)}


def test_an_overloaded_directory_answers_503(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.engine.limiters, "directory", ConcurrencyLimiter(0, waiting_max=0))
    assert_scim_error(server.get(USERS, key=server.key("scim")), 503, "retry-after")


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (Unavailable(Reason.NOT_READY, "directory: later"), 503, ["retry-after"]),
        (RuntimeError("private text"), 500, []),
    ],
    ids=["unavailable", "bug"],
)
def test_a_directory_that_fails_answers_an_error(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, headers: list[str]
) -> None:
    async def answer(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(server.engine.directory, "answer", answer)
    response = server.get(USERS, key=server.key("scim"))
    assert_scim_error(response, status, *headers)
    assert "private text" not in response.text


def test_a_method_that_is_not_supported_is_refused_with_those_that_are(server: Server) -> None:
    response = server.request("DELETE", USERS, key=server.key("scim"))
    assert_scim_error(response, 405, "allow")
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_too_many_requests_without_a_key_get_429(tmp_path: Path) -> None:
    with open_server(tmp_path, rate_anonymous_per_s=1) as server:
        # The burst is the allowance of two seconds.
        *allowed, refused = [server.get(USERS) for _ in range(3)]
        assert [response.status_code for response in allowed] == [401, 401]
        assert_scim_error(refused, 429, "retry-after")


def test_a_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with open_server(tmp_path, body_bytes_max=65_536) as server:
        key, headers = server.key("scim"), {"content-type": "application/scim+json"}
        assert_scim_error(server.request("POST", USERS, key=key, content=b" " * 65_537, headers=headers), 413)


def test_the_server_starts_without_the_libraries_of_the_protocol() -> None:
    script = "import sys, embedsink.http.app; sys.exit(any(name.startswith('scim2_') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
