"""Validation of a request body: one envelope, an array, NDJSON or a delivery (docs/wire.md).

`parse_fast` is the fast path for valid bodies. `parse` accepts any body, and explains what is wrong with it.
"""

from typing import Any

from pydantic_core import ValidationError

from embedsink.errors import Refused
from embedsink.protocol import delivery_fields
from embedsink.protocol.delivery import DEFAULT_RULES, ParsedDelivery, Rejection, Rules
from embedsink.protocol.delivery_fields import check_count
from embedsink.protocol.envelope import validate
from embedsink.protocol.messages import Catalog, catalog_for
from embedsink.protocol.strict_json import (
    Document,
    check_depth,
    decode,
    decode_fast,
    encode,
    is_shallow,
    may_contain_bad_text,
)
from embedsink.reasons import Reason


def parse(body: bytes, received_at: int, rules: Rules = DEFAULT_RULES, *, ndjson: bool = False) -> ParsedDelivery:
    """Validate a request body.

    Args:
        body: the bytes, decompressed.
        received_at: the time of the server's clock, in epoch milliseconds.
        rules: the service name of the vendor and the limits.
        ndjson: whether each line is an envelope.

    Returns:
        The accepted envelopes and the rejections. Together they are all envelopes of the body.

    Raises:
        Refused: the whole body is invalid (reason `not_json`, `too_many_events`, `empty`, …).
    """
    if not body.strip():
        raise Refused(Reason.EMPTY, "body: is empty. Send at least one envelope.")
    if ndjson:
        return _parse_ndjson(body, received_at, rules)
    parsed = parse_fast(body, received_at, rules)
    if parsed is not None:
        return parsed
    document = decode(body, depth_max=rules.depth_max)
    parsed = ParsedDelivery(received_at, catalog_for(rules.service_name))
    if is_delivery(document.value):
        return _parse_delivery(document, parsed, rules)
    return _validate_all(_list_envelopes(document.value), document, parsed, rules)


def parse_fast(body: bytes, received_at: int, rules: Rules = DEFAULT_RULES) -> ParsedDelivery | None:
    """Validate a body with the fast path alone. Return None if the body may be invalid, so that it needs `parse`.

    Only compiled code looks at single values, so the event loop can parse bodies of 32 KiB: each takes less than 1 ms.
    """
    document = decode_fast(body)
    if document is None or may_contain_bad_text(body):
        return None
    parsed = ParsedDelivery(received_at, catalog_for(rules.service_name))
    if is_delivery(document.value):
        fields = delivery_fields.drop_excess_fields(document.value)
        if not delivery_fields.are_valid(fields, rules):
            return None
        delivery_fields.copy_fields(fields, parsed)
        envelopes = document.value["events"]
        if _reports_only_losses(envelopes, parsed):
            return parsed
    else:
        envelopes = _list_envelopes(document.value)
    is_count_allowed = 0 < len(envelopes) <= rules.events_max
    if not is_count_allowed or not _are_valid_and_shallow(envelopes, document, parsed.catalog, rules):
        return None
    parsed.accepted = envelopes
    return parsed


def is_delivery(value: Any) -> bool:
    """Return whether a body is a delivery: it has `events` and, unlike an envelope, no `source`."""
    return isinstance(value, dict) and "events" in value and "source" not in value


def _list_envelopes(value: Any) -> list[Any]:
    """Return the envelopes of a body without delivery fields: an array, one envelope, or none for null."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _reports_only_losses(envelopes: list[Any], parsed: ParsedDelivery) -> bool:
    """Return whether a delivery has no envelopes but reports lost events, which is allowed."""
    return len(envelopes) == 0 and len(parsed.lost) > 0


def _are_valid_and_shallow(envelopes: list[Any], document: Document, catalog: Catalog, rules: Rules) -> bool:
    """Return whether all envelopes are valid and small, and the body has too few brackets to be nested too deeply."""
    try:
        catalog.list_validator.validate_python(envelopes)
    except ValidationError:
        return False
    # Each envelope has two brackets, its own and that of its payload. Only those of one envelope add depth.
    if not is_shallow(document.body, flat_brackets=2 * (len(envelopes) - 1), depth_max=rules.depth_max):
        return False
    bytes_max = rules.envelope_bytes_max
    # If the whole body is small enough, each envelope is.
    return document.compact_bytes <= bytes_max or all(len(encode(envelope)) <= bytes_max for envelope in envelopes)


def _parse_delivery(document: Document, parsed: ParsedDelivery, rules: Rules) -> ParsedDelivery:
    """Validate the fields and the envelopes of a delivery. If a field is invalid, all envelopes are rejected."""
    delivery: dict[str, Any] = document.value
    fields = delivery_fields.drop_excess_fields(delivery)
    problems = delivery_fields.find_problems(fields, document.body, rules)
    delivery_fields.copy_valid_fields(fields, parsed, problems)
    if problems:
        # As in `_validate_all`: a body that is nested too deeply is refused as a whole.
        check_depth(delivery, depth_max=rules.depth_max)
        return delivery_fields.reject_all(delivery, parsed, problems, rules)
    if _reports_only_losses(delivery["events"], parsed):
        return parsed
    return _validate_all(delivery["events"], document, parsed, rules)


def _validate_all(envelopes: list[Any], document: Document, parsed: ParsedDelivery, rules: Rules) -> ParsedDelivery:
    """Validate each envelope. Raise Refused if the body has no or too many envelopes, or is nested too deeply."""
    check_count(len(envelopes), rules)
    check_depth(document.value, depth_max=rules.depth_max)
    for index, envelope in enumerate(envelopes):
        validate(index, envelope, parsed, rules)
    return parsed


def _parse_ndjson(body: bytes, received_at: int, rules: Rules) -> ParsedDelivery:
    """Validate each line as an envelope. Raise Refused if no line is JSON, or if there are too many lines."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    check_count(len(lines), rules)
    parsed = ParsedDelivery(received_at, catalog_for(rules.service_name))
    refusals: list[Refused] = []
    for index, line in enumerate(lines):
        try:
            validate(index, _decode_line(line, rules), parsed, rules)
        except Refused as refusal:
            refusals.append(refusal)
            parsed.rejected.append(Rejection(index, refusal.reason, str(refusal), line))
    if len(refusals) == len(lines):
        raise refusals[0]
    return parsed


def _decode_line(line: bytes, rules: Rules) -> Any:
    """Parse a line of NDJSON. Raise Refused if the line is not strict JSON, or is nested too deeply."""
    envelope = decode(line, depth_max=rules.depth_max).value
    if not is_shallow(line, flat_brackets=0, depth_max=rules.depth_max):
        check_depth(envelope, depth_max=rules.depth_max)
    return envelope
