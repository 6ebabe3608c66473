"""Ingest: accepted bodies, answers, and the journal."""

import json
import weakref
from typing import Any

import pytest

from embedsink.errors import Unavailable
from embedsink.journal.writer import OnDurable
from embedsink.protocol.delivery import ParsedDelivery
from embedsink.protocol.validation import parse
from tests.support.app import Server, problem
from tests.support.envelopes import view

ID = "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"
JSON = "application/json"
NDJSON = "application/x-ndjson"


def as_lines(*lines: Any) -> bytes:
    return b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)


BODIES = {
    "one": view(),
    "array": [view()],
    "delivery": {"events": [view()]},
    "lines": as_lines(view()),
}


@pytest.mark.parametrize("form", BODIES)
@pytest.mark.parametrize("type_", [JSON, "text/plain", "text/plain;charset=UTF-8", 'Application/JSON; charset="utf-8"'])
def test_each_form_of_body_is_accepted_and_durable(server: Server, form: str, type_: str) -> None:
    before = len(server.journaled())
    response = server.post(BODIES[form], key=server.key(), type_=NDJSON if form == "lines" else type_)
    assert (response.status_code, response.json()) == (202, {"accepted": 1, "rejected": []})
    assert response.headers["content-type"] == "application/json"
    [line] = server.journaled()[before:]
    assert (line["kind"], line["envelope"]) == ("event", view())


def test_all_fields_of_a_delivery_are_journaled(server: Server) -> None:
    context = {"deployment": 12, "session": "s_9f", "viewer": "u_42", "tenant": "acme", "page": "https://a.example"}
    delivery = {
        "sentAt": 1_763_596_801_500,
        "context": context,
        "events": [view({"shade": "teal"}, id=ID, seq=7, flavour="mint")],
        "lost": {"queue_overflow": 3},
    }
    assert server.post(delivery, key=server.key()).status_code == 202
    event, lost = server.journaled()[-2:]
    assert (event["context"], event["sent_at"]) == (context, 1_763_596_801_500)
    assert (event["envelope"]["id"], event["envelope"]["seq"]) == (ID, 7)
    assert event["extra"] == {"shade": "teal"}
    assert event["envelope_extra"] == {"flavour": "mint"}
    assert (lost["kind"], lost["reason"], lost["lost_count"]) == ("lost", "queue_overflow", 3)


def test_a_delivery_that_waits_for_the_fsync_keeps_no_envelope_in_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = server.engine.journal.submit
    parsed: list[weakref.ref[ParsedDelivery]] = []
    held: list[ParsedDelivery | None] = []

    def record_and_parse(*arguments: Any, **options: Any) -> ParsedDelivery:
        delivery = parse(*arguments, **options)
        parsed.append(weakref.ref(delivery))
        return delivery

    def check_when_durable(lines: bytes, on_durable: OnDurable) -> None:
        def look(failure: Unavailable | None) -> None:
            held.extend(reference() for reference in parsed)
            on_durable(failure)

        submit(lines, look)

    monkeypatch.setattr("embedsink.ingest.pipeline.parse", record_and_parse)
    monkeypatch.setattr(server.engine.journal, "submit", check_when_durable)
    response = server.post({"events": [view(), "x"]}, key=server.key())
    assert (response.json()["accepted"], len(response.json()["rejected"])) == (1, 1)
    assert held == [None]


def test_a_delivery_may_contain_only_lost_counts(server: Server) -> None:
    response = server.post({"events": [], "lost": {"offline": 2}}, key=server.key())
    assert (response.status_code, response.json()) == (202, {"accepted": 0, "rejected": []})
    assert server.journaled()[-1]["lost_count"] == 2


def test_valid_envelopes_are_accepted_and_invalid_ones_listed(server: Server) -> None:
    before = len(server.journaled())
    response = server.post([view({"path": 3}, id=ID), view(), "x"], key=server.key())
    assert response.status_code == 202
    assert response.json() == {
        "accepted": 1,
        "rejected": [
            {
                "index": 0,
                "id": ID,
                "reason": "bad_field",
                "detail": "payload.path: 3 is not a string. Send a string.",
            },
            {
                "index": 2,
                "id": None,
                "reason": "not_an_object",
                "detail": 'envelope: "x" is not an object. Send the value of `event.data`.',
            },
        ],
    }
    assert [line["kind"] for line in server.journaled()[before:]] == ["event", "quarantined", "quarantined"]


def test_one_rejected_envelope_is_described_in_the_singular(server: Server) -> None:
    detail = server.post(view(source="x"), key=server.key()).json()["detail"]
    assert detail == "The envelope was rejected; `rejected` lists the reasons. Fix it. Don't resend it unchanged."


def test_a_422_has_the_same_list_as_a_202(server: Server) -> None:
    before = len(server.journaled())
    response = server.post([1, 2], key=server.key())
    assert (response.status_code, problem(response)) == (422, "nothing_accepted")
    assert response.json()["accepted"] == 0
    assert [rejected["index"] for rejected in response.json()["rejected"]] == [0, 1]
    assert "rejectedCount" not in response.json()
    assert response.json()["detail"].startswith("All 2 envelopes were rejected; ")
    assert [line["raw"] for line in server.journaled()[before:]] == ["1", "2"]


@pytest.mark.parametrize("valid_count", [0, 1])
@pytest.mark.parametrize("invalid_count", [20, 21])
def test_at_most_20_rejections_are_listed(server: Server, valid_count: int, invalid_count: int) -> None:
    before = len(server.journaled())
    response = server.post([1] * invalid_count + [view()] * valid_count, key=server.key())
    assert response.status_code == (202 if valid_count else 422)
    assert len(response.json()["rejected"]) == 20
    assert response.json().get("rejectedCount", 20) == invalid_count
    assert len(server.journaled()) - before == invalid_count + valid_count


@pytest.mark.parametrize(
    "type_",
    [
        "",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/html",
        "application/json; charset=latin-1",
        "text/plain;charset=utf-16",
        "application/jsonx",
    ],
)
def test_other_media_types_are_refused_before_the_body_is_read(server: Server, type_: str) -> None:
    before = len(server.journaled())
    response = server.post(view(), key=server.key(), type_=type_)
    assert (response.status_code, problem(response)) == (415, "media_type")
    assert len(server.journaled()) == before


def test_a_body_that_cannot_be_stored_is_refused_before_its_key_is_searched(server: Server) -> None:
    delivery = {"events": [1] * 1_001, "key": server.key()}
    assert problem(server.post(delivery)) == "too_many_events"


def test_a_key_in_an_event_is_not_journaled(server: Server) -> None:
    key = server.key()
    assert server.post([view({"title": f"my {key}"}), key], key=key).status_code == 202
    assert key.encode() not in server.journal_bytes()


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD"])
def test_only_post_sends_events(server: Server, method: str) -> None:
    response = server.request(method, "/api/v1/events", key=server.key())
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == {"OPTIONS", "POST"}


def test_a_trailing_slash_is_not_found(server: Server) -> None:
    assert problem(server.request("POST", "/api/v1/events/", key=server.key(), json=view())) == "not_found"
