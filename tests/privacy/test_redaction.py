"""Redaction of deliveries, rejections and dbt results."""

import json
from dataclasses import replace
from typing import Any

import pytest

from embedsink.key_scope import KeyScope
from embedsink.privacy.erased_people import ErasedPeople, ErasedPerson
from embedsink.privacy.hashing import hash_text
from embedsink.privacy.internal import InternalPeople
from embedsink.privacy.redaction import Privacy
from embedsink.privacy.rules import PrivacyRules, Rule
from embedsink.protocol.delivery import Rejection
from embedsink.reasons import Reason
from tests.support.envelopes import event_or_action, parse_body, view
from tests.support.redaction import redact

SECRETS = [bytes(range(32)), bytes(range(1, 33))]
CANARY = "canary@example.com"


def privacy(**rules: Rule) -> Privacy:
    return Privacy(PrivacyRules(fields=rules), SECRETS)


STRICT = Privacy(PrivacyRules(preset="strict"), SECRETS)
OPT_OUT = Privacy(PrivacyRules(honors_opt_out=True))


def redacted(envelope: dict[str, Any], /, *, context: dict[str, Any] | None = None, **rules: Any) -> Any:
    """Return the context and the first envelope of a delivery after redaction."""
    parsed = parse_body({"context": context, "events": [envelope]})
    delivery = redact(privacy(**rules), parsed)
    return delivery.context, delivery.accepted[0]


def hashed(field: str, text: str) -> str:
    return hash_text(field, text, SECRETS[0])


def test_without_rules_nothing_is_changed() -> None:
    parsed = parse_body({"context": {"viewer": "ann"}, "events": [view(), {"type": 1}]})
    assert redact(privacy(), parsed) is parsed


def test_the_context_is_redacted() -> None:
    context = {"deployment": 12, "session": "s1", "viewer": "ann", "tenant": "acme", "page": "https://a.example/x?y#z"}
    stored, _ = redacted(
        view(), context=context, session=Rule.DROP, viewer=Rule.HASH, tenant=Rule.HASH, page=Rule.STRIP_QUERY
    )
    assert stored == {
        "deployment": 12,
        "viewer": hashed("viewer", "ann"),
        "tenant": hashed("tenant", "acme"),
        "page": "https://a.example/x",
    }


@pytest.mark.parametrize(
    ("type_", "payload", "rule", "expected"),
    [
        ("event:view", {"path": "/d/12?x=1", "title": "T"}, {"path": Rule.TEMPLATE}, {"path": "/d/:id", "title": "T"}),
        ("event:view", {"path": "/d/x", "title": "T"}, {"path": Rule.DROP, "title": Rule.DROP}, {"path": ""}),
        (
            "event:navigate",
            {"path": "/a?b", "previousPath": "/b?c"},
            {"path": Rule.STRIP_QUERY},
            {"path": "/a", "previousPath": "/b"},
        ),
        (
            "event:drilldown",
            {"member": "m", "value": {"a": ["x", 1, True, None]}},
            {"value": Rule.DROP},
            {"member": "m"},
        ),
        (
            "event:drilldown",
            {"member": "m", "value": {"a": ["x", 1, True, None]}},
            {"value": Rule.HASH},
            {"member": "m", "value": hashed("value", '{"a":["x",1,true,null]}')},
        ),
        (
            "event:x-feedback",
            {"chatId": "c", "rating": "down", "text": "Ann is missing"},
            {"query": Rule.HASH, "chat_id": Rule.HASH},
            {"chatId": hashed("chat_id", "c"), "rating": "down", "text": hashed("query", "Ann is missing")},
        ),
        (
            "event:x-feedback",
            {"chatId": "c", "rating": "down", "text": "Ann is missing"},
            {"query": Rule.DROP, "chat_id": Rule.DROP},
            {"chatId": "", "rating": "down"},
        ),
        (
            "event:x-filter",
            {"filters": {"buyer": ["ann", 1], "all": None}, "path": "/d?x"},
            {"value": Rule.DROP, "path": Rule.STRIP_QUERY},
            {"filters": {"buyer": None, "all": None}, "path": "/d"},
        ),
        (
            "event:x-filter",
            {"filters": {"buyer": ["ann", 1], "all": None}},
            {"value": Rule.HASH},
            {"filters": {"buyer": hashed("value", '["ann",1]'), "all": None}},
        ),
        (
            "event:ai-query",
            {"query": "Why?", "status": "submitted", "chatId": "c"},
            {"query": Rule.DROP, "chat_id": Rule.HASH},
            {"query": "", "status": "submitted", "chatId": hashed("chat_id", "c")},
        ),
        (
            "event:error",
            {"message": "m", "name": "n", "context": "c", "fatal": True},
            {"message": Rule.HASH, "error_name": Rule.DROP, "error_context": Rule.DROP},
            {"message": hashed("message", "m"), "fatal": True},
        ),
        (
            "event:ready",
            {"embedTenant": "acme", "mode": "signed", "surface": "app", "deploymentId": 9},
            {"tenant": Rule.DROP},
            {"embedTenant": None, "mode": "signed", "surface": "app", "deploymentId": 9},
        ),
        (
            "action:set-filter",
            {"filterUrlParameter": 'f_orders.buyer="ann"'},
            {"filter": Rule.HASH},
            {"filterUrlParameter": f'f_orders.buyer="{hashed("filter", "ann")}"'},
        ),
        (
            "action:set-filter",
            {"filterUrlParameter": 'f_orders.buyer="ann"'},
            {"filter": Rule.DROP},
            {"filterUrlParameter": "f_orders.buyer=null"},
        ),
        ("action:set-theme", {"primaryColor": "red", "brand": "acme"}, {"extra": Rule.DROP}, {}),
    ],
    ids=map(str, range(15)),
)
def test_payloads_are_redacted_and_stay_valid(
    type_: str, payload: dict[str, Any], rule: dict[str, Any], expected: dict[str, Any]
) -> None:
    envelope = event_or_action(type_) | {"payload": {"surface": "dashboard", **payload}}
    expected = {"surface": "dashboard", **expected}
    if type_ != "event:view":
        envelope = event_or_action(type_) | {"payload": payload}
        expected = {name: value for name, value in expected.items() if name in payload}
    _, stored = redacted(envelope, **rule)
    assert stored["payload"] == expected
    # An export can be imported again, and is not hashed twice.
    _, again = redacted(stored, **rule)
    assert again == stored


