"""Journal lines contain all parsed data, one record a line."""

import base64
import gzip
import json
import re
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from embedsink.ingest.records import body_rejection_line, delivery_lines, replay_line
from embedsink.key_scope import KeyScope
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.reasons import Reason
from tests.support.envelopes import ID, KEY, KEY_CUT, RECEIVED_AT, envelope_in, event_or_action, parse_body, view
from tests.support.redaction import storable, storable_rejection

CONTEXT = {
    "deployment": 12,
    "session": "s_9f3c",
    "viewer": "u_42",
    "tenant": "acme",
    "page": "https://a.example",
}
OTHER_ID = ID[:-1] + "f"
SHARED = {"received_at": RECEIVED_AT, "sent_at": 1_763_596_801_500, "key_id": "k_1", "context": CONTEXT}
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


def delivery(*events: Any, **parts: Any) -> dict[str, Any]:
    return {"sentAt": 1_763_596_801_500, "context": CONTEXT, "events": list(events)} | parts


def ids() -> Iterator[str]:
    return (f"new-{number}" for number in count(1))


def encoded(parsed: ParsedDelivery) -> bytes:
    new_ids = ids()
    return delivery_lines(storable(parsed), key_id="k_1", new_id=lambda: next(new_ids))


def lines_of(body: Any, **options: Any) -> list[dict[str, Any]]:
    text = encoded(parse_body(body, **options))
    assert text.endswith(b"\n")
    return [json.loads(line) for line in text[:-1].split(b"\n")]


def test_an_event_is_one_line_with_its_context() -> None:
    event = view(id=ID, seq=7)

    assert lines_of(delivery(event)) == [{"kind": "event", **SHARED, "envelope": event}]


def test_an_action_is_one_line_of_its_kind() -> None:
    action = event_or_action("action:refresh", id=ID)

    assert lines_of(delivery(action)) == [{"kind": "action", **SHARED, "envelope": action}]


def test_only_an_envelope_without_an_id_gets_one() -> None:
    lines = lines_of(delivery(view(id=ID), view(), view(id=None), event_or_action("action:refresh")))

    assert [line.get("id") for line in lines] == [None, "new-1", "new-2", "new-3"]


def test_a_bare_envelope_has_no_context_and_no_sent_at() -> None:
    (line,) = lines_of(view(id=ID))

    assert line["context"] is None
    assert line["sent_at"] is None


def test_unknown_payload_fields_are_stored_as_extra() -> None:
    event = view({"zoom": 1.5, "Title": None, "fatal": "sometimes"}, id=ID)
    (line,) = lines_of(event)

    assert line["extra"] == {"zoom": 1.5, "Title": None, "fatal": "sometimes"}
    assert line["envelope"] == view(id=ID)
    assert envelope_in(line) == event


def test_unknown_envelope_fields_are_stored_as_envelope_extra_and_in_the_envelope() -> None:
    event = view(id=ID, version=2, kind="quarantined", received_at=0)
    (line,) = lines_of(event)

    assert line["envelope_extra"] == {"version": 2, "kind": "quarantined", "received_at": 0}
    assert (line["kind"], line["received_at"], line["envelope"]) == ("event", RECEIVED_AT, event)


def test_all_fields_of_a_theme_are_stored_as_extra() -> None:
    theme = {"embedTheme": {"font": "Inter"}, "path": 3}
    (line,) = lines_of(event_or_action("action:set-theme", theme, id=ID))

    assert line["extra"] == theme
    assert line["envelope"]["payload"] == {}


def test_a_rejection_is_one_line_with_the_raw_envelope() -> None:
    invalid = event_or_action("event:download", {"format": "doc"}, id=ID)

    assert lines_of(delivery(view(id=ID), invalid))[1] == {
        "kind": "quarantined",
        **SHARED,
        "quarantine_id": "new-1",
        "index": 1,
        "reason": "bad_field",
        "detail": 'payload.format: "doc" is not one of csv, xlsx, png, pdf.',
        "raw": json.dumps(invalid, separators=(",", ":")),
    }


def test_lone_surrogates_of_a_rejected_envelope_are_stored_as_escapes() -> None:
    (line,) = lines_of(view({"title": "a\ud800"}))

    assert json.loads(line["raw"])["payload"]["title"] == "a\ud800"
    assert line["raw"].isascii()


