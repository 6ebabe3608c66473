"""Why something was not accepted: one closed list, each reason with its sentence and its status.

A reason is part of the wire contract (docs/wire.md): it never changes its meaning, and it is never removed.
"""

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A reason, its HTTP status (None: it concerns one envelope, not the whole request) and its sentence."""

    status: int | None
    sentence: str

    def __new__(cls, value: str, status: int | None, sentence: str) -> Self:
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.status = status
        reason.sentence = sentence
        return reason

    # The body as a whole. It is quarantined: fix it, don't resend it.
    NOT_JSON = "not_json", 400, "The body is not JSON (RFC 8259)."
    NOT_UTF8 = "not_utf8", 400, "The body is not UTF-8."
    TOO_DEEP = "too_deep", 400, "The body nests arrays and objects too deep."
    DUPLICATE_KEY = "duplicate_key", 400, "An object in the body has the same key twice."
    NOT_FINITE = "not_finite", 400, "A number in the body is not finite."
    EMPTY = "empty", 400, "The body holds no envelope."

    # The request. Nothing is stored.
    TWO_CREDENTIALS = "two_credentials", 400, "The request carries more than one credential."
    BAD_PARAMETER = "bad_parameter", 400, "A parameter of the request is not valid."
    NO_CREDENTIAL = "no_credential", 401, "The request carries no key."
    BAD_CREDENTIAL = "bad_credential", 401, "The key is malformed, unknown, expired or revoked."
    WRONG_ORIGIN = "wrong_origin", 403, "The key does not belong to the page's origin."
    WRONG_KIND = "wrong_kind", 403, "A key of this kind may not do this."
    PLAIN_HTTP = "plain_http", 403, "A key was sent over plain HTTP."
    NOT_FOUND = "not_found", 404, "There is nothing at this address."
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, "This address does not answer that method."
    BODY_TOO_SLOW = "body_too_slow", 408, "The body did not arrive in time."
    CONFLICT = "conflict", 409, "This name is taken by other content, which stays."
    BODY_TOO_LARGE = "body_too_large", 413, "The body is too large."
    TOO_MANY_EVENTS = "too_many_events", 413, "The body holds too many envelopes."
    MEDIA_TYPE = "media_type", 415, "The content type is not one that is understood here."
    ENCODING = "encoding", 415, "The content encoding is not one that is understood here."
    BAD_RANGE = "bad_range", 416, "The file has no such range of bytes."
    NOTHING_ACCEPTED = "nothing_accepted", 422, "None of the envelopes was accepted."
    INVALID_BODY = "invalid_body", 422, "The body is JSON, but not what is taken at this address."
    RATE_LIMITED = "rate_limited", 429, "The key or the address sends more than it may."

    # The server, for now. Nothing is stored: wait, then resend.
    OVERLOADED = "overloaded", 503, "The server has as much to do as it can hold."
    STORAGE_LOW = "storage_low", 503, "The disk is almost full."
    STORAGE_FAILED = "storage_failed", 503, "The disk failed."
    NOT_READY = "not_ready", 503, "The server can't do this yet, or for now."
    INTERNAL_ERROR = "internal_error", 500, "The server has a bug; it is in its log."

    # One envelope. It is quarantined; the others of its delivery are not touched.
    NOT_AN_OBJECT = "not_an_object", None, "The envelope is not a JSON object."
    WRONG_SOURCE = "wrong_source", None, "The source is not the embed's."
    WRONG_DIRECTION = "wrong_direction", None, "The direction is neither event nor action."
    UNKNOWN_TYPE = "unknown_type", None, "The catalog has no such type in this direction."
    BAD_FIELD = "bad_field", None, "A field is missing or has a value that the protocol does not allow."
    WRONG_SURFACE = "wrong_surface", None, "The catalog does not allow this type on this surface."
    BAD_TIMESTAMP = "bad_timestamp", None, "The timestamp is no instant between the years 1 and 9999."
    TOO_LARGE = "too_large", None, "The envelope is too large."
    BAD_TEXT = "bad_text", None, "A string holds a NUL or a lone surrogate."
    ID_CONFLICT = "id_conflict", None, "The id was seen before with other content; the first one counts."

    # Both: 403 when an envelope names a deployment outside the key's scope, a rejection when it names none.
    OUT_OF_SCOPE = "out_of_scope", 403, "The deployment is missing or outside the key's scope."
