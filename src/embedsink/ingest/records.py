"""The journal's records: one JSON line each. `sql/load/` reads exactly these fields (docs/decisions/0001)."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2s, sha256
from itertools import chain
from typing import Any

import orjson

from embedsink.errors import redact_keys
from embedsink.protocol.dbt_sync import Sync
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.protocol.messages import ENVELOPE_FIELDS
from embedsink.protocol.strict_json import encode

NewId = Callable[[], object]
# A larger rejected envelope is truncated; an unreadable body is truncated in any case.
WHOLE_BYTES_MAX = 65_536
BEGINNING_BYTES = 8_192
_KEY_PREFIX = b"es_"
_KIND_MEMBERS = {"event": b'{"kind":"event",', "action": b'{"kind":"action",'}
_SYNC_PREFIX = b'{"kind":"sync",'
_SYNC_LINE = re.compile(b"^%b.*$" % re.escape(_SYNC_PREFIX), re.MULTILINE)


def delivery_lines(parsed: ParsedDelivery, *, key_id: str, new_id: NewId, delivery_id: str | None = None) -> bytes:
    """Return the lines of a delivery: `accepted_lines`, then `rejection_lines`."""
    accepted = accepted_lines(parsed, key_id=key_id, new_id=new_id, delivery_id=delivery_id)
    return accepted + rejection_lines(parsed, key_id=key_id, new_id=new_id)


def accepted_lines(parsed: ParsedDelivery, *, key_id: str, new_id: NewId, delivery_id: str | None = None) -> bytes:
    """Return a line for each accepted envelope and each reason of loss.

    Args:
        parsed: the delivery.
        key_id: the id of the sender's key.
        new_id: returns an id (a UUIDv7) for an envelope without one.
        delivery_id: an id that identifies the delivery when it is sent again, if no envelope in it has an id.
    """
    shared = _shared_members(parsed, key_id)
    lines = _envelope_lines(parsed, shared + b',"envelope":', new_id)
    if parsed.lost:
        lines += _loss_lines(parsed, shared, _first_id(parsed) or delivery_id)
    return _without_keys(b"".join(lines))


def rejection_lines(parsed: ParsedDelivery, *, key_id: str, new_id: NewId) -> bytes:
    """Return a line for each rejection. `new_id` returns its id in the quarantine."""
    shared = _shared_members(parsed, key_id)
    return _without_keys(b"".join([_rejection_line(rejection, shared, new_id) for rejection in parsed.rejected]))


def rejection_count_lines(
    reasons: Mapping[str, int], *, received_at: int, key_id: str, deployment: int | None
) -> bytes:
    """Return a line for each reason of rejections that are counted and not stored."""
    shared: dict[str, Any] = {"received_at": received_at, "key_id": key_id}
    if deployment is not None:
        shared["context"] = {"deployment": deployment}
    counts = [{**shared, "reason": reason, "rejected_count": count} for reason, count in reasons.items()]
    return b"".join(b'{"kind":"counted",%b\n' % encode(count)[1:] for count in counts)


def body_rejection_line(rejection: Rejection, *, received_at: int, key_id: str, new_id: NewId) -> bytes:
    """Return the line of an unreadable body."""
    shared = encode({"received_at": received_at, "key_id": key_id})[1:-1]
    return _without_keys(_rejection_line(rejection, shared, new_id))


def replay_line(quarantine_id: str, *, received_at: int) -> bytes:
    """Return the line that marks a quarantined input as accepted by a replay."""
    return b'{"kind":"replayed",%b}\n' % encode({"received_at": received_at, "quarantine_id": quarantine_id})[1:-1]


def sync_line(sync: Sync, *, key_id: str) -> bytes:
    """Return the line of a dbt sync's result. `read_syncs` is its inverse."""
    members = {
        "received_at": sync.received_at,
        "key_id": key_id,
        "deployment": sync.deployment,
        "completed_at": sync.completed_at,
        "digest": sync.digest,
        "result": sync.result,
    }
    if sync.extra is not None:
        members["extra"] = sync.extra
    return _without_keys(b"%b%b\n" % (_SYNC_PREFIX, encode(members)[1:]))


def read_syncs(lines: bytes) -> Iterator[Sync]:
    """Yield the results of dbt syncs in journal lines, in their order."""
    if _SYNC_PREFIX not in lines:
        return  # Most segments have none, and this test is ten times as fast as the expression.
    for match in _SYNC_LINE.finditer(lines):
        line = orjson.loads(match[0])
        yield Sync(
            deployment=line["deployment"],
            job_id=line["result"]["syncJobId"],
            received_at=line["received_at"],
            completed_at=line["completed_at"],
            digest=line["digest"],
            result=line["result"],
            extra=line.get("extra"),
        )


