"""Limits on anonymous requests and on expensive bodies."""

import asyncio
import gzip
import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

import embedsink.http.anonymous_limits
import embedsink.http.api.dbt_syncs
import embedsink.http.api.events
import embedsink.http.sync_body
from embedsink.http.anonymous_limits import AnonymousLimits, Bucket
from embedsink.http.rate_limiter import Sender
from embedsink.http.wire.raw_response import RawResponse
from embedsink.http.wire.request_body import ANONYMOUS_BYTES_MAX
from embedsink.ingest.worker_process import IngestWorker
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import KEY, view

KIB, MIB = 1_024, 1_048_576
HOSTILE = b"{" + b'"a":1,' * 5_000 + b'"a":1}'
INVALID = b'{"a":"%b"}' % (b"a" * len(HOSTILE))  # as a dbt sync


def fail(*_: object, **__: object) -> Any:
    pytest.fail("it was parsed")


@pytest.fixture
def nothing_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("parse_fast", "parse_and_encode"):
        monkeypatch.setattr(embedsink.http.api.events, name, fail)
    monkeypatch.setattr(IngestWorker, "submit", fail)


@pytest.mark.usefixtures("nothing_is_parsed")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (HOSTILE, "no_credential"),
        (HOSTILE * 30, "no_credential"),
        (b"", "no_credential"),
        (json.dumps([view()] * 1_000).encode(), "no_credential"),
        (json.dumps({"key": KEY, "events": [view()]}).encode(), "bad_credential"),
        (json.dumps({"key": "x", "events": [view()]}).encode(), "bad_credential"),
        (gzip.compress(bytes(MIB)), "no_credential"),
    ],
    ids=["hostile", "large", "empty", "good", "unknown key", "no key", "gzip"],
)
def test_an_anonymous_body_is_never_parsed(server: Server, body: bytes, reason: str) -> None:
    coding = {"content_encoding": "gzip"} if body.startswith(b"\x1f") else {}
    response = server.post(body, **coding)
    assert (response.status_code, problem(response)) == (401, reason)


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_the_key_of_a_larger_body_must_be_in_its_first_64_kib(server: Server, coding: str) -> None:
    key, events = server.key(), [view({"title": f"{number:0100}"}) for number in range(400)]
    for body, status in (({"key": key, "events": events}, 202), ({"events": events, "key": key}, 401)):
        content = json.dumps(body).encode()
        assert len(content) > ANONYMOUS_BYTES_MAX
        packed = gzip.compress(content) if coding else content
        assert server.post(packed, content_encoding=coding or "identity").status_code == status


def test_a_key_outside_the_delivery_object_is_ignored(server: Server) -> None:
    key, other, before = server.key(), server.key(), len(server.journaled())
    stray = view({"key": key})
    assert problem(server.post([stray])) == "no_credential"
    assert problem(server.post({"events": [stray], "key": other})) == "bad_credential"
    assert len(server.journaled()) == before
    assert server.post({"events": [view({"key": KEY})], "key": key}).status_code == 202


def test_an_unreadable_body_with_a_key_is_not_stored(server: Server) -> None:
    before = len(server.journaled())
    for body in (b'{"key": "%b", "events": [' % server.key().encode(), b'{"key": "%b", "a":1,' % server.key().encode()):
        response = server.post(body + b'"a":1,' * 10_000)
        assert (response.status_code, problem(response)) == (401, "no_credential")
    assert len(server.journaled()) == before


@pytest.mark.usefixtures("nothing_is_parsed")
def test_a_429_is_sent_before_the_body_is_parsed(tmp_path: Path) -> None:
    with open_server(tmp_path, rate_bytes_per_s=10_000) as server:
        key = server.key()
        known = server.engine.keys.find(key)
        assert known is not None
        server.state["admission"].rates.admit(Sender("", known.key_id), 19_999)
        for response in (
            server.post(b" " * 19_000, key=key),
            server.post(b'{"key":"%b"' % key.encode() + b" " * 19_000),
        ):
            assert (response.status_code, problem(response)) == (429, "rate_limited")