def test_unknown_fields_fall_under_extra() -> None:
    envelope = view({"nickname": "ann", "deep": {"a": ["b", 2]}}, note="n")
    _, dropped = redacted(envelope, extra=Rule.DROP)
    assert dropped == view()
    _, stored = redacted(envelope, extra=Rule.HASH)
    assert stored["note"] == hashed("extra", "n")
    assert stored["payload"]["deep"] == hashed("extra", '{"a":["b",2]}')


def test_reasons_of_losses_fall_under_extra() -> None:
    lost = {"queue_overflow": 1, "not_stored": 5, "http_503": 2, "ann": 3, "bob": 4}
    parsed = parse_body({"events": [], "lost": lost})
    assert redact(privacy(extra=Rule.DROP), parsed).lost == {
        "queue_overflow": 1,
        "not_stored": 5,
        "http_503": 2,
        "other": 7,
    }
    assert redact(privacy(viewer=Rule.DROP), parsed).lost == lost


@pytest.mark.parametrize(
    "body",
    [
        {"events": [view({"surface": CANARY})]},
        {"events": [view({"path": [CANARY]})]},
        {"events": [view({"path": {CANARY: CANARY}})]},
        {"events": [view({"title": CANARY}, surface=CANARY)]},
        {"events": [view(id=CANARY)]},
        {"events": [view(timestamp=CANARY)]},
        {"events": [view() | {"type": CANARY}]},
        {"events": [view() | {"source": f"{CANARY}-embed"}]},
        {"events": [view() | {"payload": CANARY}]},
        {"events": [view() | {CANARY: 1, "source": "x"}]},
        {"events": [CANARY, [CANARY], {"a": CANARY}]},
        {"events": [event_or_action("event:error") | {"payload": {"message": 1, "context": CANARY}}]},
        {"context": {"viewer": [CANARY]}, "events": [view()]},
        {"context": {"vewer": CANARY}, "events": [view()]},
        {"context": {CANARY: "x"}, "events": [view()]},
        {"context": CANARY, "events": [view()]},
        {"context": {"viewer": CANARY}, "events": [view({"title": CANARY})], "sentAt": CANARY},
        {"context": {"viewer": CANARY, "page": CANARY}, "events": [view()], "sent": 1},
        {"context": {"viewer": CANARY}, "events": [view()], "lost": {CANARY: -1}},
        {"events": [view({"title": f"{CANARY}\0"})]},
        {"events": [view({"path": CANARY, "surface": 1})]},
        {"events": [event_or_action("action:set-filter", {"filterUrlParameter": CANARY})]},
        {"events": [view({"path": 3, "name": CANARY, "member": CANARY, "locale": CANARY, "agentId": CANARY})]},
        {
            "events": [
                event_or_action("event:error", {"message": CANARY, "publicId": CANARY}) | {"type": "svc:event:login"}
            ]
        },
        [{"context": {"viewer": CANARY}, "events": [view({"title": CANARY})]}],
    ],
    ids=map(str, range(25)),
)
def test_rejections_contain_no_value_that_a_rule_forbids(body: dict[str, Any]) -> None:
    parsed = parse_body(body)
    assert CANARY in repr(parsed)
    delivery = redact(STRICT, parsed)
    assert delivery.rejected
    for rejection in delivery.rejected:
        rejection.id = None  # It is part of the response only.
    assert CANARY.partition("@")[0] not in repr(delivery)


