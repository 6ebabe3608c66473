"""The steps from a request body to journal lines: decompress, validate, restrict to the key's scope, redact, encode.

The event loop runs them for small bodies, the worker process for large ones.
"""

import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from uuid_utils import uuid7

from embedsink.errors import Refused
from embedsink.ingest.records import accepted_lines, body_rejection_line, rejection_lines
from embedsink.key_scope import KeyScope
from embedsink.privacy.redaction import Privacy
from embedsink.protocol.delivery import REJECTIONS_LISTED_MAX, ParsedDelivery, Rejection, Rules
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason

GZIP_MEMBERS_MAX = 16
# zlib: add 16 to the size of the window to read the gzip format (RFC 1952).
_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
# The reasons for which a whole body is quarantined, so that nothing is dropped silently.
_QUARANTINED_REASONS = (
    Reason.NOT_JSON,
    Reason.NOT_UTF8,
    Reason.TOO_DEEP,
    Reason.DUPLICATE_KEY,
    Reason.NOT_FINITE,
    Reason.EMPTY,
)


@dataclass(slots=True)
class ParseJob:
    """A body to parse.

    Args:
        body: the bytes as they were sent.
        encoding: the `Content-Encoding`: empty, or `gzip`.
        is_ndjson: whether each line is an envelope.
        received_at: the time of the server's clock, in epoch milliseconds.
        key_id: the id of the sender's key.
        scope: the scope of the sender's key.
        privacy: the privacy rules of the server.
        is_opted_out: whether the viewer has opted out, by the header `Sec-GPC`.
    """

    body: bytes
    encoding: str
    is_ndjson: bool
    received_at: int
    key_id: str
    scope: KeyScope
    privacy: Privacy
    is_opted_out: bool = False


@dataclass(slots=True)
class ParseResult:
    """The journal lines of a body, and the content of its response.

    Args:
        accepted_lines: the lines of accepted envelopes and of losses.
        accepted_count: the number of accepted envelopes.
        rejected_count: the number of rejected envelopes; 1 for an unreadable body.
        rejection_lines: the lines of rejections. They are not stored if the quarantine has no space.
        reasons: the number of rejections by reason.
        listed_rejections: the entries for the response's `rejected` list.
        body_token: the API key in the body.
        deployment: the deployment of the context.
        tenant: the tenant of the context, before redaction.
        refusal: the error if the whole request is refused. An unreadable body is also a rejection.
        body_bytes: the size of the body after decompression.
    """

    accepted_lines: bytes = b""
    accepted_count: int = 0
    rejected_count: int = 0
    rejection_lines: bytes = b""
    reasons: dict[str, int] = field(default_factory=dict)
    listed_rejections: list[dict[str, Any]] = field(default_factory=list)
    body_token: str | None = None
    deployment: int | None = None
    tenant: str | None = None
    refusal: Refused | None = None
    body_bytes: int = 0


def parse_and_encode(job: ParseJob, rules: Rules, *, body_bytes_max: int) -> ParseResult:
    """Decompress a body, validate it and encode its journal lines. If the body is refused, the result says why."""
    body = job.body
    try:
        if job.encoding == "gzip":
            body = inflate(body, bytes_max=body_bytes_max)
        parsed = parse(body, job.received_at, rules, ndjson=job.is_ndjson)
    except Refused as refusal:
        # The sender's rate is charged for decompressed bytes. Decompression stops at the limit.
        body_bytes = body_bytes_max if refusal.reason is Reason.BODY_TOO_LARGE else len(body)
        return _encode_refused(body, job, refusal, body_bytes)
    return encode_delivery(
        parsed, len(body), job.privacy, key_id=job.key_id, scope=job.scope, is_opted_out=job.is_opted_out
    )


