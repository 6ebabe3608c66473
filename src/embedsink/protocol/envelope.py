"""Validation of one envelope (spec 6)."""

from typing import Any

from pydantic_core import ValidationError

from embedsink.errors import preview
from embedsink.protocol.delivery import ParsedDelivery, Problem, Rejection, Rules, echoed_id
from embedsink.protocol.error_messages import describe_error, field_path
from embedsink.protocol.messages import SURFACES, Catalog, MessageType
from embedsink.protocol.strict_json import encode, has_bad_text
from embedsink.reasons import Reason

BAD_TEXT = "a string contains a NUL or a lone surrogate. Remove it."


def validate(index: int, envelope: Any, parsed: ParsedDelivery, rules: Rules) -> None:
    """Validate an envelope. Add it to `parsed.accepted`, or a rejection to `parsed.rejected`."""
    encoded = encode(envelope)
    problem = _find_problem(envelope, len(encoded), parsed.catalog, rules)
    if problem is None:
        parsed.accepted.append(envelope)
    else:
        rejection = Rejection(index, problem.reason, problem.detail, encoded, echoed_id(envelope))
        parsed.rejected.append(rejection)


def _find_problem(envelope: Any, encoded_bytes: int, catalog: Catalog, rules: Rules) -> Problem | None:
    """Return the first problem of an envelope; None if it is valid. Outer fields are checked before inner fields."""
    if not isinstance(envelope, dict):
        detail = f"envelope: {preview(envelope)} is not an object. Send the value of `event.data`."
        return Problem(Reason.NOT_AN_OBJECT, detail)
    if encoded_bytes > rules.envelope_bytes_max:
        limit = f"{rules.envelope_bytes_max:,} (EMBEDSINK_ENVELOPE_BYTES_MAX)"
        detail = f"envelope: {encoded_bytes:,} bytes; the limit is {limit}. Shorten its strings."
        return Problem(Reason.TOO_LARGE, detail)
    if has_bad_text(envelope):
        return Problem(Reason.BAD_TEXT, f"envelope: {BAD_TEXT}")
    source = envelope.get("source")
    if source != catalog.source:
        detail = f'source: {preview(source)} is not "{catalog.source}" (EMBEDSINK_SERVICE_NAME).'
        return Problem(Reason.WRONG_SOURCE, detail)
    direction = envelope.get("direction")
    if direction not in ("event", "action"):
        return Problem(Reason.WRONG_DIRECTION, f"direction: {preview(direction)} is not one of event, action.")
    type_name = envelope.get("type")
    message_type = catalog.types.get(type_name) if isinstance(type_name, str) else None
    if message_type is None or message_type.direction != direction:
        return Problem(Reason.UNKNOWN_TYPE, f"type: {preview(type_name)} is not an {direction} type of the protocol.")
    surface_problem = _find_surface_problem(envelope, message_type)
    return surface_problem or _find_field_problem(envelope, catalog)


def _find_surface_problem(envelope: dict[str, Any], message_type: MessageType) -> Problem | None:
    """Return the problem of an action with a surface, or of an event on a known surface that its type does not allow.

    Return None for other envelopes. `_find_field_problem` reports a missing or unknown surface.
    """
    surface, allowed = envelope.get("surface"), message_type.surfaces
    if message_type.direction == "action" and surface is not None:
        detail = f"surface: {preview(surface)} is on an action. Actions have no surface. Leave it out."
        return Problem(Reason.WRONG_SURFACE, detail)
    is_known = isinstance(surface, str) and surface in SURFACES
    if is_known and surface not in allowed:
        type_name = envelope["type"]
        detail = f"surface: {preview(surface)} is not a surface of {type_name}. Allowed: {', '.join(sorted(allowed))}."
        return Problem(Reason.WRONG_SURFACE, detail)
    return None


def _find_field_problem(envelope: dict[str, Any], catalog: Catalog) -> Problem | None:
    """Return the first problem that pydantic finds in an envelope of a known type; None if the envelope is valid."""
    try:
        catalog.envelope_validators[envelope["type"]].validate_python(envelope)
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        reason = Reason.BAD_TIMESTAMP if first_error["loc"] == ("timestamp",) else Reason.BAD_FIELD
        return Problem(reason, f"{field_path(first_error['loc'])}: {describe_error(first_error)}")
    return None
