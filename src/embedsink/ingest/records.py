"""Journal lines: how what was parsed is written down. `sql/load/` reads exactly these fields (docs/decisions/0001)."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2s, sha256
from itertools import chain
from typing import Any

import orjson

from embedsink.errors import redact_keys
from embedsink.protocol.dbt_sync import Sync
from embedsink.protocol.messages import ENVELOPE_FIELDS
from embedsink.protocol.strict_json import encode
from embedsink.protocol.validation import Parsed, Rejection

NewId = Callable[[], object]
# Of a body that can't be read, and of an envelope larger than this, no more is kept than the beginning.
WHOLE_BYTES_MAX = 65_536
BEGINNING_BYTES = 8_192
_KEY_BEGINNING = b"es_"
_BEGINNINGS = {"event": b'{"kind":"event",', "action": b'{"kind":"action",'}
_SYNC_BEGINNING = b'{"kind":"sync",'
_SYNC_LINE = re.compile(b"^%b.*$" % re.escape(_SYNC_BEGINNING), re.MULTILINE)


def journal_lines(parsed: Parsed, *, key_id: str, new_id: NewId, delivery_id: str | None = None) -> bytes:
    """One NDJSON line for each accepted envelope, each rejection and each reason of loss.

    Args:
        parsed: the delivery.
        key_id: who sent it.
        new_id: makes an id (a UUIDv7) for an envelope without one, and for each rejection.
        delivery_id: what the delivery is called whenever it comes, where no envelope in it has an id.
    """
    around = _around(parsed, key_id)
    lines = _accepted_lines(parsed, around + b',"envelope":', new_id)
    lines += [_rejected_line(rejection, around, new_id) for rejection in parsed.rejected]
    if parsed.lost:
        lines += _lost_lines(parsed, around, first_id(parsed) or delivery_id)
    return _without_keys(b"".join(lines))


def rejection_lines(parsed: Parsed, *, key_id: str, new_id: NewId) -> bytes:
    """The lines of the rejections alone."""
    around = _around(parsed, key_id)
    return _without_keys(b"".join([_rejected_line(rejection, around, new_id) for rejection in parsed.rejected]))


def counted_lines(reasons: Mapping[str, int], *, received_at: int, key_id: str, deployment: int | None) -> bytes:
    """A line for each reason of rejections that are only counted."""
    around = {"received_at": received_at, "key_id": key_id}
    if deployment is not None:
        around["context"] = {"deployment": deployment}
    counts = [{**around, "reason": reason, "rejected_count": count} for reason, count in reasons.items()]
    return b"".join(b'{"kind":"counted",%b\n' % encode(count)[1:] for count in counts)


def body_rejection_line(rejection: Rejection, *, received_at: int, key_id: str, new_id: NewId) -> bytes:
    """The line for a body that could not be read at all."""
    around = encode({"received_at": received_at, "key_id": key_id})[1:-1]
    return _without_keys(_rejected_line(rejection, around, new_id))


def replayed_line(quarantine_id: str, *, received_at: int) -> bytes:
    """The line that says a quarantined input was accepted after all."""
    return b'{"kind":"replayed",%b}\n' % encode({"received_at": received_at, "quarantine_id": quarantine_id})[1:-1]


def sync_line(sync: Sync, *, key_id: str) -> bytes:
    """The line of a dbt sync's result. `read_syncs` is its inverse."""
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
    return _without_keys(b"%b%b\n" % (_SYNC_BEGINNING, encode(members)[1:]))


def read_syncs(lines: bytes) -> Iterator[Sync]:
    """The results of dbt syncs among journal lines, in their order."""
    if _SYNC_BEGINNING not in lines:
        return  # Looking for it first is ten times as fast, and most segments hold none.
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


