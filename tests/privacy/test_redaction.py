"""Redaction of deliveries, rejections and dbt results."""

import json
from typing import Any

import pytest

from embedsink.key_scope import KeyScope
from embedsink.privacy.hashing import hash_text
from embedsink.privacy.redaction import Privacy, Redactor, fold_ids, strip_query
from embedsink.privacy.rules import FIELDS, PrivacyRules, Rule
from embedsink.protocol.delivery import Rejection
from embedsink.reasons import Reason
from tests.support.envelopes import event_or_action, parse_body, view

SECRETS = [bytes(range(32)), bytes(range(1, 33))]
CANARY = "canary@example.com"


def redactor(**rules: Rule) -> Redactor:
    return Redactor({**dict.fromkeys(FIELDS, Rule.KEEP), **rules}, SECRETS)


def redacted(envelope: dict[str, Any], /, *, context: dict[str, Any] | None = None, **rules: Any) -> Any:
    """Return the context and the first envelope of a delivery after redaction."""
    parsed = parse_body({"context": context, "events": [envelope]})
    delivery = redactor(**rules).delivery(parsed)
    return delivery.context, delivery.accepted[0]


def hashed(field: str, text: str) -> str:
    return hash_text(field, text, SECRETS[0])


def test_without_rules_nothing_is_changed() -> None:
    parsed = parse_body({"context": {"viewer": "ann"}, "events": [view(), {"type": 1}]})
    assert redactor().delivery(parsed) is parsed


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
            {"member": "m", "value": {"a": [hashed("value", "x"), hashed("value", "1"), True, None]}},
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
    ids=map(str, range(11)),
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
    assert stored["payload"]["deep"] == {"a": [hashed("extra", "b"), hashed("extra", "2")]}


def test_reasons_of_losses_fall_under_extra() -> None:
    lost = {"queue_overflow": 1, "http_503": 2, "ann": 3, "bob": 4}
    parsed = parse_body({"events": [], "lost": lost})
    assert redactor(extra=Rule.DROP).delivery(parsed).lost == {"queue_overflow": 1, "http_503": 2, "other": 7}
    assert redactor(viewer=Rule.DROP).delivery(parsed).lost == lost


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
    ],
    ids=map(str, range(21)),
)
def test_rejections_contain_no_value_that_a_rule_forbids(body: dict[str, Any]) -> None:
    parsed = parse_body(body)
    assert CANARY in repr(parsed)
    strict = Redactor(PrivacyRules(preset="strict").of_all_fields(), SECRETS)
    delivery = strict.delivery(parsed)
    assert delivery.rejected
    for rejection in delivery.rejected:
        rejection.id = None  # It is part of the response only.
    assert CANARY.partition("@")[0] not in repr(delivery)


def test_a_rejected_envelope_can_be_replayed_later() -> None:
    envelope = view({"title": "ann", "zoom": 2}, id="0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b") | {
        "type": "svc:event:later"
    }
    parsed = parse_body({"events": [envelope]})
    [rejection] = redactor(title=Rule.HASH, extra=Rule.KEEP).delivery(parsed).rejected
    assert json.loads(rejection.raw) == envelope | {"payload": envelope["payload"] | {"title": hashed("title", "ann")}}
    assert rejection.detail.startswith("type: is not valid.")
    assert rejection.reason == Reason.UNKNOWN_TYPE


@pytest.mark.parametrize("index", [None, 0], ids=["body", "line"])
def test_nothing_is_stored_of_unreadable_input(index: int | None) -> None:
    rejection = Rejection(index, Reason.NOT_JSON, f'body: "{CANARY}" is not JSON.', f'{{"{CANARY}"'.encode())
    stored = redactor(viewer=Rule.HASH).rejection(rejection)
    assert (stored.raw, stored.omitted_bytes) == (b"", len(rejection.raw))
    assert CANARY not in stored.detail


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://ann:secret@a.example/x?q=1#f", "https://a.example/x"),
        ("/a/b?c", "/a/b"),
        ("//a.example/b?c", "//a.example/b"),
        ("", ""),
        ("https://[x/", ""),
    ],
)
def test_a_query_is_stripped(url: str, expected: str) -> None:
    assert strip_query(url) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/dashboards/sales-overview/edit", "/dashboards/sales-overview/edit"),
        ("/v2/orders/8731", "/v2/orders/:id"),
        ("/users/ann@example.com/", "/users/:id/"),
        ("/d/0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b?tab=2", "/d/:id"),
        ("/q3-report", "/:id"),
        (f"/{'a' * 33}", "/:id"),
        ("/caf%C3%A9", "/:id"),
        ("https://a.example:8443/x/1#y", "https://a.example:8443/x/:id"),
        ("/d/:id", "/d/:id"),
    ],
)
def test_ids_are_folded(url: str, expected: str) -> None:
    assert fold_ids(url) == expected
    assert fold_ids(expected) == expected


def test_a_tenant_is_found_by_its_hashes() -> None:
    privacy = Privacy(PrivacyRules(fields={"tenant": Rule.HASH}), SECRETS)
    hashes = [hash_text("tenant", "acme", secret) for secret in SECRETS]
    assert privacy.stored_scope(KeyScope(tenants=frozenset({"acme"}))).tenants == frozenset({"acme", *hashes})
    assert privacy.stored_scope(KeyScope()).tenants is None
    assert Privacy(secrets=SECRETS).stored_tenants(["acme"]) == ["acme"]


def test_a_worker_gets_the_same_rules() -> None:
    rules = PrivacyRules(preset="strict", fields={"path": Rule.TEMPLATE}, honors_opt_out=True)
    privacy = Privacy(rules, SECRETS)
    assert Privacy.from_members(json.loads(json.dumps(privacy.members()))) == privacy