def test_each_reason_of_loss_is_one_line() -> None:
    lines = lines_of(delivery(lost={"queue_overflow": 3, "too_old": 1, "quota": 0}))

    assert lines == [
        {"kind": "lost", **SHARED, "reason": "queue_overflow", "lost_count": 3},
        {"kind": "lost", **SHARED, "reason": "too_old", "lost_count": 1},
    ]


def test_the_id_of_a_loss_is_the_same_when_the_delivery_is_sent_again() -> None:
    def loss_ids(*events: Any, **lost: int) -> list[str | None]:
        return [line.get("id") for line in lines_of(delivery(*events, lost=lost)) if line["kind"] == "lost"]

    first = loss_ids(view(id=ID), quota=3, too_old=1)
    assert len({UUID(id) for id in first if id}) == 2
    # Larger counts, further envelopes and envelopes without an id make no difference.
    assert loss_ids(view(id=ID.upper()), view(id=OTHER_ID), quota=5, too_old=2) == first
    assert loss_ids(view(), 7, view(id=ID), quota=3, too_old=1) == first
    assert loss_ids(view(id=ID, surface="moon"), quota=3, too_old=1) == first
    assert set(loss_ids(view(id=OTHER_ID), quota=3, too_old=1)).isdisjoint(first)
    assert loss_ids(view(), 7, quota=3) == [None]


def test_each_envelope_and_each_reason_of_loss_is_one_line() -> None:
    lines = lines_of(delivery(view(), 7, view(source="other"), event_or_action("action:refresh"), lost={"quota": 2}))

    assert [line["kind"] for line in lines] == ["event", "action", "lost", "quarantined", "quarantined"]
    assert [line["index"] for line in lines if line["kind"] == "quarantined"] == [1, 2]


def test_a_record_with_line_breaks_is_one_line() -> None:
    strange = "a\nb\r\nc\u2028d\x85e\x1b"
    body = delivery(view({"path": strange}, id=ID), view(source=strange), context={"page": strange}, lost={strange: 1})

    lines = lines_of(body)
    assert len(lines) == 3
    assert lines[0]["envelope"]["payload"]["path"] == lines[0]["context"]["page"] == lines[1]["reason"] == strange


def test_an_ndjson_line_that_is_not_json_is_stored_unchanged() -> None:
    lines = lines_of(b'{"source": \r\n' + json.dumps(view(id=ID)).encode(), ndjson=True)

    assert lines[1]["raw"] == '{"source": \r'


@pytest.mark.parametrize(
    ("raw", "stored"),
    [
        (b"{'a': 1}", {"raw": "{'a': 1}"}),
        ('"é'.encode(), {"raw": '"é'}),
        (b"a\n\x01", {"raw": "a\n\x01"}),
        (b'"\xff', {"raw": base64.b64encode(b'"\xff').decode(), "raw_encoding": "base64"}),
        (b'"\x00', {"raw": base64.b64encode(b'"\x00').decode(), "raw_encoding": "base64"}),
    ],
)
def test_a_refused_body_is_stored_as_text_or_as_base64(raw: bytes, stored: dict[str, str]) -> None:
    rejection = Rejection(None, Reason.NOT_JSON, "body: Expecting value. Send JSON.", raw)
    line = body_rejection_line(
        storable_rejection(rejection), received_at=RECEIVED_AT, key_id="k_1", new_id=lambda: "new-1"
    )

    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert json.loads(line) == {
        "kind": "quarantined",
        "received_at": RECEIVED_AT,
        "key_id": "k_1",
        "quarantine_id": "new-1",
        "index": None,
        "reason": "not_json",
        "detail": "body: Expecting value. Send JSON.",
        **stored,
    }


def test_a_replay_is_one_line_with_the_id_of_the_rejection() -> None:
    line = replay_line("new-1", received_at=RECEIVED_AT)

    assert line == b'{"kind":"replayed","received_at":%d,"quarantine_id":"new-1"}\n' % RECEIVED_AT


@pytest.mark.parametrize(
    "body",
    [
        delivery(view(), key=KEY),
        delivery(view(), 7, key=[KEY]),
        delivery(view(), context={"page": f"https://a.example/?key={KEY}&b=1"}),
        delivery(view(), context={"pge": KEY}),
        delivery(view(), lost={KEY: 1}),
        delivery(view({"path": f"/?key={KEY}"})),
        delivery(view({"key": KEY})),
        delivery(view(key=KEY)),
        delivery(view(source=KEY)),
        delivery(view() | {KEY: 1}),
        delivery(view({KEY: 1, "path": 1})),
        delivery(view({"title": f"\ud800{KEY}"})),
        delivery(f"Bearer {KEY}"),
    ],
)
def test_no_line_contains_a_key(body: Any) -> None:
    text = encoded(parse_body(body))

    assert b"0123456789abcdef" not in text
    assert text.count(b"\n") == len(body["events"]) + len(body.get("lost", {}))


