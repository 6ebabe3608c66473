"""How events get in."""

from collections.abc import Sequence

from embedsink.auth.keys import KeyKind
from embedsink.http.openapi.failures import ACCESS, ANY_REQUEST, BODY, JOURNAL
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import content_encoding, parameter
from embedsink.http.openapi.parts import Schema, array, ref
from embedsink.reasons import Reason
from embedsink.settings import Settings

_INGEST = (
    *(reason for reason in ACCESS if reason is not Reason.NOT_READY),
    *BODY,
    Reason.EMPTY,
    Reason.OUT_OF_SCOPE,
    Reason.TOO_MANY_EVENTS,
    Reason.NOTHING_ACCEPTED,
    Reason.RATE_LIMITED,
    *JOURNAL,
)


def operations(settings: Settings) -> Sequence[Operation]:
    """Events, and the preflight that browsers send before them."""
    return [
        Operation(
            "post",
            "/api/v1/events",
            "sendEvents",
            "Make events durable: one envelope, an array of them, NDJSON or a delivery",
            (202, "Durable. Forget these events.", {"application/json": ref("Receipt")}),
            _INGEST,
            (KeyKind.INGEST, KeyKind.ADMIN),
            is_key_optional=True,
            parameters=[content_encoding()],
            body=_bodies(settings),
        ),
        Operation(
            "options",
            "/api/v1/events",
            "preflightEvents",
            "The CORS preflight; it needs no key",
            (204, "Pages of this origin may send.", {}),
            (Reason.WRONG_ORIGIN, *ANY_REQUEST),
            parameters=[parameter("Origin", {"type": "string"}, place="header")],
        ),
    ]


def _bodies(settings: Settings) -> dict[str, Schema]:
    envelopes = array(ref("Envelope")) | {"minItems": 1, "maxItems": settings.events_max}
    return {
        "application/json": {"anyOf": [ref("Envelope"), envelopes, ref("Delivery")]},
        "text/plain": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "The same JSON: for beacons, which can't set another content type.",
        },
        "application/x-ndjson": {"type": "string", "description": "One envelope a line."},
    }