@pytest.mark.parametrize(
    "field", ["source", "direction", "type", "surface", "mode", "format", "status", "scheme", "fatal"]
)
def test_a_number_in_another_field_is_dropped(field: str) -> None:
    number = 491_511_234_567
    for envelope in (view(surface=1) | {field: number}, view({field: number, "path": 1}), {"type": 1, field: number}):
        [rejection] = redact(STRICT, parse_body(envelope)).rejected
        assert str(number) not in repr(replace(rejection, id=None)), envelope


def test_a_deep_unknown_field_of_a_rejected_line_is_not_stored() -> None:
    line = json.dumps(view()).replace('"payload":', f'"x": {"[" * 990}{"]" * 990}, "payload":').encode()
    parsed = parse_body(line + b"\n" + json.dumps(view()).encode(), ndjson=True)
    [rejection] = redact(privacy(extra=Rule.HASH), parsed).rejected
    assert b"[[" not in rejection.raw


@pytest.mark.parametrize(
    "body",
    [
        {"optedOut": True, "context": {"viewer": CANARY}, "events": [view({"title": CANARY}), {"x": CANARY}]},
        {"optedOut": CANARY, "context": {"viewer": CANARY}, "events": [view({"title": CANARY})]},
        [{"optedOut": True, "context": {"viewer": CANARY}, "events": [view({"title": CANARY})]}],
        {"optedOut": True, "context": {"viewer": CANARY, "session": CANARY}},
        {"optedOut": True, "context": {"viewer": CANARY}, "event": [view({"title": CANARY})]},
        {"optedOut": True, "context": {"viewer": CANARY}, "source": "svc", "events": [view({"title": CANARY})]},
        {"context": {"viewer": CANARY, "optedOut": True}, "events": [view({"title": CANARY})]},
        [
            {
                "events": [{"optedOut": True, "context": {"viewer": CANARY}, "events": [view({"title": CANARY})]}],
                "context": {},
            }
        ],
        {"OptedOut": True, "context": {"viewer": CANARY}, "events": [view({"title": CANARY})]},
    ],
    ids=map(str, range(9)),
)
def test_an_opt_out_in_a_body_applies_to_accepted_and_rejected_envelopes(body: Any) -> None:
    delivery = redact(OPT_OUT, parse_body(body))
    for rejection in delivery.rejected:
        rejection.id = None
    assert CANARY not in repr(delivery)


@pytest.mark.parametrize(
    "rejected",
    [
        view({"path": 5, "title": "How to get optedOut"}),
        view({"path": 5, "title": "x", "optedOut": True}),
        view({"path": 5, "title": "x"}, optedOut=False),
    ],
    ids=["text", "payload", "false"],
)
def test_a_text_about_an_opt_out_is_none(rejected: dict[str, Any]) -> None:
    delivery = redact(OPT_OUT, parse_body({"context": {"viewer": "ann"}, "events": [view({"title": "t"}), rejected]}))
    assert len(delivery.rejected) == 1
    assert delivery.context == {"viewer": "ann"}
    assert delivery.accepted[0]["payload"]["title"] == "t"


def test_an_envelope_of_an_unknown_type_without_its_payload_cannot_be_replayed() -> None:
    envelope = view({"title": "ann"}) | {"type": "svc:event:scroll"}
    [rejection] = redact(privacy(extra=Rule.DROP), parse_body({"events": [envelope]})).rejected
    assert json.loads(rejection.raw)["payload"] == {}
    assert rejection.omitted_bytes > 0


def test_an_unreadable_body_may_be_of_a_viewer_who_has_opted_out() -> None:
    rejection = Rejection(None, Reason.NOT_JSON, "body: is not JSON.", f'{{"optedOut":true,"v":"{CANARY}"'.encode())
    stored = OPT_OUT.redact_unreadable(rejection)
    assert (stored.raw, stored.omitted_bytes) == (b"", len(rejection.raw))
    assert Privacy().redact_unreadable(rejection) is rejection