def test_two_keys_as_names_in_one_object_remain_two_names() -> None:
    other = KEY[:-1] + "0"
    (line,) = lines_of(view({KEY: 1, other: 2}, id=ID))

    assert sorted(line["extra"].values()) == [1, 2]


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\r\n"])
def test_a_jwt_with_white_space_is_redacted(space: str) -> None:
    parts = [urlsafe_b64encode(f'{{{space}"alg":"RS256"}}'.encode()).decode().rstrip("=")] * 2
    (line,) = lines_of(view({"path": ".".join([*parts, "c2lnbmF0dXJl"])}))

    assert re.fullmatch(r"jwt_…\w{8}", line["envelope"]["payload"]["path"])


@pytest.mark.parametrize("character", ["\x0e", "\x1e"])
def test_an_escape_before_the_rest_of_a_jwt_stays_whole(character: str) -> None:
    (line,) = lines_of(view({"path": f"/{character}{JWT[1:]}", "title": "eyJ es_"}))

    assert line["envelope"]["payload"]["path"] == f"/{character}{JWT[1:]}"


@pytest.mark.parametrize("around", [b'{"key": "%b", }', b'"\xff%b"', b'\x00"%b"', b"es_%b", b"%b\xff"])
def test_the_line_of_a_refused_body_contains_no_key(around: bytes) -> None:
    rejection = Rejection(None, Reason.NOT_JSON, "body: it.", around % KEY.encode())
    line = json.loads(
        body_rejection_line(
            storable_rejection(rejection), received_at=RECEIVED_AT, key_id="k_1", new_id=lambda: "new-1"
        )
    )

    raw = base64.b64decode(line["raw"]) if "raw_encoding" in line else line["raw"].encode()
    assert raw == around % KEY_CUT.encode()


@pytest.mark.parametrize("secret", [KEY, JWT], ids=["key", "jwt"])
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-32-be"),
        lambda text: gzip.compress(text.encode()),
    ],
    ids=["utf-16", "utf-32", "gzip"],
)
def test_no_key_can_be_recovered_from_a_body_that_is_no_text(encode: Callable[[str], bytes], secret: str) -> None:
    body = encode(f'{{"key": "{secret}", "events": []}}')
    rejection = Rejection(None, Reason.NOT_UTF8, "body: it.", body)
    line = json.loads(
        body_rejection_line(
            storable_rejection(rejection), received_at=RECEIVED_AT, key_id="k_1", new_id=lambda: "new-1"
        )
    )
    raw = base64.b64decode(line["raw"])
    assert secret.encode() not in raw.replace(b"\0", b"").replace(b"\xff", b"")
    with pytest.raises(zlib.error):
        zlib.decompress(raw, wbits=31)


@pytest.mark.parametrize("text", ["sales_admin_total", "es_read_models.count", "es_ingest_short", "es_es_admin_"])
def test_text_that_resembles_a_key_is_stored_unchanged(text: str) -> None:
    event = event_or_action("event:drilldown", {"member": text}, id=ID)

    assert lines_of(event)[0]["envelope"] == event
    assert json.loads(lines_of(event | {"source": "x"})[0]["raw"])["payload"]["member"] == text


def test_the_deployment_from_a_key_is_stored_in_the_context() -> None:
    parsed = parse_body(view(id=ID)).restrict_to(KeyScope(frozenset({12})))
    (line,) = [json.loads(line) for line in encoded(parsed).split(b"\n")[:-1]]

    assert line["context"] == {"deployment": 12}


def test_large_numbers_are_stored_unchanged() -> None:
    event = event_or_action("event:drilldown", {"value": [2**64 - 1, -(2**63), 1e300, 0.1, -0.0]}, id=ID)

    assert lines_of(event)[0]["envelope"] == event


def test_a_number_beyond_64_bits_is_stored_as_the_nearest_double() -> None:
    event = event_or_action("event:drilldown", {"value": [2**70, -(2**63) - 1, 2**64]}, id=ID)

    assert lines_of(event)[0]["envelope"]["payload"]["value"] == [2.0**70, -(2.0**63), 2.0**64]


def test_an_empty_delivery_has_no_lines() -> None:
    assert encoded(replace(parse_body(view()), accepted=[])) == b""
