"""Request bodies at their limits: size, time, compression, and bytes in flight."""

import asyncio
import contextlib
import gzip
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from embedsink.errors import Refused, Unavailable
from embedsink.http.rate_limiter import Sender
from embedsink.http.wire.request_body import ANONYMOUS_BYTES_MAX, BodyReader, InflightBytes
from embedsink.ingest.pipeline import GZIP_MEMBERS_MAX
from embedsink.settings import Settings
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import event_or_action, view

LIMIT = 4_096
MIB = 1_048_576
ENVELOPE = json.dumps(event_or_action("event:error", {"message": "%s"}), separators=(",", ":")).encode()


def envelope(size: int) -> bytes:
    """Return a valid envelope of exactly this size."""
    return ENVELOPE % (b"x" * (size - len(ENVELOPE) + 2))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with open_server(tmp_path_factory.mktemp("small"), body_bytes_max=LIMIT) as server:
        yield server


async def in_parts(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1])
@pytest.mark.parametrize("part_bytes", [100, LIMIT, LIMIT + 1])
@pytest.mark.parametrize("declared", [True, False])
def test_the_body_size_limit_is_exact(small: Server, size: int, part_bytes: int, declared: bool) -> None:
    body = (b"[" + envelope(1_000)).ljust(size - 1) + b"]"
    headers = {"content-length": str(size)} if declared else {}
    response = small.post(in_parts(body, part_bytes), key=small.key(), **headers)
    if size <= LIMIT:
        assert response.status_code == 202
    else:
        assert (response.status_code, problem(response)) == (413, "body_too_large")
        assert f"{LIMIT:,} (EMBEDSINK_BODY_BYTES_MAX)" in response.json()["detail"]


@pytest.mark.parametrize("parts", [[LIMIT + 1], [1, LIMIT]])
def test_the_last_part_of_an_undeclared_body_is_limited_too(parts: list[int]) -> None:
    messages = [{"body": bytes(size), "more_body": index < len(parts) - 1} for index, size in enumerate(parts)]

    async def receive() -> Message:
        return {"type": "http.request"} | messages.pop(0)

    reader = BodyReader(Settings(body_bytes_max=LIMIT))
    with pytest.raises(Refused, match=f"the limit is {LIMIT:,}"):
        asyncio.run(reader.read(receive, Sender("192.0.2.1")))


def test_a_declared_length_beyond_the_limit_is_refused(small: Server) -> None:
    async def never() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""  # type: ignore[unreachable]

    answer = small.post(never(), key=small.key(), **{"content-length": str(LIMIT + 1)})
    assert problem(answer) == "body_too_large"


def test_settings_limit_the_number_the_size_and_the_depth_of_envelopes(tmp_path: Path) -> None:
    bodies: dict[int, list[Any]] = {
        202: [[view()] * 3, view({"more": [[[1]]]}), envelope(2_048)],
        413: [[view()] * 4],
        400: [view({"more": [[[[1]]]]})],
        422: [envelope(2_049)],
    }
    with open_server(tmp_path, events_max=3, depth_max=5, envelope_bytes_max=2_048) as server:
        for status, of_this_status in bodies.items():
            for body in of_this_status:
                assert server.post(body, key=server.key()).status_code == status


def test_gzip_with_one_or_several_members_is_decompressed(server: Server) -> None:
    body = envelope(500)
    several = gzip.compress(body[:100]) + gzip.compress(body[100:])
    for packed in (gzip.compress(body), several):
        response = server.post(packed, key=server.key(), content_encoding="gzip")
        assert (response.status_code, response.json()["accepted"]) == (202, 1)


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "zstd", "x"])
def test_unknown_and_stacked_encodings_are_refused(server: Server, coding: str) -> None:
    response = server.post(gzip.compress(gzip.compress(envelope(500))), key=server.key(), content_encoding=coding)
    assert (response.status_code, problem(response)) == (415, "encoding")


def test_stacked_encodings_in_two_headers_are_refused(server: Server) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-encoding", b"gzip"), (b"content-encoding", b"gzip")]
    answer = server.request("POST", "/api/v1/events", key=server.key(), headers=headers, content=b"x")
    assert problem(answer) == "encoding"


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(envelope(500))[:-1],
        gzip.compress(envelope(500))[:30],
        gzip.compress(envelope(500)) + b"more",
        gzip.compress(envelope(500))[:-8] + bytes(8),
        envelope(500),
    ],
    ids=["no last byte", "cut", "more after it", "wrong checksum", "plain"],
)
def test_damaged_gzip_is_refused_and_not_stored(server: Server, body: bytes) -> None:
    before = len(server.journaled())
    response = server.post(body, key=server.key(), content_encoding="gzip")
    assert (response.status_code, problem(response)) == (415, "encoding")
    assert len(server.journaled()) == before


def test_a_gzip_bomb_is_refused_at_the_limit(server: Server) -> None:
    bomb = gzip.compress(bytes(128 * 1_048_576))
    started_at = time.perf_counter()
    assert problem(server.post(bomb, key=server.key(), content_encoding="gzip")) == "body_too_large"
    assert time.perf_counter() - started_at < 0.5


