"""Each envelope of a body has exactly one outcome."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from embedsink.errors import Refused
from embedsink.key_scope import KeyScope
from embedsink.protocol import delivery_fields
from embedsink.protocol.delivery import ParsedDelivery, Rules
from embedsink.protocol.error_messages import describe_error
from embedsink.reasons import Reason
from tests.support.envelopes import DEFAULTS, ID, KEY, KEY_CUT, RECEIVED_AT, event_or_action, parse_body, view

GOOD = view()
BAD = view(source="other")
UNREADABLE = b'{"source": '


def refusal_of(body: object, rules: Rules = DEFAULTS, *, ndjson: bool = False) -> Refused:
    with pytest.raises(Refused) as refusal:
        parse_body(body, rules, ndjson=ndjson)
    return refusal.value


def in_lines(*lines: Any) -> bytes:
    return b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)


def outcomes(parsed: ParsedDelivery) -> list[tuple[int, str]]:
    """Return the index and the outcome of each envelope, in the order of the body."""
    rejected = {one.index: str(one.reason) for one in parsed.rejected}
    return [(index, rejected.get(index, "accepted")) for index in range(parsed.received_count)]


# The four forms of a body.


def test_a_body_may_be_an_envelope() -> None:
    parsed = parse_body(GOOD)

    assert parsed.accepted == [GOOD]
    assert (parsed.context, parsed.sent_at, parsed.lost, parsed.key) == ({}, None, {}, None)


def test_a_body_may_be_an_array_of_envelopes() -> None:
    assert outcomes(parse_body([GOOD, BAD, GOOD])) == [(0, "accepted"), (1, "wrong_source"), (2, "accepted")]


def test_a_body_may_be_ndjson() -> None:
    parsed = parse_body(in_lines(GOOD, BAD, GOOD), ndjson=True)

    assert outcomes(parsed) == [(0, "accepted"), (1, "wrong_source"), (2, "accepted")]


def test_a_body_may_be_a_delivery_with_a_context() -> None:
    context = {"deployment": 12, "session": "s_9f3c"}
    parsed = parse_body(
        {"sentAt": 1.5, "context": context, "events": [GOOD, BAD], "lost": {"quota": 3, "age": 0}, "key": "k"}
    )

    assert outcomes(parsed) == [(0, "accepted"), (1, "wrong_source")]
    assert (parsed.context, parsed.sent_at, parsed.lost, parsed.key) == (context, 1.5, {"quota": 3}, "k")
    assert parsed.received_at == RECEIVED_AT


def test_an_accepted_envelope_is_unchanged() -> None:
    sent = view({"b": 1, "a": [1.0, 1e300, "é"]}, z=None, a={})
    (accepted,) = parse_body(sent).accepted

    assert accepted == sent
    assert list(accepted) == list(sent)


def test_a_body_is_parsed_as_ndjson_only_on_request() -> None:
    assert refusal_of(in_lines(GOOD, GOOD)).reason == Reason.NOT_JSON


def test_an_ndjson_envelope_must_not_span_several_lines() -> None:
    assert refusal_of(json.dumps(GOOD, indent=1).encode(), ndjson=True).reason == Reason.NOT_JSON


def test_an_object_with_events_and_a_source_is_an_envelope() -> None:
    assert len(parse_body(view(events=[BAD, BAD])).accepted) == 1


# Counts.


@pytest.mark.parametrize("valid_count", range(3))
@pytest.mark.parametrize("invalid_count", range(3))
def test_accepted_and_rejected_envelopes_add_up_to_the_body(valid_count: int, invalid_count: int) -> None:
    envelopes = [GOOD] * valid_count + [BAD] * invalid_count
    if not envelopes:
        return
    for parsed in (
        parse_body(envelopes),
        parse_body({"events": envelopes}),
        parse_body(in_lines(*envelopes), ndjson=True),
    ):
        assert (len(parsed.accepted), len(parsed.rejected)) == (valid_count, invalid_count)
        assert parsed.received_count == valid_count + invalid_count
        assert [index for index, _ in outcomes(parsed)] == list(range(valid_count + invalid_count))


def test_an_invalid_delivery_rejects_all_its_envelopes() -> None:
    parsed = parse_body({"context": {"tennant": "acme"}, "events": [GOOD, BAD, 7]})

    assert outcomes(parsed) == [(0, "bad_field"), (1, "bad_field"), (2, "bad_field")]
    assert {one.detail.split(":")[0] for one in parsed.rejected} == {"context.tennant"}


def test_the_fields_of_an_invalid_delivery_are_stored_with_each_rejection() -> None:
    fields = {"sentAt": 1, "context": {"session": "s_1", "deployment": "12"}}
    parsed = parse_body({**fields, "events": [GOOD, GOOD], "lost": {"quota": 3}, "key": "k"})

    assert [json.loads(one.raw) for one in parsed.rejected] == [{**fields, "events": [GOOD]}] * 2
    parsed_again = parse_body(json.loads(parsed.rejected[0].raw))
    assert outcomes(parsed_again) == [(0, "bad_field")], "a replay rejects it again"


def test_a_valid_deployment_of_an_invalid_context_is_used() -> None:
    assert parse_body({"context": {"deployment": 12, "zone": 3}, "events": [GOOD]}).context == {"deployment": 12}
    assert parse_body({"context": {"deployment": True}, "events": [GOOD]}).context == {}


def test_a_long_invalid_context_is_stored_whole_only_once() -> None:
    context = {"session": "x" * 100_000, "deployment": "12"}
    few = parse_body({"context": context, "events": [GOOD] * 3})
    assert [json.loads(one.raw)["context"] for one in few.rejected] == [context] * 3

    parsed = parse_body({"context": context, "events": [GOOD] * 1_000})

    assert json.loads(parsed.rejected[0].raw) == {"context": context, "events": [GOOD]}
    assert sum(len(one.raw) for one in parsed.rejected) < 16 * 1_048_576
    assert outcomes(parse_body(json.loads(parsed.rejected[999].raw))) == [(0, "bad_field")]


@pytest.mark.parametrize("part", [None, "context", "lost"])
def test_few_of_many_unknown_members_are_described(monkeypatch: pytest.MonkeyPatch, part: str | None) -> None:
    described = []

    def record_and_describe(error: Any) -> str:
        described.append(error)
        return describe_error(error)

    monkeypatch.setattr(delivery_fields, "describe_error", record_and_describe)
    many = {f"{number:x}": "x" for number in range(60_000)}
    assert outcomes(parse_body({**({part: many} if part else many), "events": [GOOD]})) == [(0, "bad_field")]
    assert 1 <= len(described) < 50


def test_a_detail_describes_the_first_problem_of_a_delivery() -> None:
    context = {"page": 1, "tenant": 2, "deployment": "12", "zone": 3}
    (rejection,) = parse_body({"key": 7, "context": context, "events": [GOOD]}).rejected

    assert rejection.detail == 'context.deployment: "12" is not an integer. Send an integer.'


def test_a_delivery_whose_events_are_not_a_list_is_one_rejection() -> None:
    assert outcomes(parse_body({"events": GOOD})) == [(0, "bad_field")]


def test_the_valid_fields_of_an_invalid_delivery_are_used() -> None:
    parsed = parse_body(
        {"sentAt": "now", "context": {"deployment": 12}, "events": [GOOD], "lost": {"quota": 3}, "key": "k"}
    )

    assert outcomes(parsed) == [(0, "bad_field")]
    assert (parsed.context, parsed.sent_at, parsed.lost, parsed.key) == (
        {"deployment": 12},
        None,
        {"quota": 3},
        "k",
    )


@pytest.mark.parametrize("field", ['["\\ud800"]', '{"\\u0000": "a"}', '"\\u0000"', "[]", '{"a": "b"}', "true"])
def test_the_invalid_fields_of_a_delivery_are_ignored(field: str) -> None:
    body = '{"events": [1], "context": %s, "lost": %s, "key": [%s], "sentAt": %s}'
    parsed = parse_body((body % ((field,) * 4)).encode())

    assert len(parsed.rejected) == 1
    assert (parsed.context, parsed.sent_at, parsed.lost, parsed.key) == ({}, None, {}, None)


def test_a_delivery_may_consist_of_losses() -> None:
    parsed = parse_body({"events": [], "lost": {"quota": 3}})

    assert parsed.received_count == 0
    assert parsed.lost == {"quota": 3}


# Refusals of whole bodies.


@pytest.mark.parametrize("body", [b"", b" \r\n\t ", None, [], {"events": []}, {"events": [], "lost": {"quota": 0}}])
def test_a_body_without_envelopes_is_refused_as_empty(body: object) -> None:
    assert refusal_of(b"null" if body is None else body).reason == Reason.EMPTY


@pytest.mark.parametrize("body", [b"", b"\n\n", b" \r\n\t\n"])
def test_ndjson_without_lines_is_refused_as_empty(body: bytes) -> None:
    assert refusal_of(body, ndjson=True).reason == Reason.EMPTY


@pytest.mark.parametrize("envelope", [GOOD, BAD, 7, None])
def test_too_many_envelopes_of_any_kind_are_refused(envelope: Any) -> None:
    rules = Rules(events_max=3)

    for body, ndjson in (
        ([envelope] * 4, False),
        ({"events": [envelope] * 4}, False),
        ({"events": [envelope] * 4, "sentAt": "now"}, False),
        (in_lines(*[envelope] * 4), True),
    ):
        assert refusal_of(body, rules, ndjson=ndjson).reason == Reason.TOO_MANY_EVENTS
    assert parse_body([envelope] * 3, rules).received_count == 3


def test_ndjson_is_refused_only_if_no_line_is_json() -> None:
    assert refusal_of(in_lines(UNREADABLE, b"\xff"), ndjson=True).reason == Reason.NOT_JSON
    assert outcomes(parse_body(in_lines(UNREADABLE, GOOD, b"\xff"), ndjson=True)) == [
        (0, "not_json"),
        (1, "accepted"),
        (2, "not_utf8"),
    ]


# Limits.


def nested(levels: int) -> dict[str, Any]:
    """Return a drilldown with this many levels of brackets."""
    value: Any = "HERE"
    for _ in range(levels - 2):
        value = [value]
    return event_or_action("event:drilldown", {"value": value})


@pytest.mark.parametrize("text", ["fast", "[fast[", "\\u0022slow"])
def test_depth_includes_every_level_of_the_body_with_both_parsers(text: str) -> None:
    def accepted_depths(wrap: Callable[[Any], Any], *, ndjson: bool = False) -> list[int]:
        bodies = [json.dumps(wrap(nested(levels))).replace("HERE", text).encode() for levels in range(28, 35)]
        return [index + 28 for index, body in enumerate(bodies) if is_shallow(body, ndjson=ndjson)]

    assert accepted_depths(lambda envelope: envelope) == [28, 29, 30, 31, 32]
    assert accepted_depths(lambda envelope: envelope, ndjson=True) == [28, 29, 30, 31, 32]
    assert accepted_depths(lambda envelope: [envelope]) == [28, 29, 30, 31]
    assert accepted_depths(lambda envelope: [envelope, BAD]) == [28, 29, 30, 31]
    assert accepted_depths(lambda envelope: {"events": [envelope]}) == [28, 29, 30]
    assert accepted_depths(lambda envelope: {"events": [envelope], "sentAt": "now"}) == [28, 29, 30]


def is_shallow(body: bytes, *, ndjson: bool) -> bool:
    """Return whether the body is not refused as too deep."""
    try:
        parse_body(body, ndjson=ndjson)
    except Refused as refusal:
        return refusal.reason != Reason.TOO_DEEP
    return True


def test_a_line_of_ndjson_that_is_too_deep_is_one_rejection() -> None:
    assert outcomes(parse_body(in_lines(nested(33), GOOD), ndjson=True)) == [(0, "too_deep"), (1, "accepted")]


def test_the_size_limit_of_an_envelope_counts_bytes_of_compact_json() -> None:
    size = len(json.dumps(GOOD, separators=(",", ":")))

    for body, ndjson in ((GOOD, False), ([GOOD], False), ({"events": [GOOD]}, False), (in_lines(GOOD), True)):
        assert len(parse_body(body, Rules(envelope_bytes_max=size), ndjson=ndjson).accepted) == 1
        assert outcomes(parse_body(body, Rules(envelope_bytes_max=size - 1), ndjson=ndjson)) == [(0, "too_large")]


def test_the_size_of_a_number_is_that_of_its_encoded_form() -> None:
    body = json.dumps(event_or_action("event:drilldown", {"value": "HERE"})).replace(
        '"HERE"', "[1e15,1e15,1e15,1e15,1e15,1e15]"
    )
    rules = Rules(envelope_bytes_max=len(body))

    assert outcomes(parse_body(body.encode(), rules)) == [(0, "too_large")]
    assert outcomes(parse_body([json.loads(body), BAD], rules)) == [(0, "too_large"), (1, "wrong_source")]


def test_the_context_has_a_size_limit() -> None:
    rules = Rules(context_bytes_max=len('{"page":"0123456789"}'))

    assert outcomes(parse_body({"context": {"page": "0123456789"}, "events": [GOOD]}, rules)) == [(0, "accepted")]
    too_large = parse_body({"context": {"page": "0123456789a"}, "events": [GOOD, GOOD], "lost": {"quota": 3}}, rules)
    assert outcomes(too_large) == [(0, "too_large"), (1, "too_large")]
    assert (too_large.context, too_large.lost) == ({}, {"quota": 3})


def test_the_reasons_of_loss_have_a_limit() -> None:
    few, many = ({str(reason): 1 for reason in range(count)} for count in (32, 33))

    assert outcomes(parse_body({"events": [GOOD], "lost": few})) == [(0, "accepted")]
    assert outcomes(parse_body({"events": [GOOD], "lost": many})) == [(0, "bad_field")]
    assert outcomes(parse_body({"events": [GOOD], "lost": {"x" * 65: 1}})) == [(0, "bad_field")]


# The order of validation.


def test_an_envelope_is_validated_from_outer_to_inner_fields() -> None:
    valid = event_or_action("event:download")
    invalid: dict[str, Any] = {
        "source": "other",
        "direction": "both",
        "type": "svc:event:bookmark",
        "surface": "app",
        "payload": {"format": "doc"},
        "timestamp": "now",
    }
    reasons = []
    for name in list(invalid):
        reasons.append(str(parse_body(invalid).rejected[0].reason))
        invalid[name] = valid[name]

    assert reasons == [
        *("wrong_source", "wrong_direction", "unknown_type"),
        *("wrong_surface", "bad_field", "bad_timestamp"),
    ]
    assert len(parse_body(invalid).accepted) == 1


@pytest.mark.parametrize("good_first", [True, False])
def test_other_envelopes_do_not_change_the_outcome_of_an_envelope(good_first: bool) -> None:
    invalid = [
        BAD,
        view(timestamp=None),
        view({"path": 1}),
        7,
        view(id="x"),
        event_or_action("event:download", surface="app"),
    ]
    for envelope in invalid:
        rejection_alone = parse_body(envelope).rejected[0]
        other_envelopes = [GOOD] * 5
        together = parse_body([*other_envelopes, envelope] if good_first else [envelope, *other_envelopes])

        assert len(together.accepted) == 5
        assert replace(together.rejected[0], index=rejection_alone.index) == rejection_alone


# Echoed ids.


@pytest.mark.parametrize(
    ("sent", "echoed"),
    [
        (ID, ID),
        ("event-7", "event-7"),
        ("x" * 64, "x" * 64),
        ("x" * 65, None),
        ("a\ud800", None),
        ("a\0", None),
        (7, None),
        (None, None),
        (KEY, KEY_CUT),
    ],
)
def test_a_rejection_echoes_an_id_if_it_is_short_text(sent: Any, echoed: str | None) -> None:
    (rejection,) = parse_body(view(id=sent, source="other")).rejected

    assert rejection.response_entry() == {
        "index": 0,
        "id": echoed,
        "reason": rejection.reason,
        "detail": rejection.detail,
    }


# Deployments.


def ready(deployment: int | None) -> dict[str, Any]:
    return event_or_action("event:ready", {"deploymentId": deployment})


@pytest.mark.parametrize(
    ("body", "deployments"),
    [
        (GOOD, set()),
        (ready(7), {7}),
        (ready(None), set()),
        ({"context": {"deployment": 12}, "events": [GOOD]}, {12}),
        ({"context": {"deployment": 12}, "events": [ready(7), ready(8), GOOD]}, {7, 8, 12}),
        ({"context": {"deployment": 0}, "events": [ready(None)]}, {0}),
        # In other types, a field of this name is not a deployment.
        (view({"deploymentId": 7}), set()),
        (event_or_action("action:refresh", {"deploymentId": 7}), set()),
    ],
)
def test_deployments_come_from_the_context_and_from_ready_events(body: Any, deployments: set[int]) -> None:
    parsed = parse_body(body)
    parsed.restrict_to(KeyScope(frozenset(deployments | {99})))
    for missing in deployments:
        with pytest.raises(Refused, match=f": {missing} is outside the key's scope"):
            parsed.restrict_to(KeyScope(frozenset(deployments - {missing} | {99})))


def test_an_invalid_delivery_has_the_deployment_of_its_context() -> None:
    with pytest.raises(Refused, match=r"context\.deployment: 12 is outside"):
        parse_body({"context": {"deployment": 12}, "events": [BAD], "sentAt": "now"}).restrict_to(
            KeyScope(frozenset({7}))
        )


def test_tenants_are_restricted_as_deployments_are() -> None:
    acme, two = KeyScope(tenants=frozenset({"acme"})), KeyScope(tenants=frozenset({"acme", "globex"}))
    assert parse_body(GOOD).restrict_to(acme).context == {"tenant": "acme"}
    both = KeyScope(frozenset({7}), frozenset({"acme"}))
    assert parse_body(GOOD).restrict_to(both).context == {"deployment": 7, "tenant": "acme"}
    ready_of_globex = ready(7) | {"payload": ready(7)["payload"] | {"embedTenant": "globex"}}
    for body, path in (
        ({"context": {"tenant": "globex"}, "events": [GOOD]}, "context.tenant"),
        (ready_of_globex, "payload.embedTenant"),
    ):
        with pytest.raises(Refused, match=f'^{path}: "globex" is outside the key.s scope. Use a key for that tenant.$'):
            parse_body(body).restrict_to(acme)
        parse_body(body).restrict_to(two)
    parsed = parse_body([GOOD, ready_of_globex]).restrict_to(two)
    assert outcomes(parsed) == [(0, "out_of_scope"), (1, "accepted")]
    assert (
        parsed.rejected[0].detail == "context.tenant: is missing, and the key covers several tenants. Send the tenant."
    )


def test_a_key_supplies_the_deployment_if_the_context_has_none() -> None:
    context = {"deployment": None, "viewer": "u"}
    assert parse_body(GOOD).restrict_to(KeyScope(frozenset({12}))).context == {"deployment": 12}
    assert parse_body({"context": context, "events": [GOOD]}).restrict_to(KeyScope(frozenset({12}))).context == {
        "deployment": 12,
        "viewer": "u",
    }
    named = parse_body({"context": context | {"deployment": 0}, "events": [GOOD]})
    assert named.restrict_to(KeyScope(frozenset({0}))).context == {"deployment": 0, "viewer": "u"}
    with pytest.raises(Refused, match="deployment: 0 is outside"):
        named.restrict_to(KeyScope(frozenset({12})))


def test_a_deployment_outside_the_scope_is_refused_with_its_path() -> None:
    for body, problem in (
        (ready(7), "payload.deploymentId: 7 is outside"),
        ({"context": {"deployment": 12}, "events": [ready(7)]}, "payload.deploymentId: 7 is outside"),
        ({"context": {"deployment": 8}, "events": [ready(7)]}, "context.deployment: 8 is outside"),
    ):
        with pytest.raises(Refused, match=f"^{problem} the key's scope. Use a key for that deployment.$"):
            parse_body(body).restrict_to(KeyScope(frozenset({12, 13})))


def test_envelopes_without_a_deployment_are_rejected_for_a_key_with_several() -> None:
    parsed = parse_body([GOOD, ready(7), BAD, ready(None)]).restrict_to(KeyScope(frozenset({7, 8})))

    assert outcomes(parsed) == [(0, "out_of_scope"), (1, "accepted"), (2, "wrong_source"), (3, "out_of_scope")]
    assert [one.index for one in parsed.rejected] == [0, 2, 3]
    assert parsed.rejected[0].detail.startswith("context.deployment: ")
    assert json.loads(parsed.rejected[0].raw) == GOOD


def test_a_context_with_a_deployment_needs_none_in_the_envelopes() -> None:
    parsed = parse_body({"context": {"deployment": 0}, "events": [GOOD]})

    assert parsed.restrict_to(KeyScope(frozenset({0, 8}))) == parsed
