"""From a request body to journal lines: what the event loop does with a small body and a worker with a large one."""

import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from uuid_utils import uuid7

from embedsink.errors import Refused
from embedsink.ingest.records import body_rejection_line, delivery_lines, first_id, rejection_lines
from embedsink.protocol.delivery import REJECTIONS_LISTED_MAX, ParsedDelivery, Rejection, Rules
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason

GZIP_MEMBERS_MAX = 16
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # RFC 1952 framing
# What is wrong with the body itself. It is kept, because nothing is dropped silently.
_KEPT = (
    Reason.NOT_JSON,
    Reason.NOT_UTF8,
    Reason.TOO_DEEP,
    Reason.DUPLICATE_KEY,
    Reason.NOT_FINITE,
    Reason.EMPTY,
)


@dataclass(slots=True)
class ParseJob:
    """A body, and what is known of its sender.

    `received_at` is the server's clock, epoch milliseconds. `encoding` is the body's `Content-Encoding`.
    """

    body: bytes
    encoding: str
    is_ndjson: bool
    received_at: int
    key_id: str
    deployments: frozenset[int] | None


@dataclass(slots=True)
class ParseResult:
    """What became of a body: its journal lines, and what its answer says.

    The lines of rejections are apart, and `reasons` counts them: the quarantine may have no room for them. `key` and
    `deployment` are those that the delivery names. `refusal` is why the whole request is refused; a body that could
    not be read is a rejection all the same. `byte_count` is the size of the body after decompression.
    """

    lines: bytes = b""
    accepted_count: int = 0
    rejection_lines: bytes = b""
    reasons: dict[str, int] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    key: str | None = None
    deployment: int | None = None
    refusal: Refused | None = None
    byte_count: int = 0

    @property
    def rejected_count(self) -> int:
        """How many envelopes were rejected, or 1 for a body that could not be read."""
        return sum(self.reasons.values())


def parse_and_encode(job: ParseJob, rules: Rules, *, body_bytes_max: int) -> ParseResult:
    """Decompress a body, validate it and write its journal lines."""
    body = job.body
    try:
        if job.encoding == "gzip":
            body = inflate(body, bytes_max=body_bytes_max)
        parsed = parse(body, job.received_at, rules, ndjson=job.is_ndjson)
    except Refused as refusal:
        # A body that is too large was decompressed up to the limit.
        byte_count = body_bytes_max if refusal.reason is Reason.BODY_TOO_LARGE else len(body)
        return _unreadable(body, job, refusal, byte_count)
    return encode_delivery(parsed, len(body), key_id=job.key_id, deployments=job.deployments)


def encode_delivery(
    parsed: ParsedDelivery, byte_count: int, *, key_id: str, deployments: frozenset[int] | None
) -> ParseResult:
    """The journal lines of a delivery as far as its key reaches. `byte_count` is the size of its body."""
    try:
        kept = parsed.restrict_to(deployments)
    except Refused as refusal:
        return ParseResult(key=parsed.key, refusal=refusal, byte_count=byte_count)
    deployment = kept.context.get("deployment")
    if not kept.rejected:
        lines = delivery_lines(kept, key_id=key_id, new_id=uuid7)
        return ParseResult(lines, len(kept.accepted), key=parsed.key, deployment=deployment, byte_count=byte_count)
    return ParseResult(
        delivery_lines(replace(kept, rejected=[]), key_id=key_id, new_id=uuid7, delivery_id=first_id(kept)),
        len(kept.accepted),
        rejection_lines(kept, key_id=key_id, new_id=uuid7),
        dict(Counter(rejection.reason for rejection in kept.rejected)),
        [rejection.listed() for rejection in kept.rejected[:REJECTIONS_LISTED_MAX]],
        parsed.key,
        deployment,
        byte_count=byte_count,
    )


def inflate(body: bytes, *, bytes_max: int) -> bytes:
    """Decompress gzip.

    Raises:
        Refused: `body_too_large` beyond `bytes_max`, or `encoding`.
    """
    parts: list[bytes] = []
    size = 0
    try:
        while body:  # RFC 1952, section 2.2: a file may have several members
            if len(parts) == GZIP_MEMBERS_MAX:
                # Each costs a copy of all that follows: a body of nothing but members would take seconds.
                raise Refused(Reason.ENCODING, f"body: has more than {GZIP_MEMBERS_MAX} gzip members. Send one.")
            member = zlib.decompressobj(_GZIP_WINDOW)
            parts.append(member.decompress(body, bytes_max - size + 1))
            size += len(parts[-1])
            if size > bytes_max:
                raise too_large(size, bytes_max=bytes_max)
            if not member.eof:
                raise Refused(Reason.ENCODING, "body: its gzip stream is cut off. Send it whole.")
            body = member.unused_data
    except zlib.error:
        raise Refused(Reason.ENCODING, "body: is not gzip. Send what content-encoding says.") from None
    return b"".join(parts)


def inflate_prefix(body: bytes, *, bytes_max: int) -> bytes:
    """Decompress the first bytes of a gzip body, as many as can be read; the whole may be damaged."""
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(body[:bytes_max], bytes_max)
    except zlib.error:
        return b""


def too_large(size: int, *, bytes_max: int) -> Refused:
    """The refusal of a body beyond the limit."""
    limit = f"{bytes_max:,} (EMBEDSINK_BODY_BYTES_MAX)"
    return Refused(Reason.BODY_TOO_LARGE, f"body: {size:,} bytes; the limit is {limit}. Send fewer events at once.")


def _unreadable(body: bytes, job: ParseJob, refusal: Refused, byte_count: int) -> ParseResult:
    if refusal.reason not in _KEPT:
        return ParseResult(refusal=refusal, byte_count=byte_count)
    rejection = Rejection(None, refusal.reason, str(refusal), body)
    line = body_rejection_line(rejection, received_at=job.received_at, key_id=job.key_id, new_id=uuid7)
    return ParseResult(rejection_lines=line, reasons={refusal.reason: 1}, refusal=refusal, byte_count=byte_count)