@pytest.mark.parametrize("excess", [0, 1])
def test_the_limit_after_decompression_is_exact(small: Server, excess: int) -> None:
    body = envelope(1_000).ljust(LIMIT + excess)
    response = small.post(gzip.compress(body), key=small.key(), content_encoding="gzip")
    assert response.status_code == (413 if excess else 202)
    assert ("too many bytes after decompression" in response.text) == bool(excess)


def test_a_body_of_empty_gzip_members_is_refused_quickly(server: Server) -> None:
    body = gzip.compress(b"") * 50_000
    started_at = time.perf_counter()
    response = server.post(body, key=server.key(), content_encoding="gzip")
    assert problem(response) == "encoding"
    assert f"more than {GZIP_MEMBERS_MAX}" in response.json()["detail"]
    assert time.perf_counter() - started_at < 0.5


@pytest.mark.parametrize("first", [b"", b"["])
def test_a_slow_body_answers_408_and_closes_the_connection(tmp_path: Path, first: bytes) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield first
        await asyncio.sleep(30)

    with open_server(tmp_path, body_timeout_s=0.1) as server:
        key = server.key()
        for _ in range(2):  # The second request has its own timer.
            started_at = time.perf_counter()
            response = server.post(slow(), key=key)
            assert (response.status_code, problem(response)) == (408, "body_too_slow")
            assert response.headers["connection"] == "close"
            assert 0.08 < time.perf_counter() - started_at < 2
            assert server.post(view(), key=key).status_code == 202


def test_trickling_bytes_do_not_extend_the_timeout(tmp_path: Path) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    with open_server(tmp_path, body_timeout_s=0.1) as server:
        assert problem(server.post(drip(), key=server.key())) == "body_too_slow"


def test_a_client_that_disconnects_gets_no_answer_and_stores_nothing(server: Server) -> None:
    before = len(server.journaled())
    authorization = (b"authorization", f"Bearer {server.key()}".encode())
    first_part: Message = {"type": "http.request", "body": b"[", "more_body": True}
    disconnect: Message = {"type": "http.disconnect"}
    for messages in ([disconnect], [first_part, disconnect]):
        assert server.run(messages, [authorization, (b"content-type", b"text/plain")]) == []
    assert len(server.journaled()) == before


def test_bytes_in_flight_are_released(tmp_path: Path) -> None:
    with open_server(tmp_path, inflight_bytes_max=1_048_576) as server:
        key = server.key()
        for _ in range(5):
            response = server.post(in_parts(envelope(60_000).ljust(900_000), 100_000), key=key)
            assert response.status_code == 202


@pytest.mark.parametrize("type_", ["application/json", "text/plain", "application/x-ndjson"])
def test_no_body_causes_a_500(server: Server, type_: str) -> None:
    key, rng = server.key(), random.Random(7)
    for _ in range(50):
        response = server.post(rng.randbytes(rng.randrange(200)), key=key, type_=type_)
        assert response.status_code == 400


def test_an_anonymous_body_is_read_only_as_far_as_the_key_may_be(server: Server) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 16_384
            yield b'{"a":1,"a":1,"a":'.ljust(16_384)

    response = server.post(endless())
    assert (response.status_code, problem(response)) == (401, "no_credential")
    assert "65,536 bytes" in response.json()["detail"]
    assert read <= ANONYMOUS_BYTES_MAX + 2 * 16_384


def test_anonymous_bodies_have_a_separate_memory_limit(tmp_path: Path) -> None:
    with open_server(tmp_path, inflight_bytes_max=MIB) as server:
        inflight = server.state["admission"].bodies._anonymous_inflight
        for address in ("192.0.2.1", "192.0.2.2"):
            inflight.acquire(Sender(address), ANONYMOUS_BYTES_MAX)
        stranger = server.post(in_parts(b" " * ANONYMOUS_BYTES_MAX, 8_192))
        assert (stranger.status_code, problem(stranger)) == (503, "overloaded")
        assert server.post(in_parts(json.dumps([view()] * 900).encode(), 65_536), key=server.key()).status_code == 202


def test_no_address_and_no_key_can_use_all_memory_for_bodies() -> None:
    inflight = InflightBytes(16, body_bytes_max=1)
    hold_all(inflight, Sender("192.0.2.1", "k_1"), 6)
    hold_all(inflight, Sender("192.0.2.2", "k_1"), 3)
    hold_all(inflight, Sender("192.0.2.3", "k_1"), 2)
    inflight.release(Sender("192.0.2.1", "k_1"), 6)
    hold_all(inflight, Sender("192.0.2.2", "k_1"), 2)
    hold_all(inflight, Sender("192.0.2.1", "k_2"), 6)
    hold_all(inflight, Sender("192.0.2.4", "k_3"), 3)


def test_slow_addresses_of_a_key_leave_memory_for_another_address() -> None:
    inflight = InflightBytes(64, body_bytes_max=1)
    for number in range(2):
        sender = Sender(f"192.0.2.{number}", "k_1")
        with contextlib.suppress(Unavailable):
            for _ in range(60):
                inflight.acquire(sender, 1)
    inflight.acquire(Sender("192.0.2.9", "k_1"), 1)


def hold_all(inflight: InflightBytes, sender: Sender, most: int) -> None:
    """Acquire bytes one by one, and assert the exact limit."""
    for _ in range(most):
        inflight.acquire(sender, 1)
    with pytest.raises(Unavailable):
        inflight.acquire(sender, 1)
