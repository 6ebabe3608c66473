"""The journal's records: one JSON line each. `sql/load/` reads exactly these fields (docs/decisions/0001)."""

import base64
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2s, sha256
from itertools import chain
from typing import Any

import orjson

from embedsink.errors import JWT_MARK, redact_keys
from embedsink.privacy.redaction import StorableDelivery, StorableRejection
from embedsink.protocol.dbt_sync import Sync
from embedsink.protocol.delivery import Rejection
from embedsink.protocol.messages import ENVELOPE_FIELDS
from embedsink.protocol.strict_json import encode

NewId = Callable[[], object]
"""A function that returns a new id, a UUIDv7."""
# The quarantine truncates rejected envelopes above the first size, and unreadable bodies above the second size. Both
# are truncated to the second size.
WHOLE_ENVELOPE_BYTES_MAX = 65_536
TRUNCATED_BYTES = 8_192
# Every API key contains `es_`.
_MARK_OF_KEY = re.compile(f"es_|{JWT_MARK}".encode())
_LINE_STARTS = {"event": b'{"kind":"event",', "action": b'{"kind":"action",'}
_ASCII_OR_FF = bytes(byte if byte < 0x80 else 0xFF for byte in range(256))
_SYNC_PREFIX = b'{"kind":"sync",'
_SYNC_LINE = re.compile(b"^%b.*$" % re.escape(_SYNC_PREFIX), re.MULTILINE)
_DIRECTORY_PREFIX = b'{"kind":"directory",'


@dataclass(frozen=True, slots=True)
class DirectoryChange:
    """A new version of a user or a group of the directory.

    Args:
        resource_type: `User` or `Group`.
        resource_id: the `id` of the SCIM resource.
        resource: the SCIM resource without the members of a group; None if it was deleted.
        deactivated_at: when a user was deactivated, in epoch milliseconds; None for active users and for groups.
        members_added: the ids of the users that became members of a group.
        members_removed: the ids of the users that are no longer members.
    """

    resource_type: str
    resource_id: str
    resource: dict[str, Any] | None
    deactivated_at: int | None = None
    members_added: tuple[str, ...] = ()
    members_removed: tuple[str, ...] = ()


def delivery_lines(
    parsed: StorableDelivery,
    *,
    key_id: str,
    new_id: NewId,
    delivery_id: str | None = None,
    loss_id: str | None = None,
) -> bytes:
    """Return the journal lines of a delivery: `accepted_lines`, then `rejection_lines`."""
    accepted = accepted_lines(parsed, key_id=key_id, new_id=new_id, delivery_id=delivery_id, loss_id=loss_id)
    return accepted + rejection_lines(parsed, key_id=key_id, new_id=new_id)


def accepted_lines(
    parsed: StorableDelivery,
    *,
    key_id: str,
    new_id: NewId,
    delivery_id: str | None = None,
    loss_id: str | None = None,
) -> bytes:
    """Return a journal line for each accepted envelope, and for each reason for which the client lost events.

    Args:
        parsed: the delivery.
        key_id: the id of the sender's key.
        new_id: returns an id (a UUIDv7) for an envelope without one.
        delivery_id: identifies the delivery if none of its envelopes has an id. The losses of a resent delivery must
            not count twice.
        loss_id: the id of an archived loss; None to derive one from the delivery.
    """
    shared = _shared_members(parsed, key_id)  # JSON without braces
    lines = _envelope_lines(parsed, shared + b',"envelope":', new_id)
    if parsed.lost:
        lines += _loss_lines(parsed, shared, _first_id(parsed) or delivery_id, loss_id)
    return _redact_keys(b"".join(lines))


def rejection_lines(parsed: StorableDelivery, *, key_id: str, new_id: NewId) -> bytes:
    """Return a line for each rejection. `new_id` returns the id of a rejection in the quarantine."""
    shared = _shared_members(parsed, key_id)  # JSON without braces
    return _redact_keys(b"".join([_rejection_line(rejection, shared, new_id) for rejection in parsed.rejected]))


def rejection_count_lines(
    reasons: Mapping[str, int], *, received_at: int, key_id: str, deployment: int | None
) -> bytes:
    """Return a line for each reason, with the number of rejections that are only counted, not stored."""
    shared: dict[str, Any] = {"received_at": received_at, "key_id": key_id}
    if deployment is not None:
        shared["context"] = {"deployment": deployment}
    counts = [{**shared, "reason": reason, "rejected_count": count} for reason, count in reasons.items()]
    # [1:] removes the opening brace.
    return b"".join(b'{"kind":"counted",%b\n' % encode(count)[1:] for count in counts)