def test_a_rejected_envelope_can_be_replayed_later() -> None:
    envelope = view({"title": "ann", "zoom": 2}, id="0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b") | {"source": "later-embed"}
    parsed = parse_body({"events": [envelope]})
    [rejection] = redact(privacy(title=Rule.HASH, extra=Rule.KEEP), parsed).rejected
    assert json.loads(rejection.raw) == envelope | {"payload": envelope["payload"] | {"title": hashed("title", "ann")}}
    assert rejection.detail == "source: The source is not the embed. Privacy rules forbid quoting the value."
    assert rejection.omitted_bytes == 0
    assert rejection.reason == Reason.WRONG_SOURCE


@pytest.mark.parametrize("envelope", [view(seq=-1), view() | {"type": "svc:event:later"}], ids=["field", "type"])
def test_a_rejection_that_no_rule_changes_can_be_replayed_later(envelope: dict[str, Any]) -> None:
    parsed = parse_body({"context": {"viewer": "ann"}, "events": [envelope]})
    [rejection] = redact(privacy(viewer=Rule.HASH), parsed).rejected
    assert json.loads(rejection.raw) == envelope
    assert rejection.omitted_bytes == 0


@pytest.mark.parametrize(
    "body",
    [
        [view({"title": {"a": 1}})],
        [view(seq=-1, surface="moon")],
        {"context": {"viewer": 5}, "events": [view()]},
        {"context": {"tenantId": "acme"}, "events": [view()]},
        {"context": {}, "typo": 1, "events": [view()]},
        {"lost": {"x": -1}, "events": [view()]},
        {"sentAt": "now", "events": [view()]},
        {"context": "ann", "events": [view()]},
        [view({"title": "a\0b"})],
        {"context": {"viewer": "a\0b"}, "events": [view()]},
        {"context": {"viewer": "x" * 9_000}, "events": [view()]},
        [view({"title": "x" * 66_000})],
        [event_or_action("action:set-filter", {"filterUrlParameter": "f_a.b="})],
    ],
    ids=map(str, range(13)),
)
def test_a_rejection_that_redaction_could_make_valid_is_never_replayed(body: Any) -> None:
    rejections = redact(STRICT, parse_body(body)).rejected
    assert rejections
    for rejection in rejections:
        assert rejection.omitted_bytes > 0


@pytest.mark.parametrize("line", ['"seq": 1, "seq": 2, ', f'"x": {"[" * 40}{"]" * 40}, '], ids=["twice", "deep"])
def test_a_rejected_line_that_redaction_could_make_valid_is_never_replayed(line: str) -> None:
    text = json.dumps(view())
    lines = f"{text}\n{text.replace(chr(123), chr(123) + line, 1)}".encode()
    [rejection] = redact(privacy(viewer=Rule.DROP, extra=Rule.DROP), parse_body(lines, ndjson=True)).rejected
    assert rejection.omitted_bytes > 0


def test_nothing_is_stored_of_unreadable_input() -> None:
    raw = f'{{"{CANARY}"'.encode()
    [of_line] = redact(
        privacy(viewer=Rule.HASH), parse_body(raw + b"\n" + json.dumps(view()).encode(), ndjson=True)
    ).rejected
    body = Rejection(None, Reason.NOT_JSON, f'body: "{CANARY}" is not JSON.', raw)
    for stored in (of_line, privacy(viewer=Rule.HASH).redact_unreadable(body)):
        assert (stored.raw, stored.omitted_bytes) == (b"", len(raw))
        assert CANARY not in stored.detail


def test_a_tenant_is_found_by_its_hashes() -> None:
    hashed_tenants = privacy(tenant=Rule.HASH)
    hashes = [hash_text("tenant", "acme", secret) for secret in SECRETS]
    assert hashed_tenants.stored_scope(KeyScope(tenants=frozenset({"acme"}))).tenants == frozenset({"acme", *hashes})
    assert hashed_tenants.stored_scope(KeyScope()).tenants is None
    # Also after the rule has changed.
    assert Privacy(secrets=SECRETS).stored_tenants(["acme"]) == ["acme", *hashes]
    assert Privacy().stored_tenants(["acme"]) == ["acme"]


def test_a_worker_gets_the_same_rules() -> None:
    rules = PrivacyRules(preset="strict", fields={"path": Rule.TEMPLATE}, honors_opt_out=True)
    people = InternalPeople(viewers=["*@example.com"], deployments=[7])
    erased = ErasedPeople(b"salt", (ErasedPerson(frozenset({"ab"}), frozenset({7}), frozenset({"cd"})),))
    sent = Privacy(rules, SECRETS, people, erased)
    assert Privacy.decode(sent.encoded) == sent