def _shared_members(parsed: ParsedDelivery, key_id: str) -> bytes:
    """Return the members that all lines of a delivery have, as JSON without braces."""
    members = {
        "received_at": parsed.received_at,
        "sent_at": parsed.sent_at,
        "key_id": key_id,
        "context": parsed.context or None,
    }
    return encode(members)[1:-1]


def _envelope_lines(parsed: ParsedDelivery, shared: bytes, new_id: NewId) -> list[bytes]:
    """Return the lines in pieces. The caller joins them once, because this loop runs for every event."""
    pieces: list[bytes] = []
    add, known_fields = pieces.append, parsed.catalog.known_fields
    for envelope in parsed.accepted:
        payload, known = envelope["payload"], known_fields[envelope["type"]]
        add(_KIND_MEMBERS[envelope["direction"]])
        add(shared)
        if known.issuperset(payload):
            add(encode(envelope))
        else:
            # Store unknown fields apart: another type may have a field of that name, with another SQL type.
            add(encode({**envelope, "payload": {name: payload[name] for name in payload if name in known}}))
            add(b',"extra":' + _unknown_members(payload, known))
        if envelope.get("id") is None:
            add(b',"id":"%b"' % str(new_id()).encode())
        if not ENVELOPE_FIELDS.issuperset(envelope):
            add(b',"envelope_extra":' + _unknown_members(envelope, ENVELOPE_FIELDS))
        add(b"}\n")
    return pieces


def _unknown_members(members: dict[str, Any], known: frozenset[str]) -> bytes:
    return encode({name: value for name, value in members.items() if name not in known})


def _loss_lines(parsed: ParsedDelivery, shared: bytes, delivery_id: str | None) -> Iterator[bytes]:
    """Yield a line for each reason of loss. Its id deduplicates a delivery that is sent again."""
    for reason, count in parsed.lost.items():
        loss: dict[str, Any] = {"reason": reason, "lost_count": count}
        if delivery_id is not None:
            loss["id"] = blake2s(f"loss:{delivery_id.lower()}:{reason}".encode(), digest_size=16).hexdigest()
        yield b'{"kind":"lost",%b,%b}\n' % (shared, encode(loss)[1:-1])


def _first_id(parsed: ParsedDelivery) -> str | None:
    """Return the first id from the sender. A delivery that is sent again begins with the same envelope."""
    accepted_ids = (envelope.get("id") for envelope in parsed.accepted)
    rejected_ids = (rejection.id for rejection in parsed.rejected)
    return next(filter(None, chain(accepted_ids, rejected_ids)), None)


def _rejection_line(rejection: Rejection, shared: bytes, new_id: NewId) -> bytes:
    raw, detail, whole = rejection.raw, rejection.detail, {}
    if len(raw) > (BEGINNING_BYTES if rejection.index is None else WHOLE_BYTES_MAX):
        whole = {"whole_bytes": len(raw), "whole_sha256": sha256(raw).hexdigest()}
        if rejection.index is None:  # The detail of a large envelope contains its size already.
            detail = f"{detail} Only the first {BEGINNING_BYTES:,} of its {len(raw):,} bytes are stored."
        raw = _truncated(raw)
    members = {
        "quarantine_id": str(new_id()),
        "index": rejection.index,
        "reason": rejection.reason,
        "detail": detail,
        **_raw_members(raw),
        **whole,
    }
    return b'{"kind":"quarantined",%b,%b}\n' % (shared, encode(members)[1:-1])


def _truncated(raw: bytes) -> bytes:
    """Return the first bytes. UTF-8 is cut between two characters."""
    beginning = raw[:BEGINNING_BYTES]
    try:
        beginning.decode()
    except UnicodeDecodeError as error:
        # A character has at most four bytes (RFC 3629).
        return beginning[: error.start] if error.start > BEGINNING_BYTES - 4 else beginning
    return beginning


def _raw_members(raw: bytes) -> dict[str, str]:
    """Return the raw input as text, or as base64 if SQL text can't store it: invalid UTF-8, or a NUL character."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text:
        # Redact keys before encoding: the caller redacts text, but can't find keys in base64.
        return {"raw": base64.b64encode(_without_keys(raw)).decode(), "raw_encoding": "base64"}
    return {"raw": text}


def _without_keys(raw: bytes) -> bytes:
    """Return the bytes with all API keys cut, in any field: a stolen data folder contains none."""
    if _KEY_PREFIX not in raw:
        return raw
    return redact_keys(raw.decode(errors="surrogateescape")).encode(errors="surrogateescape")
