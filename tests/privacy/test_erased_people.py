"""Deliveries of erased people: all envelopes are rejected, and nothing of their content remains."""

import time
from dataclasses import replace
from typing import Any

import pytest

from embedsink.privacy.erased_people import ErasedPeople, ErasedPerson, viewers_in
from embedsink.privacy.hashing import hash_text
from embedsink.privacy.redaction import Privacy
from embedsink.privacy.rules import PrivacyRules
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.reasons import Reason
from tests.support.envelopes import event_or_action, parse_body, view
from tests.support.redaction import redact

SECRETS = [bytes(range(32)), bytes(range(1, 33))]
SALT = bytes(32)


def privacy(
    viewer: str = "ann", *, deployments: set[int] | None = None, tenants: set[str] | None = None, preset: Any = None
) -> Privacy:
    """Return rules with an erased person."""
    rules = Privacy(PrivacyRules(preset=preset), SECRETS)
    digest = ErasedPeople(SALT).digest
    person = ErasedPerson(
        frozenset(map(digest, rules.stored_forms("viewer", viewer))),
        None if deployments is None else frozenset(deployments),
        None if tenants is None else frozenset(map(digest, rules.stored_tenants(sorted(tenants)))),
    )
    return replace(rules, erased=ErasedPeople(SALT, (person,)))


def parse(*events: Any, **context: Any) -> ParsedDelivery:
    return parse_body({"context": context, "events": list(events)})


@pytest.mark.parametrize("preset", [None, "strict"])
def test_an_erased_delivery_keeps_only_its_deployment_and_tenant(preset: str | None) -> None:
    parsed = parse(view(), {"type": 1}, view(), viewer="ann", session="s", page="https://a.example/", deployment=2)
    rules = privacy(preset=preset)
    for delivery in (rules.reject_erased(parsed), redact(rules, parsed)):
        assert delivery.context == {"deployment": 2}
        assert delivery.accepted == []
        assert [one.index for one in delivery.rejected] == [0, 1, 2]
        assert [one.reason for one in delivery.rejected] == [Reason.ERASED] * 3
        assert [one.raw for one in delivery.rejected] == [b""] * 3
        assert all(one.omitted_bytes > 0 for one in delivery.rejected)
        assert {one.detail for one in delivery.rejected} == {delivery.rejected[0].detail}
        assert "ann" not in delivery.rejected[0].detail


@pytest.mark.parametrize("viewer", [None, "anne", "Ann", "bob"])
def test_other_deliveries_are_unchanged(viewer: str | None) -> None:
    parsed = parse(view(), {"type": 1}, **({} if viewer is None else {"viewer": viewer}))
    assert privacy().reject_erased(parsed).accepted == parsed.accepted
    assert privacy().reject_erased(parsed).rejected == parsed.rejected


@pytest.mark.parametrize("secret", SECRETS)
def test_hashes_are_the_same_person(secret: bytes) -> None:
    hashed = hash_text("viewer", "ann", secret)
    assert privacy().reject_erased(parse(view(), viewer=hashed)).accepted == []
    assert privacy(hashed).reject_erased(parse(view(), viewer="ann")).accepted == []


READY = event_or_action("event:ready", {"embedTenant": "acme", "mode": "signed", "surface": "app", "deploymentId": 2})


@pytest.mark.parametrize(
    ("limits", "context", "events", "is_erased"),
    [
        ({"deployments": {2}}, {"deployment": 2}, [view()], True),
        ({"deployments": {2}}, {"deployment": 3}, [view()], False),
        ({"deployments": {2}}, {}, [view()], False),
        ({"deployments": {2}}, {}, [view(), READY], True),
        ({"tenants": {"acme"}}, {"tenant": "acme"}, [view()], True),
        ({"tenants": {"acme"}}, {"tenant": hash_text("tenant", "acme", SECRETS[1])}, [view()], True),
        ({"tenants": {"acme"}}, {"tenant": "globex"}, [view()], False),
        ({"tenants": {"acme"}}, {}, [READY], True),
        ({"tenants": {"acme"}, "deployments": {2}}, {"tenant": "acme", "deployment": 3}, [view()], False),
    ],
)
def test_a_limited_erasure_rejects_what_names_its_limits(
    limits: dict[str, Any], context: dict[str, Any], events: list[dict[str, Any]], is_erased: bool
) -> None:
    delivery = privacy(**limits).reject_erased(parse(*events, viewer="ann", **context))
    assert (delivery.accepted == []) is is_erased


