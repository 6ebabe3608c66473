"""From a request body to journal lines. The event loop does it for small bodies, the worker process for large ones."""

import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from uuid_utils import uuid7

from embedsink.errors import Refused
from embedsink.ingest.records import accepted_lines, body_rejection_line, rejection_lines
from embedsink.protocol.delivery import REJECTIONS_LISTED_MAX, ParsedDelivery, Rejection, Rules
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason

GZIP_MEMBERS_MAX = 16
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # RFC 1952 framing
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
        deployments: the deployments that the key is limited to; None for all.
    """

    body: bytes
    encoding: str
    is_ndjson: bool
    received_at: int
    key_id: str
    deployments: frozenset[int] | None


@dataclass(slots=True)
class ParseResult:
    """The journal lines of a body, and what its answer contains.

    Args:
        accepted_lines: the lines of accepted envelopes and of losses.
        accepted_count: the number of accepted envelopes.
        rejection_lines: the lines of rejections. The quarantine may have no room for them.
        reasons: the number of rejections by reason.
        listed_rejections: the entries for the answer's `rejected` list.
        body_key: the API key in the body.
        deployment: the deployment of the context.
        refusal: the reason why the whole request is refused. An unreadable body is also a rejection.
        body_bytes: the size of the body after decompression.
    """

    accepted_lines: bytes = b""
    accepted_count: int = 0
    rejection_lines: bytes = b""
    reasons: dict[str, int] = field(default_factory=dict)
    listed_rejections: list[dict[str, Any]] = field(default_factory=list)
    body_key: str | None = None
    deployment: int | None = None
    refusal: Refused | None = None
    body_bytes: int = 0

    @property
    def rejected_count(self) -> int:
        """The number of rejected envelopes; 1 for an unreadable body."""
        return sum(self.reasons.values())


def parse_and_encode(job: ParseJob, rules: Rules, *, body_bytes_max: int) -> ParseResult:
    """Decompress a body, validate it and encode its journal lines."""
    body = job.body
    try:
        if job.encoding == "gzip":
            body = inflate(body, bytes_max=body_bytes_max)
        parsed = parse(body, job.received_at, rules, ndjson=job.is_ndjson)
    except Refused as refusal:
        # A body that is too large was decompressed at least up to the limit.
        body_bytes = body_bytes_max if refusal.reason is Reason.BODY_TOO_LARGE else len(body)
        return _encode_refused(body, job, refusal, body_bytes)
    return encode_delivery(parsed, len(body), key_id=job.key_id, deployments=job.deployments)


def encode_delivery(
    parsed: ParsedDelivery, body_bytes: int, *, key_id: str, deployments: frozenset[int] | None
) -> ParseResult:
    """Restrict a delivery to the deployments of its key, and encode its journal lines."""
    try:
        allowed = parsed.restrict_to(deployments)
    except Refused as refusal:
        return ParseResult(body_key=parsed.key, refusal=refusal, body_bytes=body_bytes)
    result = ParseResult(
        accepted_lines(allowed, key_id=key_id, new_id=uuid7),
        len(allowed.accepted),
        body_key=parsed.key,
        deployment=allowed.context.get("deployment"),
        body_bytes=body_bytes,
    )
    if allowed.rejected:
        result.rejection_lines = rejection_lines(allowed, key_id=key_id, new_id=uuid7)
        result.reasons = dict(Counter(rejection.reason for rejection in allowed.rejected))
        result.listed_rejections = [
            rejection.response_entry() for rejection in allowed.rejected[:REJECTIONS_LISTED_MAX]
        ]
    return result


def inflate(body: bytes, *, bytes_max: int) -> bytes:
    """Decompress a gzip body.

    Raises:
        Refused: `body_too_large` beyond `bytes_max`, or `encoding`.
    """
    parts: list[bytes] = []
    size = 0
    try:
        while body:  # RFC 1952, section 2.2: a file may have several members.
            if len(parts) == GZIP_MEMBERS_MAX:
                # Each member copies the rest of the body: thousands of empty members would take seconds.
                raise Refused(Reason.ENCODING, f"body: has more than {GZIP_MEMBERS_MAX} gzip members. Send one.")
            member = zlib.decompressobj(_GZIP_WINDOW)
            parts.append(member.decompress(body, bytes_max - size + 1))
            size += len(parts[-1])
            if size > bytes_max:
                raise too_large(size, bytes_max=bytes_max)
            if not member.eof:
                raise Refused(Reason.ENCODING, "body: its gzip stream is truncated. Send all of it.")
            body = member.unused_data
    except zlib.error:
        detail = "body: is not gzip, which content-encoding announces. Compress it, or leave the header out."
        raise Refused(Reason.ENCODING, detail) from None
    return b"".join(parts)


def inflate_prefix(body: bytes, *, bytes_max: int) -> bytes:
    """Decompress up to `bytes_max` bytes of a gzip body; of a damaged body, only the readable beginning."""
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(body[:bytes_max], bytes_max)
    except zlib.error:
        return b""


def too_large(size: int, *, bytes_max: int) -> Refused:
    """Return the refusal of a body above the limit."""
    limit = f"{bytes_max:,} (EMBEDSINK_BODY_BYTES_MAX)"
    return Refused(Reason.BODY_TOO_LARGE, f"body: {size:,} bytes; the limit is {limit}. Send fewer events at once.")


def _encode_refused(body: bytes, job: ParseJob, refusal: Refused, body_bytes: int) -> ParseResult:
    if refusal.reason not in _QUARANTINED_REASONS:
        return ParseResult(refusal=refusal, body_bytes=body_bytes)
    rejection = Rejection(None, refusal.reason, str(refusal), body)
    line = body_rejection_line(rejection, received_at=job.received_at, key_id=job.key_id, new_id=uuid7)
    return ParseResult(rejection_lines=line, reasons={refusal.reason: 1}, refusal=refusal, body_bytes=body_bytes)
