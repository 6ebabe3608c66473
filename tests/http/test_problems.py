"""Errors: one format, no secrets, and one log line each."""

import json
import logging
import re
from typing import Any

import httpx2
import pytest

import embedsink.http.api.events
from embedsink.http.problems import ADVICE, advice_on
from embedsink.json_logging import JsonLines
from embedsink.reasons import Reason
from tests.support.app import Server, problem
from tests.support.envelopes import view

LONG = "a<b>\u202e\n" + "x" * 500


def wrong_values(server: Server, value: str) -> list[httpx2.Response]:
    """Return responses to requests with an invalid value at each position that an error message may quote."""
    key, reader = server.key(), server.key("read")
    plain = re.sub(r"[^\x20-\x7e]", "?", value)
    return [
        server.post([view({"path": {"no": value}})], key=key),
        server.post([view(type=value)], key=key),
        server.post([view(source=value)], key=key),
        server.post([view(surface=value)], key=key),
        server.post({"events": [view()], value: 1}, key=key),
        server.post({"events": [view()], "context": {value: 1}}, key=key),
        server.post({"events": [view()], "lost": {value: -1}}, key=key),
        server.post(
            json.dumps({"k": 1})[:-1].encode()
            + f', "{value[:5]}": 1, {json.dumps(value)}: 1, {json.dumps(value)}: 2}}'.encode(),
            key=key,
        ),
        server.post(view(), key=key, type_=plain),
        server.post(view(), key=server.key(origins=["https://app.example.com"]), origin=plain),
        server.get("/api/v1/reports/views", key=reader, params={"surface": value}),
        server.get("/api/v1/reports/views", key=reader, params={"since": value}),
        server.get("/api/v1/reports/views", key=reader, params={"deployment": value}),
        server.get("/api/v1/reports/views", key=reader, params={"guard": value}),
        server.get("/api/v1/quarantine", key=reader, params={"limit": value}),
        server.get(f"/api/v1/deployments/{plain.replace('?', '-').replace('/', '-')}/dbt-sync/job/result", key=reader),
        server.get(f"/api/v1/deployments/1/dbt-sync/{plain.replace('?', '-').replace('/', '-')}/result", key=reader),
        server.get("/api/v1/deployments", key=reader, params={"cursor": value}),
        *(
            server.request("PUT", "/api/v1/deployments/1/dbt-sync/job/result", key=server.key("sync"), json=body)
            for body in ({"syncJobId": value, value: "\0"}, {"svcCount": value}, value)
        ),
        server.get("/" + plain.replace("?", "-")),
        server.get("/problems/" + plain.replace("?", "-").replace("/", "-")),
        server.get("/api/v1/reports/" + plain.replace("?", "-").replace("/", "-"), key=reader),
    ]


def details(response: httpx2.Response) -> list[str]:
    body = response.json()
    listed = body.get("rejected", []) + body.get("errors", [])
    return [body["detail"], *(error["detail"] for error in listed)]


def test_a_detail_quotes_at_most_64_characters_of_a_value(server: Server) -> None:
    for answer in wrong_values(server, LONG):
        assert problem(answer) != "internal_error"
        for detail in details(answer):
            assert max(map(len, re.findall("x*", detail))) <= 64, detail
            assert detail.isprintable(), detail


def test_a_detail_never_contains_a_key(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = server.key("admin")
    for response in wrong_values(server, secret):
        assert response.status_code >= 400
        assert secret not in response.text
        # Every origin is repeated to its page, because the browser compares the two.
        assert secret not in str(
            [pair for pair in response.headers.items() if pair[0] != "access-control-allow-origin"]
        )
    assert secret not in "\n".join(JsonLines().format(record) for record in caplog.records if record.name != "httpx2")


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        json.loads(JsonLines().format(record)) for record in caplog.records if record.name.startswith("embedsink.http")
    ]


def test_each_refusal_logs_one_line_with_reason_request_and_key(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    key = server.key()
    key_id = server.engine.keys.find(key).key_id  # type: ignore[union-attr]
    expected = [
        (server.post(b'{"mine": ', key=key), key_id),
        (server.post([1], key=key), key_id),
        (server.get("/no"), None),
    ]
    lines = lines_of(caplog)
    assert len(lines) == len(expected)
    for (response, whose), line in zip(expected, lines, strict=True):
        assert line["reason"] == response.json()["reason"]
        assert line["request_id"] == response.headers["x-request-id"]
        assert line["key_id"] == whose
        assert line["status"] == response.status_code
        assert key not in json.dumps(line)
        assert "mine" not in json.dumps(line)


def test_accepted_requests_are_not_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    assert server.post(view(), key=server.key()).status_code == 202
    assert lines_of(caplog) == []


def test_a_bug_is_logged_and_not_shown_to_the_client(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("internals")

    monkeypatch.setattr(embedsink.http.api.events, "parse_fast", fail)
    before = server.engine.counters["refused.internal_error"]
    response = server.post(view(), key=server.key())
    assert (response.status_code, problem(response)) == (500, "internal_error")
    assert "internals" not in response.text
    [line] = lines_of(caplog)
    assert (line["event"], line["level"], line["request_id"]) == ("bug", "error", response.headers["x-request-id"])
    assert "ValueError: internals" in line["traceback"]
    assert server.engine.counters["refused.internal_error"] == before + 1


def test_each_refusal_is_counted(server: Server) -> None:
    before = server.engine.counters["refused.no_credential"]
    for _ in range(3):
        server.post(view())
    assert server.engine.counters["refused.no_credential"] == before + 3


@pytest.mark.parametrize("reason", Reason)
def test_the_type_of_a_problem_links_to_its_explanation(server: Server, reason: Reason) -> None:
    response = server.get(f"/problems/{reason}")
    assert response.status_code == 200
    assert response.json() == {
        "reason": str(reason),
        "title": reason.sentence,
        "status": reason.status,
        "advice": advice_on(reason),
    }


def test_every_status_has_advice() -> None:
    assert set(ADVICE) == {reason.status for reason in Reason}