@pytest.mark.parametrize(
    "body",
    [
        HOSTILE,
        json.dumps([1] * 1_000).encode(),
        json.dumps([view()] * 300).encode(),
        b"[" + b"[]," * 5_000 + b"1]",
        b"1\n" * 1_000,
    ],
    ids=["a key again and again", "rejected", "large", "deep", "lines"],
)
def test_slow_bodies_are_never_parsed_on_the_event_loop(
    server: Server, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_ = "application/x-ndjson" if body.startswith(b"1\n") else "application/json"
    expected = server.post(body, key=server.key(), type_=type_)
    monkeypatch.setattr(embedsink.http.api.events, "parse_and_encode", fail)
    monkeypatch.setattr("embedsink.protocol.strict_json._decode_with_reasons", fail)
    monkeypatch.setattr("embedsink.protocol.envelope._find_problem", fail)
    response = server.post(body, key=server.key(), type_=type_)
    assert response.status_code == expected.status_code
    assert response.json().get("rejected", []) == expected.json().get("rejected", [])


def test_small_bodies_need_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IngestWorker, "submit", fail)
    with open_server(tmp_path) as server:
        key = server.key()
        for body in (view(), [view()] * 100, [view(), {}], b"{", b'{"a":1,"a":2}'):
            assert server.post(body, key=key).status_code in (202, 400)
        assert server.post(gzip.compress(json.dumps(view()).encode()), key=key, content_encoding="gzip").is_success


def test_unreadable_bodies_are_limited_without_delaying_small_events(tmp_path: Path) -> None:
    with open_server(tmp_path, rate_address_bytes_per_s=2 * MIB) as server:
        key = server.key()
        statuses = [server.post(b"x" * 500_000, key=key).status_code for _ in range(4)]
        assert statuses[0] == 400
        assert statuses[-1] == 429
        assert problem(server.post(HOSTILE[:20_000], key=key)) == "rate_limited"
        assert server.post(view(), key=key).status_code == 202
        assert server.post(b"x" * 500_000, key=server.key()).status_code == 400, "another key has a separate limit"


@pytest.mark.parametrize(
    "events",
    [[view()] * 1_001, [view()] * 1_000, [view()] * 3_000],
    ids=["too many", "accepted", "too large"],
)
def test_work_is_charged_by_the_decompressed_size(tmp_path: Path, events: list[Any]) -> None:
    with open_server(tmp_path, rate_address_bytes_per_s=MIB // 16) as server:
        key = server.key()
        body = gzip.compress(json.dumps(events).encode())
        assert len(body) < 16 * KIB
        statuses = [server.post(body, key=key, content_encoding="gzip").status_code for _ in range(3)]
        assert statuses[-1] == 429


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        pytest.param(b"{" + HOSTILE, "identity", "not_json", id="unreadable"),
        pytest.param(INVALID, "identity", "invalid_body", id="invalid"),
        pytest.param(gzip.compress(INVALID), "gzip", "invalid_body", id="invalid, compressed"),
    ],
)
def test_dbt_syncs_are_parsed_one_at_a_time_and_refused_ones_are_charged(
    body: bytes, encoding: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, running, most = embedsink.http.sync_body.parse_sync, 0, 0

    def record_and_parse(*arguments: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        try:
            return parse(*arguments)
        finally:
            running -= 1

    monkeypatch.setattr(embedsink.http.api.dbt_syncs, "parse_sync", record_and_parse)
    with open_server(tmp_path, rate_address_bytes_per_s=256 * KIB) as server:
        key = server.key("sync")

        async def put_all() -> list[httpx2.Response]:
            content = {"content-type": "application/json", "content-encoding": encoding}
            headers = httpx2.Headers({"authorization": f"Bearer {key}"} | content).raw
            address = "/api/v1/deployments/1/dbt-sync/job/result"
            return await asyncio.gather(
                *(server._request("PUT", address, list(headers), {"content": body}) for _ in range(10))
            )

        assert {problem(answer) for answer in server._runner.run(put_all())} == {reason}
        assert most == 1
        assert problem(server._runner.run(put_all())[-1]) == "rate_limited"
        assert server.post(view(), key=server.key()).status_code == 202


def test_an_address_without_a_valid_key_is_limited_and_valid_keys_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedsink.http.anonymous_limits, "RESPONSE_DELAY_S", 0.01)
    form = {"content-type": "application/x-www-form-urlencoded"}
    with open_server(tmp_path) as server:
        key, read = server.key(), server.key("read")
        login = server.request("POST", "/login", content=f"key={read}".encode(), headers=form)
        cookie = login.headers["set-cookie"].partition(";")[0]
        use_up(server)
        assert problem(server.post(view())) == "rate_limited"
        assert problem(server.post({"key": KEY, "events": [view()]})) == "rate_limited"
        assert server.post(view(), key=key).status_code == 202
        assert server.post({"key": key, "events": [view()]}).status_code == 202
        assert server.get("/api/v1/reports", key=read).status_code == 200
        assert server.get("/dashboards/", headers={"cookie": cookie}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/reports"),
        ("GET", "/docs"),
        ("GET", "/metrics"),
        ("GET", "/forwarder.js"),
        ("GET", "/nothing"),
        ("GET", "/login"),
        ("POST", "/login"),
        ("GET", "/dashboards/?" + "&" * 100),
        ("GET", "/api/v1/events"),
        ("OPTIONS", "/api/v1/events"),
        ("POST", "/healthz/"),
    ],
)
def test_every_path_counts_requests_without_a_valid_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    monkeypatch.setattr(embedsink.http.anonymous_limits, "RESPONSE_DELAY_S", 0.01)
    with open_server(tmp_path) as server:
        ingest = server.key()
        assert server.request(method, path).status_code != 429
        use_up(server)
        assert problem(server.request(method, path)) == "rate_limited"
        if (method, path) != ("OPTIONS", "/api/v1/events"):
            assert server.request(method, path, key=ingest).status_code == 429, (
                "an ingest key is public, so it exempts no request"
            )
        assert server.request(method, path, key=server.key("read")).status_code != 429


