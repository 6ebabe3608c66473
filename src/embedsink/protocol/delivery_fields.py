"""Validation of a delivery's own fields: sentAt, context, lost and key, and that `events` is an array."""

from collections.abc import Container
from dataclasses import replace
from itertools import islice
from typing import Any

from pydantic_core import ValidationError

from embedsink.errors import Refused
from embedsink.protocol.delivery import ParsedDelivery, Problem, Rejection, Rules, echoed_id
from embedsink.protocol.envelope import BAD_TEXT
from embedsink.protocol.error_messages import describe_error, field_path
from embedsink.protocol.messages import (
    CONTEXT_FIELDS,
    DELIVERY_FIELDS,
    LOST_REASONS_MAX,
    delivery_validator,
    is_safe_integer,
)
from embedsink.protocol.strict_json import check_depth, encode, has_bad_text, may_contain_bad_text
from embedsink.reasons import Reason

# If the copies of a delivery's fields exceed this size together, only the first rejection has all fields.
_REPEATED_FIELDS_BYTES_MAX = 4 * 1_048_576


def drop_excess_fields(delivery: dict[str, Any]) -> dict[str, Any]:
    """Return a delivery with only the first of its unknown fields, which is enough to make the delivery invalid.

    Pydantic would create an error for each unknown field, and a body may have 100,000 of them.
    """
    return _drop_excess_members(delivery, DELIVERY_FIELDS)


def are_valid(fields: dict[str, Any], rules: Rules) -> bool:
    """Return whether the fields of a delivery are valid. The envelopes are not validated.

    Strings may contain text that SQL can't store. The caller finds such text with `may_contain_bad_text`.
    """
    try:
        delivery_validator.validate_python(_drop_excess_nested_members(fields))
    except ValidationError:
        return False
    return len(encode(fields.get("context"))) <= rules.context_bytes_max


def find_problems(fields: dict[str, Any], body: bytes, rules: Rules) -> dict[str, Problem]:
    """Return the first problem of each invalid field, by the field's name. The envelopes are not validated.

    Raises:
        Refused: the fields are nested too deeply to search them for text that SQL can't store (reason `too_deep`).
    """
    problems = _find_text_problems(fields, rules) if may_contain_bad_text(body) else {}
    # Don't look for a second problem in a field.
    problems |= _find_type_problems(_omit(fields, problems))
    context = _omit(fields, problems).get("context")  # None if the context already has a problem
    context_bytes = len(encode(context))
    if context_bytes > rules.context_bytes_max:
        limit = f"{rules.context_bytes_max:,} (EMBEDSINK_CONTEXT_BYTES_MAX)"
        detail = f"context: {context_bytes:,} bytes; the limit is {limit}. Shorten its strings."
        problems["context"] = Problem(Reason.TOO_LARGE, detail)
    return problems


def _find_text_problems(fields: dict[str, Any], rules: Rules) -> dict[str, Problem]:
    """Return a problem for each field with text that SQL can't store, by the field's name."""
    # `has_bad_text` calls itself for each level, so limit the depth first.
    check_depth(fields, depth_max=rules.depth_max)
    return {
        name: Problem(Reason.BAD_TEXT, f"{field_path((name,))}: {BAD_TEXT}")
        for name, value in fields.items()
        # Check the name too: an unknown field may have any name. `validate` checks the envelopes in `events`.
        if name != "events" and has_bad_text({name: value})
    }


def _find_type_problems(fields: dict[str, Any]) -> dict[str, Problem]:
    """Return the first problem of each field that is unknown, missing or has a wrong type, by the field's name."""
    problems: dict[str, Problem] = {}
    try:
        delivery_validator.validate_python(_drop_excess_nested_members(fields))
    except ValidationError as error:
        for field_error in error.errors(include_url=False):
            location = field_error["loc"]  # the path, which begins with the field's name
            detail = f"{field_path(location)}: {describe_error(field_error)}"
            problems.setdefault(str(location[0]), Problem(Reason.BAD_FIELD, detail))
    return problems


def copy_fields(fields: dict[str, Any], parsed: ParsedDelivery) -> None:
    """Copy valid fields to the parsed delivery. Null means the same as a missing field."""
    parsed.context = fields.get("context") or {}
    parsed.sent_at = fields.get("sentAt")
    lost = fields.get("lost") or {}
    parsed.lost = {reason: count for reason, count in lost.items() if count > 0}  # Zeros are valid, but no losses.
    parsed.key = fields.get("key")
    parsed.is_opted_out = fields.get("optedOut") is True