def test_a_rejection_that_names_the_person_loses_its_content() -> None:
    parsed = parse(view(), viewer=["ann"], x={"viewer": "ann"})  # The context is invalid.
    assert parsed.context == {}
    [rejection] = privacy().reject_erased(parsed).rejected
    assert (rejection.raw, rejection.reason) == (b"", parsed.rejected[0].reason)
    assert "ann" not in rejection.detail
    unreadable = Rejection(None, Reason.NOT_JSON, "body: is not JSON.", b'{"context": {"viewer" : "\\u0061nn"')
    assert privacy().redact_unreadable(unreadable).raw == b""
    assert privacy("bob").redact_unreadable(unreadable).raw == unreadable.raw
    utf_16 = Rejection(None, Reason.NOT_UTF8, "body: is not UTF-8.", '{"viewer": "ann"}'.encode("utf-16"))
    assert privacy().redact_unreadable(utf_16).raw == b""


def test_a_limited_erasure_empties_only_rejections_that_name_its_limits() -> None:
    limited = privacy(deployments={2})
    for deployment, is_emptied in ((2, True), (3, False)):
        parsed = parse({"type": 1, "viewer": "ann"}, deployment=deployment)
        assert (limited.reject_erased(parsed).rejected[0].raw == b"") is is_emptied
        parsed = parse(view(), viewer="ann", page=7, deployment=deployment)  # The context is invalid.
        assert (limited.reject_erased(parsed).rejected[0].raw == b"") is is_emptied
    nameless = Rejection(None, Reason.NOT_JSON, "body: is not JSON.", b'{"viewer": "ann"')
    assert limited.redact_unreadable(nameless).raw == nameless.raw


def test_viewers_are_found_in_damaged_json() -> None:
    raw = b'{"viewer": "a\\"b", "x": "viewer", "viewer":"c\xc3\xa4", "viewer": 3, "viewer": "\\x", "viewer": "d'
    assert list(viewers_in(raw)) == ['a"b', "cä", "3"]


@pytest.mark.parametrize(
    ("raw", "viewers"),
    [
        (b'{"viewer": ["a", 3]}', ["a", "3"]),
        (b'{"viewer": [4711.0, 4.711e3, 1e400]}', ["4711.0", "4711", "4711.0", "4711", "inf"]),
        (b'{"viewer": {"id": "a"}}', ["id", "a"]),
        (b'{"Viewer": "a"}', ["a"]),
        (b"{'viewer': 'a'}", ["a"]),
        (b'{"context": {"viewer": {"n": {"id": "a"}},},\n}', ["n", "id", "a"]),
        (b"x=1&viewer=a%40b+c", ["a@b c"]),
        (b'{"viewer": {"id": "a", "n": {"b": 1}}}', ["id", "n", "a", "b", "1"]),
        (b'{"a": [{"viewer": [["a"], {"b": {"c": null}}]}]}', ["b", "a", "c"]),
        (b'{"view\\u0065r": "\\u0061", "x": {"viewer": true}}', ["a"]),
        (b'{"viewer": ["a", ["b"]], "viewer": -1.5}', ["-1.5", "a", "b"]),
        ('{"viewer": {"id": ["ä"]}}'.encode("utf-16"), ["id", "ä"]),
        (b'{"x": "viewer", "y": "\\"viewer\\": \\"a\\"", "viewers": "b"}', []),
        (b"reviewer=a&viewers=b", []),
    ],
)
def test_viewers_are_found_in_invalid_forms(raw: bytes, viewers: list[str]) -> None:
    assert list(viewers_in(raw)) == viewers


@pytest.mark.parametrize(
    "unit",
    [b'"viewer":[', b'"viewer":{', b'"viewer":["viewer":{', b'"viewer":"', b"&viewer=", b"[", b'{"viewer":', b",  "],
)
def test_viewers_are_found_in_linear_time(unit: bytes) -> None:
    began_s = time.process_time()
    list(viewers_in(unit * (1_000_000 // len(unit))))
    assert time.process_time() - began_s < 2


@pytest.mark.parametrize("end", [b"", b"]", b"}"])
@pytest.mark.parametrize("start", [b'{"viewer":["', b'{"viewer":{"', b'{"viewer":"', b"{'viewer':['", b'{"viewer"'])
@pytest.mark.parametrize("unit", [b'\\"', b"\\'", b'"', b" ", b"1,", b"\\"])
def test_viewers_are_found_in_linear_time_behind_an_open_mark(start: bytes, unit: bytes, end: bytes) -> None:
    began_s = time.process_time()
    list(viewers_in(start + unit * (200_000 // len(unit)) + end))
    assert time.process_time() - began_s < 2


def test_a_rejection_with_many_viewers_takes_bounded_time() -> None:
    began_s = time.process_time()
    for count, is_stored in ((2_000, True), (2_001, False), (100_000, False)):
        parsed = parse({"type": 1, "viewer": [f"{number}" for number in range(count)]})
        [rejection] = privacy().reject_erased(parsed).rejected
        assert (rejection.raw == b"", "too many viewers" in rejection.detail) == (not is_stored, not is_stored)
    assert time.process_time() - began_s < 2