def encode_delivery(
    parsed: ParsedDelivery, body_bytes: int, privacy: Privacy, *, key_id: str, scope: KeyScope, is_opted_out: bool
) -> ParseResult:
    """Restrict a delivery to the scope of its key, redact it, and encode its journal lines.

    If the delivery names another deployment or tenant, the result has a refusal and no lines. The response to the
    sender is not redacted.
    """
    try:
        delivery = privacy.reject_erased(parsed.restrict_to(scope))
    except Refused as refusal:
        return ParseResult(body_token=parsed.key, refusal=refusal, body_bytes=body_bytes)
    storable = privacy.redact(delivery, is_opted_out=is_opted_out)
    result = ParseResult(
        accepted_lines=accepted_lines(storable, key_id=key_id, new_id=uuid7),
        accepted_count=len(delivery.accepted),
        body_token=parsed.key,
        deployment=delivery.context.get("deployment"),
        tenant=delivery.context.get("tenant"),
        body_bytes=body_bytes,
    )
    if delivery.rejected:
        listed = delivery.rejected[:REJECTIONS_LISTED_MAX]
        result.rejected_count = len(delivery.rejected)
        result.rejection_lines = rejection_lines(storable, key_id=key_id, new_id=uuid7)
        result.reasons = dict(Counter(rejection.reason for rejection in delivery.rejected))
        result.listed_rejections = [rejection.response_entry() for rejection in listed]
    return result


def inflate(body: bytes, *, bytes_max: int) -> bytes:
    """Decompress a gzip body.

    Raises:
        Refused: the content has more than `bytes_max` bytes (reason `body_too_large`), or the body is truncated, is not
            gzip or has too many members (reason `encoding`).
    """
    contents: list[bytes] = []
    byte_count = 0
    try:
        while body:  # RFC 1952, section 2.2: a file may have several members.
            if len(contents) == GZIP_MEMBERS_MAX:
                # Each member copies the rest of the body: thousands of empty members would take seconds.
                raise Refused(Reason.ENCODING, f"body: has more than {GZIP_MEMBERS_MAX} gzip members. Send one.")
            member = zlib.decompressobj(_GZIP_WINDOW_BITS)
            # One byte above the limit is enough to refuse the body.
            content = member.decompress(body, bytes_max - byte_count + 1)
            contents.append(content)
            byte_count += len(content)
            if byte_count > bytes_max:
                raise body_too_large_error(None, bytes_max=bytes_max)
            if not member.eof:
                raise Refused(Reason.ENCODING, "body: its gzip stream is truncated. Send all of it.")
            body = member.unused_data
    except zlib.error:
        detail = "body: is not gzip, although Content-Encoding is gzip. Compress it, or leave the header out."
        raise Refused(Reason.ENCODING, detail) from None
    return b"".join(contents)


def inflate_prefix(body: bytes, *, bytes_max: int) -> bytes:
    """Return the beginning of the content of a gzip body; empty bytes if the body is not gzip.

    The sender is not authenticated yet, so its body must cause little work. At most `bytes_max` bytes of the body are
    decompressed, and at most `bytes_max` bytes are returned.
    """
    try:
        return zlib.decompressobj(_GZIP_WINDOW_BITS).decompress(body[:bytes_max], bytes_max)
    except zlib.error:
        return b""


def body_too_large_error(size: int | None, *, bytes_max: int) -> Refused:
    """Return the error for a body above the limit. A size of None means that the content of a gzip body is above it."""
    excess = "too many bytes after decompression" if size is None else f"{size:,} bytes"
    limit = f"{bytes_max:,} (EMBEDSINK_BODY_BYTES_MAX)"
    return Refused(Reason.BODY_TOO_LARGE, f"body: {excess}; the limit is {limit}. Send a smaller body.")


def _encode_refused(body: bytes, job: ParseJob, refusal: Refused, body_bytes: int) -> ParseResult:
    """Return the result of a refused body, with a rejection line if the reason is one of `_QUARANTINED_REASONS`."""
    if refusal.reason not in _QUARANTINED_REASONS:
        return ParseResult(refusal=refusal, body_bytes=body_bytes)
    rejection = Rejection(None, refusal.reason, str(refusal), body)  # None: a whole body has no index.
    storable = job.privacy.redact_unreadable(rejection)
    line = body_rejection_line(storable, received_at=job.received_at, key_id=job.key_id, new_id=uuid7)
    return ParseResult(
        rejected_count=1, rejection_lines=line, reasons={refusal.reason: 1}, refusal=refusal, body_bytes=body_bytes
    )