def body_rejection_line(rejection: StorableRejection, *, received_at: int, key_id: str, new_id: NewId) -> bytes:
    """Return the line of an unreadable body."""
    shared = encode({"received_at": received_at, "key_id": key_id})[1:-1]  # without braces
    return _redact_keys(_rejection_line(rejection, shared, new_id))


def replay_line(quarantine_id: str, *, received_at: int) -> bytes:
    """Return the line that marks a quarantined input as accepted by a replay."""
    # [1:] removes the opening brace.
    return b'{"kind":"replayed",%b\n' % encode({"received_at": received_at, "quarantine_id": quarantine_id})[1:]


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
    return _redact_keys(b"%b%b\n" % (_SYNC_PREFIX, encode(members)[1:]))  # The prefix has the opening brace.


def read_syncs(lines: bytes) -> Iterator[Sync]:
    """Yield the results of dbt syncs in journal lines, in the order of the lines."""
    if _SYNC_PREFIX not in lines:
        return  # Most segments have no results, and this test is ten times as fast as the regular expression.
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


def directory_line(change: DirectoryChange, *, received_at: int) -> bytes:
    """Return the line of a change of the directory. `read_directory_changes` is its inverse."""
    members = {"received_at": received_at} | {
        name: value for name, value in asdict(change).items() if value not in (None, ())
    }
    return _redact_keys(b"%b%b\n" % (_DIRECTORY_PREFIX, encode(members)[1:]))  # The prefix has the opening brace.


def read_directory_changes(lines: bytes) -> Iterator[tuple[int, DirectoryChange]]:
    """Yield the changes of the directory in journal lines with the numbers of their lines, from 1 on."""
    if _DIRECTORY_PREFIX not in lines:
        return
    for number, text in enumerate(lines.splitlines(), start=1):
        if text.startswith(_DIRECTORY_PREFIX):
            line = orjson.loads(text)
            change = DirectoryChange(
                resource_type=line["resource_type"],
                resource_id=line["resource_id"],
                resource=line.get("resource"),
                deactivated_at=line.get("deactivated_at"),
                members_added=tuple(line.get("members_added", ())),
                members_removed=tuple(line.get("members_removed", ())),
            )
            yield number, change


def _shared_members(parsed: StorableDelivery, key_id: str) -> bytes:
    """Return the members that all lines of a delivery have, as JSON without braces."""
    members = {
        "received_at": parsed.received_at,
        "sent_at": parsed.sent_at,
        "key_id": key_id,
        "context": parsed.context or None,
    }
    if parsed.is_internal:
        members["is_internal"] = True
    return encode(members)[1:-1]


def _envelope_lines(parsed: StorableDelivery, shared: bytes, new_id: NewId) -> list[bytes]:
    """Return the lines of the accepted envelopes, in pieces that the caller joins once. This is the hot path.

    Args:
        parsed: the delivery.
        shared: the members that all lines have, as JSON without braces, and `,"envelope":` at the end.
        new_id: returns an id for an envelope without one.
    """
    pieces: list[bytes] = []
    add = pieces.append
    for envelope in parsed.accepted:
        payload = envelope["payload"]
        known = parsed.catalog.known_fields[envelope["type"]]
        add(_LINE_STARTS[envelope["direction"]])
        add(shared)
        if known.issuperset(payload):
            add(encode(envelope))
        else:
            # Store unknown fields separately: another type may have a field of that name with another SQL type.
            known_payload = {name: payload[name] for name in payload if name in known}
            add(encode({**envelope, "payload": known_payload}))
            add(b',"extra":' + _unknown_members(payload, known))
        if envelope.get("id") is None:
            add(b',"id":"%b"' % str(new_id()).encode())
        if not ENVELOPE_FIELDS.issuperset(envelope):
            add(b',"envelope_extra":' + _unknown_members(envelope, ENVELOPE_FIELDS))
        add(b"}\n")
    return pieces


def _unknown_members(members: dict[str, Any], known: frozenset[str]) -> bytes:
    """Return the members whose names are not known, as a JSON object."""
    return encode({name: value for name, value in members.items() if name not in known})


