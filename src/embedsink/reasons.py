"""The reasons for rejections and errors: a closed list, with an HTTP status and a sentence for each.

Reasons are part of the wire contract (docs/wire.md). No reason is removed, and no reason changes its meaning.
"""

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A reason with its HTTP status and its sentence. The status is None if the reason concerns a single envelope."""

    status: int | None
    sentence: str

    def __new__(cls, value: str, status: int | None, sentence: str) -> Self:
        """Create a reason: the text `value` with two attributes."""
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.status = status
        reason.sentence = sentence
        return reason

    # The whole body. A body of events is quarantined: fix it, don't resend it.
    NOT_JSON = "not_json", 400, "The body is not JSON (RFC 8259)."
    NOT_UTF8 = "not_utf8", 400, "The body is not UTF-8."
    TOO_DEEP = "too_deep", 400, "The body nests arrays and objects too deeply."
    DUPLICATE_KEY = "duplicate_key", 400, "An object in the body has the same key twice."
    NOT_FINITE = "not_finite", 400, "A number in the body is not finite."
    EMPTY = "empty", 400, "The body contains no envelope."

    # The request. Nothing is stored, except after `nothing_accepted`: the envelopes are quarantined.
    TWO_CREDENTIALS = "two_credentials", 400, "The request carries more than one credential."
    BAD_PARAMETER = "bad_parameter", 400, "A parameter of the request is not valid."
    NO_CREDENTIAL = "no_credential", 401, "The request carries no key."
    BAD_CREDENTIAL = "bad_credential", 401, "The key or access token is malformed, unknown, expired or revoked."
    WRONG_ORIGIN = "wrong_origin", 403, "The key is not valid for the page's origin."
    WRONG_KIND = "wrong_kind", 403, "The key does not have the permission for this request."
    PLAIN_HTTP = "plain_http", 403, "The request was sent over plain HTTP."
    NOT_FOUND = "not_found", 404, "Nothing exists at this URL."
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, "This URL does not support that method."
    BODY_TOO_SLOW = "body_too_slow", 408, "The body did not arrive in time."
    CONFLICT = "conflict", 409, "Different content is already stored under this id."
    BODY_TOO_LARGE = "body_too_large", 413, "The body is too large."
    TOO_MANY_EVENTS = "too_many_events", 413, "The body contains too many envelopes."
    MEDIA_TYPE = "media_type", 415, "The content type is not supported."
    ENCODING = "encoding", 415, "The content encoding is not supported."
    BAD_RANGE = "bad_range", 416, "The requested range is outside the file."
    NOTHING_ACCEPTED = "nothing_accepted", 422, "None of the envelopes was accepted."
    INVALID_BODY = "invalid_body", 422, "The body is JSON, but not valid for this URL."
    RATE_LIMITED = "rate_limited", 429, "The key or the client's address exceeds its rate limit."

    # The server's present state: wait, then resend. Nothing is stored, except that the outcome is
    # unknown for the last two reasons.
    OVERLOADED = "overloaded", 503, "The server is overloaded."
    STORAGE_LOW = "storage_low", 503, "The disk is almost full."
    NOT_READY = "not_ready", 503, "The server can't serve this request yet."
    STORAGE_FAILED = "storage_failed", 503, "The disk failed."
    INTERNAL_ERROR = "internal_error", 500, "The server failed because of a bug; its log has the details."

    # One envelope. It is quarantined; the rest of its delivery is not affected.
    NOT_AN_OBJECT = "not_an_object", None, "The envelope is not a JSON object."
    WRONG_SOURCE = "wrong_source", None, "The source is not the embed."
    WRONG_DIRECTION = "wrong_direction", None, "The direction is neither event nor action."
    UNKNOWN_TYPE = "unknown_type", None, "The protocol has no such type in this direction."
    BAD_FIELD = "bad_field", None, "A field is missing or has a value that the protocol does not allow."
    WRONG_SURFACE = "wrong_surface", None, "The protocol does not allow this type on this surface."
    BAD_TIMESTAMP = "bad_timestamp", None, "The timestamp is not a time between the years 1 and 9999."
    TOO_LARGE = "too_large", None, "The envelope is too large."
    BAD_TEXT = "bad_text", None, "A string contains a NUL or a lone surrogate."
    ID_CONFLICT = "id_conflict", None, "An earlier envelope has this id but different content; the earlier one counts."

    ERASED = "erased", None, "The viewer was erased (GDPR, article 17), and is blocked for some days."

    # The request or one envelope: a 403 if an envelope names a deployment or a tenant outside the key's scope, a
    # rejection if it names none.
    OUT_OF_SCOPE = "out_of_scope", 403, "The deployment or tenant is missing or outside the key's scope."
