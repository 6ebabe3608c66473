"""Validation of one envelope (spec 6)."""

from typing import Any

from pydantic_core import ValidationError

from embedsink.errors import preview
from embedsink.protocol.delivery import ParsedDelivery, Problem, Rejection, Rules, echoed_id
from embedsink.protocol.error_messages import describe_error, field_path
from embedsink.protocol.messages import SURFACES, Catalog
from embedsink.protocol.strict_json import encode, has_bad_text
from embedsink.reasons import Reason

BAD_TEXT = "a string contains a NUL or a lone surrogate. Remove it."


def validate(index: int, envelope: Any, parsed: ParsedDelivery, rules: Rules) -> None:
    """Add an envelope to the accepted ones or to the rejections."""
    encoded = encode(envelope)
    problem = _find_problem(envelope, len(encoded), parsed.catalog, rules)
    if problem is None:
        parsed.accepted.append(envelope)
    else:
        parsed.rejected.append(Rejection(index, *problem, encoded, echoed_id(envelope)))


def _find_problem(envelope: Any, encoded_bytes: int, catalog: Catalog, rules: Rules) -> Problem | None:
    """Return the first problem of an envelope, from its outer to its inner fields; None when it is valid."""
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
    name = envelope.get("type")
    message_type = catalog.types.get(name) if isinstance(name, str) else None
    if message_type is None or message_type.direction != direction:
        return Problem(Reason.UNKNOWN_TYPE, f"type: {preview(name)} is not an {direction} of the catalog.")
    return _find_surface_problem(envelope, str(name), catalog) or _find_field_problem(envelope, str(name), catalog)


def _find_surface_problem(envelope: dict[str, Any], name: str, catalog: Catalog) -> Problem | None:
    """Return a problem for a known surface that the type does not allow."""
    surface, allowed = envelope.get("surface"), catalog.types[name].surfaces
    if not allowed and surface is not None:
        detail = f"surface: {preview(surface)} is on an action. Actions have no surface. Leave it out."
        return Problem(Reason.WRONG_SURFACE, detail)
    if allowed and isinstance(surface, str) and surface in SURFACES and surface not in allowed:
        detail = f"surface: {preview(surface)} is not a surface of {name}. Allowed: {', '.join(sorted(allowed))}."
        return Problem(Reason.WRONG_SURFACE, detail)
    return None


def _find_field_problem(envelope: dict[str, Any], name: str, catalog: Catalog) -> Problem | None:
    try:
        catalog.envelope_validators[name].validate_python(envelope)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = Reason.BAD_TIMESTAMP if first["loc"] == ("timestamp",) else Reason.BAD_FIELD
        return Problem(reason, f"{field_path(first['loc'])}: {describe_error(first)}")
    return None