def copy_valid_fields(fields: dict[str, Any], parsed: ParsedDelivery, problems: dict[str, Problem]) -> None:
    """Copy the fields without a problem to the parsed delivery. Copy a valid deployment even from an invalid context.

    The deployment decides which keys may read the rejections, and whether the sender's key may send them.
    """
    copy_fields(_omit(fields, problems), parsed)
    # An invalid value such as "yes" means that the viewer has opted out.
    parsed.is_opted_out = fields.get("optedOut") not in (None, False)
    context = fields.get("context")
    if not parsed.context and isinstance(context, dict) and is_safe_integer(context.get("deployment")):
        parsed.context = {"deployment": context["deployment"]}


def reject_all(
    delivery: dict[str, Any], parsed: ParsedDelivery, problems: dict[str, Problem], rules: Rules
) -> ParsedDelivery:
    """Return the parsed delivery with each envelope rejected because of the first problem.

    The quarantine stores each rejected envelope as a delivery of one envelope, so that it can be replayed alone.

    Raises:
        Refused: the delivery has no envelopes (reason `empty`) or too many (reason `too_many_events`).
    """
    events = delivery["events"]
    envelopes = events if isinstance(events, list) else [events]  # The invalid field may be `events`.
    first_problem = next(iter(problems.values()))
    if not envelopes:
        raise Refused(Reason.EMPTY, f"body: has no envelopes, and {first_problem.detail}")
    check_count(len(envelopes), rules)
    # Valid losses are journaled once, with the delivery. In the rejections, each replay would count them again.
    fields = _encode_fields(delivery, with_lost="lost" in problems)
    later_fields = fields  # for all rejections except the first
    if len(fields) * len(envelopes) > _REPEATED_FIELDS_BYTES_MAX:
        # A thousand copies of long fields would fill the disk, so only the first rejection has all of them.
        later_fields = _shorten_fields(fields, rules)
    rejected = [
        Rejection(
            index,
            first_problem.reason,
            first_problem.detail,
            _encode_single_delivery(fields if index == 0 else later_fields, envelope),
            echoed_id(envelope),
        )
        for index, envelope in enumerate(envelopes)
    ]
    return replace(parsed, rejected=rejected)


def check_count(count: int, rules: Rules) -> None:
    """Check the number of envelopes in a body.

    Raises:
        Refused: the body has no envelopes (reason `empty`) or too many (reason `too_many_events`).
    """
    if count == 0:
        raise Refused(Reason.EMPTY, "body: has no envelopes. Send at least one.")
    if count > rules.events_max:
        limit = f"{rules.events_max:,} (EMBEDSINK_EVENTS_MAX)"
        raise Refused(Reason.TOO_MANY_EVENTS, f"events: {count:,} envelopes; the limit is {limit}. Split and resend.")


def _encode_fields(delivery: dict[str, Any], *, with_lost: bool) -> bytes:
    """Return the fields of a delivery that each rejection of an envelope repeats, as JSON without braces."""
    names_to_omit = {"events", "key"}  # A rejection has its own `events`, and must not contain an API key.
    if not with_lost:
        names_to_omit.add("lost")
    return encode(_omit(delivery, names_to_omit))[1:-1]


def _shorten_fields(fields: bytes, rules: Rules) -> bytes:
    """Return a JSON member `context`, without braces, whose text is the beginning of the encoded fields.

    The text shows an operator how the fields begin.
    """
    beginning = fields[: rules.context_bytes_max].decode(errors="replace")
    return encode({"context": beginning})[1:-1]


def _encode_single_delivery(fields: bytes, envelope: Any) -> bytes:
    """Return a delivery of one envelope as JSON. `fields` are encoded members without braces."""
    members = [b'"events":[%b]' % encode(envelope)]
    if fields:
        members.insert(0, fields)
    return b"{%b}" % b",".join(members)


def _drop_excess_nested_members(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with at most one unknown member of the context, and one excess reason of loss.

    One of each is enough to make the delivery invalid. Pydantic would create an error for every further one.
    """
    context, lost = fields.get("context"), fields.get("lost")
    if isinstance(context, dict):
        fields = fields | {"context": _drop_excess_members(context, CONTEXT_FIELDS)}
    if isinstance(lost, dict):
        fields = fields | {"lost": dict(islice(lost.items(), LOST_REASONS_MAX + 1))}
    return fields


def _drop_excess_members(members: dict[str, Any], known_names: frozenset[str]) -> dict[str, Any]:
    """Return the known members and the first unknown member."""
    # A body may have 100,000 unknown members.
    first_unknown = next((name for name in members if name not in known_names), None)
    return {name: value for name, value in members.items() if name in known_names or name == first_unknown}


def _omit(fields: dict[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return the fields without those that have one of these names."""
    return {name: value for name, value in fields.items() if name not in names}
