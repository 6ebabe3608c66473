"""Every reason of the closed list, provoked over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import embedsink.http.api.events
import embedsink.journal.open_segment
from embedsink.reasons import Reason
from tests.support.app import EVENTS, NEVER_S, PAGE, Server, open_server, problem
from tests.support.envelopes import view

ID = "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"
MIB = 1_048_576

BODIES: dict[Reason, bytes] = {
    Reason.NOT_JSON: b'{"source": ',
    Reason.NOT_UTF8: b'{"source": "\xff"}',
    Reason.TOO_DEEP: b"[" * 33 + b"]" * 33,
    Reason.DUPLICATE_KEY: b'{"source": 1, "source": 2}',
    Reason.NOT_FINITE: b"[1e400]",
    Reason.EMPTY: b"[]",
}
ENVELOPES: dict[Reason, Any] = {
    Reason.NOT_AN_OBJECT: "view",
    Reason.WRONG_SOURCE: view(source="other-embed"),
    Reason.WRONG_DIRECTION: view(direction="sideways"),
    Reason.UNKNOWN_TYPE: view(type="svc:event:blink"),
    Reason.BAD_FIELD: view({"path": 7}),
    Reason.WRONG_SURFACE: view(type="svc:event:download", surface="chat"),
    Reason.BAD_TIMESTAMP: view(timestamp="yesterday"),
    Reason.TOO_LARGE: view({"title": "x" * 70_000}),
    Reason.BAD_TEXT: view({"title": "\0"}),
}


@pytest.fixture(scope="module")
def quick_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with open_server(tmp_path_factory.mktemp("quick"), segment_seal_s=0.01) as opened:
        yield opened


async def slow_body() -> AsyncIterator[bytes]:
    yield b"["
    await asyncio.sleep(5)


async def body_in_parts() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b" " * MIB


def two_credentials(server: Server, _: Path) -> httpx2.Response:
    key = server.key()
    return server.post({"events": [view()], "key": key}, key=key)


def wrong_origin(server: Server, _: Path) -> httpx2.Response:
    return server.post(view(), key=server.key(origins=[PAGE]), origin="https://evil.example.com")


def plain_http(_: Server, path: Path) -> httpx2.Response:
    with open_server(path, https_only=True) as server:
        return server.post(view(), key=server.key())


def body_too_slow(_: Server, path: Path) -> httpx2.Response:
    with open_server(path, body_timeout_s=0.1) as server:
        return server.post(slow_body(), key=server.key())


def rate_limited(_: Server, path: Path) -> httpx2.Response:
    with open_server(path, rate_events_per_s=1) as server:
        key = server.key()
        assert server.post([view(), view()], key=key).status_code == 202
        return server.post(view(), key=key)


def overloaded(_: Server, path: Path) -> httpx2.Response:
    with open_server(path, body_bytes_max=4 * MIB, inflight_bytes_max=MIB) as server:
        return server.post(body_in_parts(), key=server.key())


def storage_low(_: Server, path: Path) -> httpx2.Response:
    with open_server(path, free_bytes_min=2**62) as server:
        key = server.key()
        server.get("/readyz")  # this write makes the journal measure the free space
        return server.post(view(), key=key)


def storage_failed(_: Server, path: Path) -> httpx2.Response:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with open_server(path) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedsink.journal.open_segment, "fdatasync", fail)
        return server.post(view(), key=server.key())


def not_ready(_: Server, path: Path) -> httpx2.Response:
    (path / "damaged").mkdir()
    (path / "damaged" / "000000000001-00000000.ndjson").write_bytes(b"damaged")
    with open_server(path) as server:
        return server.get("/readyz")


def internal_error(server: Server, _: Path) -> httpx2.Response:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("internals")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedsink.http.api.events, "parse_fast", fail)
        return server.post(view(), key=server.key())


def record(result: dict[str, Any], server: Server) -> httpx2.Response:
    path = "/api/v1/deployments/1/dbt-sync/job1/result"
    return server.request("PUT", path, key=server.key("sync"), json=result)


def conflict(_: Server, path: Path) -> httpx2.Response:
    result = {
        "syncJobId": "job1",
        "generatedFiles": [],
        "manifestStats": {"models": 1, "sources": 1, "macros": 1},
        "svcCount": 1,
        "completedAt": "2025-11-20T00:00:00Z",
        "durationMs": 1,
    }
    with open_server(path) as server:
        assert record(result, server).status_code == 200
        return record(result | {"durationMs": 2}, server)


def bad_range(_: Server, path: Path) -> httpx2.Response:
    with open_server(path, snapshot_interval_s=NEVER_S) as server:
        server.folder.snapshot.write_bytes(b"1234567")
        headers = {"range": "bytes=999999999999-"}
        return server.get("/api/v1/analytics.duckdb", key=server.key("read"), headers=headers)


REQUESTS: dict[Reason, Callable[[Server, Path], httpx2.Response]] = {
    Reason.TWO_CREDENTIALS: two_credentials,
    Reason.BAD_PARAMETER: lambda server, _: server.get("/api/v1/reports/views?surface=moon", key=server.key("read")),
    Reason.NO_CREDENTIAL: lambda server, _: server.post(view()),
    Reason.BAD_CREDENTIAL: lambda server, _: server.post(view(), key="es_ingest_wrong"),
    Reason.WRONG_ORIGIN: wrong_origin,
    Reason.WRONG_KIND: lambda server, _: server.post(view(), key=server.key("read")),
    Reason.PLAIN_HTTP: plain_http,
    Reason.NOT_FOUND: lambda server, _: server.get("/api/v1/nothing"),
    Reason.METHOD_NOT_ALLOWED: lambda server, _: server.request("DELETE", EVENTS),
    Reason.BODY_TOO_SLOW: body_too_slow,
    Reason.BODY_TOO_LARGE: lambda server, _: server.post(b" " * (MIB + 1), key=server.key()),
    Reason.TOO_MANY_EVENTS: lambda server, _: server.post([view()] * 1_001, key=server.key()),
    Reason.MEDIA_TYPE: lambda server, _: server.post(view(), key=server.key(), type_="multipart/form-data"),
    Reason.ENCODING: lambda server, _: server.post(view(), key=server.key(), content_encoding="br"),
    Reason.CONFLICT: conflict,
    Reason.INVALID_BODY: lambda server, _: record({"syncJobId": "job1"}, server),
    Reason.BAD_RANGE: bad_range,
    Reason.NOTHING_ACCEPTED: lambda server, _: server.post([1], key=server.key()),
    Reason.RATE_LIMITED: rate_limited,
    Reason.OVERLOADED: overloaded,
    Reason.STORAGE_LOW: storage_low,
    Reason.STORAGE_FAILED: storage_failed,
    Reason.NOT_READY: not_ready,
    Reason.INTERNAL_ERROR: internal_error,
    Reason.OUT_OF_SCOPE: lambda server, _: server.post(
        {"context": {"deployment": 2}, "events": [view()]}, key=server.key(deployments=[1])
    ),
}


def lines_under(path: Path) -> list[bytes]:
    """Return the journal of a server that was opened for one case."""
    content = b"".join(segment.read_bytes() for segment in path.rglob("journal/*"))
    return [line for line in content.splitlines() if line.startswith(b'{"kind"')]


# The number of records that a case stores before the refused request.
STORED_BEFORE = {Reason.RATE_LIMITED: 2, Reason.CONFLICT: 1}


def test_every_reason_has_a_case() -> None:
    assert set(BODIES) | set(ENVELOPES) | set(REQUESTS) | {Reason.ID_CONFLICT, Reason.ERASED} == set(Reason)


@pytest.mark.parametrize("reason", REQUESTS)
def test_a_refused_request_gets_its_status_and_stores_nothing(reason: Reason, server: Server, tmp_path: Path) -> None:
    before = len(server.journaled())
    response = REQUESTS[reason](server, tmp_path)
    assert (problem(response), response.status_code) == (reason, reason.status)
    assert response.json()["title"] == reason.sentence
    stored = 1 if reason is Reason.NOTHING_ACCEPTED else 0
    assert len(server.journaled()) - before == stored
    assert len(lines_under(tmp_path)) == STORED_BEFORE.get(reason, 0)


@pytest.mark.parametrize("reason", BODIES)
def test_an_unreadable_body_is_quarantined(reason: Reason, server: Server) -> None:
    response = server.post(BODIES[reason], key=server.key())
    assert (problem(response), response.status_code) == (reason, 400)
    line = server.journaled()[-1]
    assert (line["kind"], line["reason"], line["index"]) == ("quarantined", reason, None)
    assert line["detail"] == response.json()["detail"]


@pytest.mark.parametrize("reason", ENVELOPES)
def test_one_envelope_is_rejected_without_the_others(reason: Reason, server: Server) -> None:
    response = server.post([view(id=ID), ENVELOPES[reason]], key=server.key())
    assert response.status_code == 202
    assert response.json()["accepted"] == 1
    [rejected] = response.json()["rejected"]
    assert (rejected["index"], rejected["reason"]) == (1, reason)
    line = server.journaled()[-1]
    assert (line["kind"], line["reason"], line["detail"]) == ("quarantined", reason, rejected["detail"])


def test_an_envelope_without_a_deployment_is_outside_a_scope_of_several(server: Server) -> None:
    response = server.post({"events": [view()]}, key=server.key(deployments=[1, 2]))
    assert problem(response) == Reason.NOTHING_ACCEPTED
    assert response.json()["rejected"][0]["reason"] == Reason.OUT_OF_SCOPE


def test_an_id_with_other_content_is_quarantined_by_the_loader(quick_server: Server) -> None:
    key, reader = quick_server.key(), quick_server.key("read")
    for title in ("first", "second"):
        assert quick_server.post(view({"title": title}, id=ID), key=key).status_code == 202
    [row] = quick_server.rows("/api/v1/quarantine", key=reader)
    assert row["reason"] == Reason.ID_CONFLICT