def _accepted_lines(parsed: Parsed, around: bytes, new_id: NewId) -> list[bytes]:
    """The lines in pieces, which are joined once: this loop runs for every event, and each copy shows."""
    pieces: list[bytes] = []
    add, known_fields = pieces.append, parsed.catalog.known_fields
    for envelope in parsed.accepted:
        payload, known = envelope["payload"], known_fields[envelope["type"]]
        add(_BEGINNINGS[envelope["direction"]])
        add(around)
        if known.issuperset(payload):
            add(encode(envelope))
        else:
            # Apart from the others: another type may have a field of this name, whose SQL type the value breaks.
            add(encode({**envelope, "payload": {name: payload[name] for name in payload if name in known}}))
            add(b',"extra":' + _other_members(payload, known))
        if envelope.get("id") is None:
            add(b',"id":"%b"' % str(new_id()).encode())
        if not ENVELOPE_FIELDS.issuperset(envelope):
            add(b',"envelope_extra":' + _other_members(envelope, ENVELOPE_FIELDS))
        add(b"}\n")
    return pieces


def _other_members(members: dict[str, Any], known: frozenset[str]) -> bytes:
    return encode({name: value for name, value in members.items() if name not in known})


def _around(parsed: Parsed, key_id: str) -> bytes:
    """The members that all lines of a delivery share."""
    shared = {
        "received_at": parsed.received_at,
        "sent_at": parsed.sent_at,
        "key_id": key_id,
        "context": parsed.context or None,
    }
    return encode(shared)[1:-1]


def _rejected_line(rejection: Rejection, around: bytes, new_id: NewId) -> bytes:
    raw, detail, whole = rejection.raw, rejection.detail, {}
    if len(raw) > (BEGINNING_BYTES if rejection.index is None else WHOLE_BYTES_MAX):
        whole = {"whole_bytes": len(raw), "whole_sha256": sha256(raw).hexdigest()}
        if rejection.index is None:  # The detail of an envelope says how long it was.
            detail = f"{detail} Only the first {BEGINNING_BYTES:,} of its {len(raw):,} bytes are kept."
        raw = _beginning(raw)
    rejected = {
        "quarantine_id": str(new_id()),
        "index": rejection.index,
        "reason": rejection.reason,
        "detail": detail,
        **_raw(raw),
        **whole,
    }
    return b'{"kind":"quarantined",%b,%b}\n' % (around, encode(rejected)[1:-1])


def _beginning(raw: bytes) -> bytes:
    """The first bytes, cut between two characters where they are text."""
    beginning = raw[:BEGINNING_BYTES]
    try:
        beginning.decode()
    except UnicodeDecodeError as error:
        # A character has four bytes at most (RFC 3629).
        return beginning[: error.start] if error.start > BEGINNING_BYTES - 4 else beginning
    return beginning


def _raw(raw: bytes) -> dict[str, str]:
    """What was sent, as text where SQL can keep it as text."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {"raw": base64.b64encode(_without_keys(raw)).decode(), "raw_encoding": "base64"}
    return {"raw": text}


def _without_keys(raw: bytes) -> bytes:
    """The same with each key cut, whichever field it strayed into: a stolen data folder holds none."""
    if _KEY_BEGINNING not in raw:
        return raw
    return redact_keys(raw.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def first_id(parsed: Parsed) -> str | None:
    """The first id that a sender gave: sent again, a delivery begins with the same envelope."""
    accepted = (envelope.get("id") for envelope in parsed.accepted)
    return next(filter(None, chain(accepted, (one.id for one in parsed.rejected))), None)


def _lost_lines(parsed: Parsed, around: bytes, delivery_id: str | None) -> Iterator[bytes]:
    """A line for each reason. Its id makes a retry count once, as an envelope's does; without any, each counts."""
    for reason, count in parsed.lost.items():
        loss: dict[str, Any] = {"reason": reason, "lost_count": count}
        if delivery_id is not None:
            loss["id"] = blake2s(f"loss:{delivery_id.lower()}:{reason}".encode(), digest_size=16).hexdigest()
        yield b'{"kind":"lost",%b,%b}\n' % (around, encode(loss)[1:-1])