def test_probes_are_always_answered_and_never_delayed_by_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedsink.http.anonymous_limits, "RESPONSE_DELAY_S", 0.2)
    with open_server(tmp_path, rate_anonymous_per_s=1_000) as server:
        use_up(server)
        started_at = time.monotonic()
        assert server.get("/healthz").status_code == server.get("/readyz").status_code == 200
        assert time.monotonic() - started_at < 0.2
        limits = server.state["admission"].anonymous_limits
        limits._buckets.charge(("127.0.0.1", Bucket.PROBES), 10_000, time.monotonic())
        started_at = time.monotonic()
        assert server.get("/healthz").status_code == 200
        assert time.monotonic() - started_at > 0.2, "a flood of probes is delayed too"


def test_a_large_anonymous_body_costs_as_much_as_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.http.anonymous_limits, "RESPONSE_DELAY_S", 0.01)
    with open_server(tmp_path, rate_anonymous_per_s=5) as server:
        assert server.post(b" " * (MIB - 1)).status_code == 401
        assert server.post(b" " * (MIB - 1)).status_code == 401
        assert server.post(b"{}").status_code == 429


def use_up(server: Server) -> None:
    """Use up the anonymous rate of this address."""
    server.state["admission"].anonymous_limits._buckets.charge(("127.0.0.1", Bucket.REQUESTS), 10_000, time.monotonic())


def test_a_delayed_429_does_not_delay_other_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.http.anonymous_limits, "RESPONSE_DELAY_S", 3_600.0)
    with open_server(tmp_path, rate_anonymous_per_s=1) as server:
        endpoint = server.state["ingest_endpoint"]
        replies: list[RawResponse] = []
        scope = {
            "type": "http",
            "method": "POST",
            "scheme": "http",
            "path": "/api/v1/events",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "client": ("192.0.2.1", 1),
        }

        async def send_all() -> None:
            for client in (("192.0.2.1", 1), ("192.0.2.2", 1)):
                for _ in range(5):
                    request_scope = scope | {"state": dict(server.state), "client": client}
                    endpoint.ingest(request_scope, b"{}", replies.append)
            await asyncio.sleep(0)

        server._runner.run(send_all())
        assert [reply.status for reply in replies] == [401] * 4, "the other responses are delayed"


def test_delayed_answers_are_spaced_by_the_rate_of_one_address() -> None:
    limits, delayed = AnonymousLimits(100), []
    scope = {"state": {"delay_response": lambda delay_s, answer: delayed.append((delay_s, answer))}}
    for _ in range(3):
        limits.delay_response(scope, lambda: None)
    assert [delay_s for delay_s, _ in delayed] == pytest.approx([1.01, 1.02, 1.03])
    for _, answer in delayed:
        answer()
    limits.delay_response(scope, lambda: None)
    assert delayed[-1][0] == pytest.approx(1.01)


def test_the_worker_and_the_event_loop_use_the_same_rules(tmp_path: Path) -> None:
    with open_server(tmp_path, service_name="acme", events_max=400) as server:
        key, acme = server.key(), view(source="acme-embed", type="acme:event:view")
        for count in (1, 400):  # The event loop validates one envelope, and the worker validates 400.
            assert server.post([acme] * count, key=key).status_code == 202
            assert problem(server.post([view()] * count, key=key)) == "nothing_accepted"
        assert problem(server.post([acme] * 401, key=key)) == "too_many_events"