def _loss_lines(
    parsed: StorableDelivery, shared: bytes, delivery_id: str | None, loss_id: str | None
) -> Iterator[bytes]:
    """Yield a journal line for each reason for which the client lost events. `shared` is JSON without braces.

    The id of a line is derived from the delivery's id. So if a delivery is resent, the loader deduplicates its losses.
    Without `delivery_id`, the lines have no ids. An archived loss has one reason, and retains its `loss_id`.
    """
    for reason, count in parsed.lost.items():
        loss: dict[str, Any] = {"reason": reason, "lost_count": count}
        if loss_id is not None:
            loss["id"] = loss_id
        elif delivery_id is not None:
            # A client may resend a UUID with letters of another case.
            source = f"loss:{delivery_id.lower()}:{reason}"
            loss["id"] = blake2s(source.encode(), digest_size=16).hexdigest()
        yield b'{"kind":"lost",%b,%b\n' % (shared, encode(loss)[1:])  # without the opening brace


def _first_id(parsed: StorableDelivery) -> str | None:
    """Return the first id of an accepted envelope, else of a rejected envelope; None if no envelope has an id."""
    accepted_ids = (envelope.get("id") for envelope in parsed.accepted)
    rejected_ids = (rejection.id for rejection in parsed.rejected)
    for envelope_id in chain(accepted_ids, rejected_ids):
        if envelope_id:
            return str(envelope_id)
    return None


def _rejection_line(rejection: Rejection, shared: bytes, new_id: NewId) -> bytes:
    """Return the line of a rejection. `shared` is JSON without braces.

    Large input is truncated. The line then has the size and the digest of the whole input. If privacy rules
    omit a part of the input, the line has its size and no digest.
    """
    raw = rejection.raw
    members: dict[str, Any] = {
        "quarantine_id": str(new_id()),
        "index": rejection.index,
        "reason": rejection.reason,
        "detail": rejection.detail,
    }
    is_body = rejection.index is None
    untruncated_bytes_max = TRUNCATED_BYTES if is_body else WHOLE_ENVELOPE_BYTES_MAX
    if rejection.omitted_bytes:
        members |= _raw_members(_truncate(raw)) | {"whole_bytes": rejection.omitted_bytes}
    elif len(raw) <= untruncated_bytes_max:
        members |= _raw_members(raw)
    else:
        if is_body:  # The detail of an envelope that is too large contains its size.
            members["detail"] += f" Only the first {TRUNCATED_BYTES:,} of its {len(raw):,} bytes are stored."
        members |= _raw_members(_truncate(raw))
        members |= {"whole_bytes": len(raw), "whole_sha256": sha256(raw).hexdigest()}
    return b'{"kind":"quarantined",%b,%b\n' % (shared, encode(members)[1:])  # without the opening brace


def _truncate(raw: bytes) -> bytes:
    """Return the first `TRUNCATED_BYTES`, without an incomplete UTF-8 character at the end."""
    beginning = raw[:TRUNCATED_BYTES]
    try:
        beginning.decode()
    except UnicodeDecodeError as error:
        # A character has at most four bytes (RFC 3629). An earlier error means that the input is not UTF-8.
        is_last_character = error.start > TRUNCATED_BYTES - 4
        return beginning[: error.start] if is_last_character else beginning
    return beginning


def _raw_members(raw: bytes) -> dict[str, str]:
    """Return the members of a line for raw input: text, or base64 if SQL text can't store the input.

    SQL text can't store invalid UTF-8 or NUL characters.
    """
    if b"\0" not in raw:
        with contextlib.suppress(UnicodeDecodeError):
            return {"raw": raw.decode()}
    return {"raw": base64.b64encode(_redact_bytes(raw)).decode(), "raw_encoding": "base64"}


def _redact_bytes(raw: bytes) -> bytes:
    """Return bytes that are not text, changed so that no reader can recover a key from them.

    The caller can't find keys in base64. A body in UTF-16 has a NUL in each character, and a compressed body hides all
    texts. So bytes that are not ASCII become 0xFF, and a key that is only readable without them is redacted.
    """
    redacted = _redact_keys(raw.translate(_ASCII_OR_FF))
    dense = redacted.replace(b"\xff", b"").replace(b"\0", b"")
    redacted_dense = _redact_keys(dense)
    return redacted if redacted_dense == dense else b"\xff" + redacted_dense


def _redact_keys(raw: bytes) -> bytes:
    """Return the bytes with all keys and JWTs redacted, so that a stolen data folder contains no usable one."""
    if _MARK_OF_KEY.search(raw) is None:
        return raw
    # `surrogateescape` preserves bytes that are not UTF-8.
    return redact_keys(raw.decode(errors="surrogateescape")).encode(errors="surrogateescape")
