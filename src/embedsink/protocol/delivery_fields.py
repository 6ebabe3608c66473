"""Validation of a delivery's own fields: sentAt, context, lost and key, and the type of events."""

from collections.abc import Container
from dataclasses import replace
from itertools import islice
from typing import Any

from pydantic_core import ValidationError

from embedsink.errors import Refused
from embedsink.protocol.delivery import ParsedDelivery, Problem, Rejection, Rules, echoed_id
from embedsink.protocol.envelope import BAD_TEXT
from embedsink.protocol.error_messages import describe_error, field_path
from embedsink.protocol.messages import CONTEXT_FIELDS, DELIVERY_FIELDS, LOST_REASONS_MAX, delivery_validator
from embedsink.protocol.strict_json import check_depth, encode, has_bad_text, may_contain_bad_text
from embedsink.reasons import Reason

_REPEATED_FIELDS_BYTES_MAX = 4 * 1_048_576


def known_fields(delivery: dict[str, Any]) -> dict[str, Any]:
    """Return the known fields of a delivery, and the first unknown one, which makes the delivery invalid."""
    return _with_one_unknown(delivery, DELIVERY_FIELDS)


def are_valid(fields: dict[str, Any], rules: Rules) -> bool:
    """Return whether the fields are valid. The caller checks their text: see `may_contain_bad_text`."""
    try:
        delivery_validator.validate_python(_bounded(fields))
    except ValidationError:
        return False
    return len(encode(fields.get("context"))) <= rules.context_bytes_max


def find_problems(fields: dict[str, Any], body: bytes, rules: Rules) -> dict[str, Problem]:
    """Return the first problem of each invalid field. The envelopes are not validated."""
    problems: dict[str, Problem] = {}
    if may_contain_bad_text(body):
        check_depth(fields, depth_max=rules.depth_max)
        bad = [name for name, value in fields.items() if name != "events" and has_bad_text({name: value})]
        problems = {name: Problem(Reason.BAD_TEXT, f"{field_path((name,))}: {BAD_TEXT}") for name in bad}
    try:
        delivery_validator.validate_python(_bounded(_without(fields, problems)))
    except ValidationError as error:
        for field_error in error.errors(include_url=False):
            detail = f"{field_path(field_error['loc'])}: {describe_error(field_error)}"
            problems.setdefault(str(field_error["loc"][0]), Problem(Reason.BAD_FIELD, detail))
    context_bytes = len(encode(_without(fields, problems).get("context")))
    if context_bytes > rules.context_bytes_max:
        limit = f"{rules.context_bytes_max:,} (EMBEDSINK_CONTEXT_BYTES_MAX)"
        detail = f"context: {context_bytes:,} bytes; the limit is {limit}. Shorten its strings."
        problems["context"] = Problem(Reason.TOO_LARGE, detail)
    return problems


def set_fields(parsed: ParsedDelivery, fields: dict[str, Any]) -> None:
    """Copy the valid fields of a delivery."""
    parsed.context = fields.get("context") or {}
    parsed.sent_at = fields.get("sentAt")
    parsed.lost = {reason: count for reason, count in (fields.get("lost") or {}).items() if count}
    parsed.key = fields.get("key")


def set_valid_fields(parsed: ParsedDelivery, fields: dict[str, Any], problems: dict[str, Problem]) -> None:
    """Copy the fields without a problem, and the deployment of an invalid context if it is valid itself.

    The deployment decides who may read the rejections, and whether the key may send them.
    """
    set_fields(parsed, _without(fields, problems))
    context = fields.get("context")
    deployment = context.get("deployment") if isinstance(context, dict) else None
    if not parsed.context and type(deployment) is int and abs(deployment) < 2**53:
        parsed.context = {"deployment": deployment}


def reject_all(
    delivery: dict[str, Any], parsed: ParsedDelivery, problems: dict[str, Problem], rules: Rules
) -> ParsedDelivery:
    """Reject each envelope of an invalid delivery. Each is stored as a separate delivery, for a replay."""
    events = delivery["events"]
    envelopes = events if isinstance(events, list) else [events]
    first_problem = next(iter(problems.values()))
    if not envelopes:
        raise Refused(Reason.EMPTY, f"body: has no envelopes, and {first_problem.detail}")
    check_count(len(envelopes), rules)
    fields, short_fields = _repeated_fields(delivery, problems, len(envelopes), rules)
    rejected = [
        Rejection(
            index,
            *first_problem,
            b'{%b"events":[%b]}' % (short_fields if index else fields, encode(envelope)),
            echoed_id(envelope),
        )
        for index, envelope in enumerate(envelopes)
    ]
    return replace(parsed, rejected=rejected)


def check_count(count: int, rules: Rules) -> None:
    """Check the number of envelopes in a body.

    Raises:
        Refused: `empty` or `too_many_events`.
    """
    if count == 0:
        raise Refused(Reason.EMPTY, "body: has no envelopes. Send at least one.")
    if count > rules.events_max:
        limit = f"{rules.events_max:,} (EMBEDSINK_EVENTS_MAX)"
        raise Refused(Reason.TOO_MANY_EVENTS, f"events: {count:,} envelopes; the limit is {limit}. Split and resend.")


def _repeated_fields(
    delivery: dict[str, Any], problems: dict[str, Problem], envelope_count: int, rules: Rules
) -> tuple[bytes, bytes]:
    """Return the fields to store with the first rejection, and those to store with each further one, as JSON members.

    Valid losses and the key are stored elsewhere. Long fields are stored whole only once: a thousand copies of a
    megabyte would fill the disk.
    """
    stored_elsewhere = {"events", "key"} | ({"lost"} if "lost" not in problems else set())
    members = encode(_without(delivery, stored_elsewhere))[1:-1]
    short_members = members
    if len(members) * envelope_count > _REPEATED_FIELDS_BYTES_MAX:
        short_members = encode({"context": members[: rules.context_bytes_max].decode(errors="replace")})[1:-1]
    return members and members + b",", short_members and short_members + b","


def _bounded(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with at most one excess member in the context and in the losses."""
    context, lost = fields.get("context"), fields.get("lost")
    if isinstance(context, dict):
        fields = fields | {"context": _with_one_unknown(context, CONTEXT_FIELDS)}
    if isinstance(lost, dict):
        fields = fields | {"lost": dict(islice(lost.items(), LOST_REASONS_MAX + 1))}
    return fields


def _with_one_unknown(members: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    # Pydantic creates an error for each unknown member, and a body has room for 100,000 of them.
    unknown = next((name for name in members if name not in known), None)
    return {name: value for name, value in members.items() if name in known or name == unknown}


def _without(fields: dict[str, Any], names: Container[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
