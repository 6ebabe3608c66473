"""Events in a short notation, which take the path of real events: they are parsed, journaled and loaded.

    {type: view, at: "10:00", viewer: u2, title: Sales}

`at` is a time on a Monday, or a whole timestamp, in UTC. `received` and `sent` are the times of receipt and of sending;
`received` is `at` by default. `key` is the sender's key id. The fields in `CONTEXT` and `ENVELOPE` belong to the
context and the envelope. All other fields belong to the payload, and override the values that the type requires.

    {type: scroll, rejected: unknown_type, replayed: "11:00"}      an envelope that must be rejected for this reason
    {type: navigate, direction: action}
    {lost: {queue_overflow: 3}}                                    a delivery without events
    {type: view, extra_fields: {novel: 1}}                         envelope fields that the protocol does not define
    {type: view, internal: true}                                   an event of internal people
    {sync: job1, at: "10:00", deployment: 1}                       a dbt sync that was completed at `at`
    {user: u1, name: Ann, department: Sales}                       a user of the directory
    {user: u1, deactivated: "11:00"}                               a user who was deactivated at this time
    {group: Analysts, members: [u1, u2]}                           a group of the directory, with the ids of its users

The id of a user or group is that of the field `id`, or else its externalId or name.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from embedsink.ingest.records import DirectoryChange, delivery_lines, directory_line, replay_line, sync_line
from embedsink.journal.segment import trailer
from embedsink.protocol.dbt_sync import CUBE_COUNT_FIELD, Sync, digest_of
from embedsink.protocol.validation import parse
from tests.support.redaction import storable

MONDAY = date(2026, 11, 2)
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
CONTEXT = {"deployment": 1, "session": "s1", "viewer": "u1", "tenant": None, "page": None, "vendor": None}
ENVELOPE = {"id": None, "seq": None, "surface": "dashboard", "direction": "event"}
CLOCKS = {"at": "10:00", "received": None, "sent": None}
REQUIRED: dict[str, dict[str, Any]] = {
    "ready": {"embedTenant": None, "deploymentId": None, "mode": "signed"},
    "view": {"path": "/"},
    "navigate": {"path": "/"},
    "dashboard-loaded": {},
    "download": {"format": "csv", "target": "widget"},
    "drilldown": {"member": "orders.count"},
    "ai-query": {"query": "why", "status": "submitted"},
    "error": {"message": "it failed"},
    "x-filter": {},
    "x-feedback": {"chatId": "c1", "rating": "up"},
}
ACTIONS: dict[str, dict[str, Any]] = {
    "set-color-scheme": {"scheme": "dark"},
    "set-theme": {"primaryColor": "#3987e5"},
    "set-locale": {"locale": "de"},
    "set-filter": {"filterUrlParameter": "f_orders.status=1"},
    "navigate": {"path": "/"},
    "refresh": {},
}
# Fields of the notation that are not part of an envelope.
TEST_FIELDS = {"key", "lost", "rejected", "replayed", "extra_fields", "internal"}

Given = Mapping[str, Any]


def instant(text: object) -> datetime:
    """Return a time on the Monday, the midnight of a date, or the instant of a timestamp."""
    try:
        return datetime.combine(MONDAY, time.fromisoformat(str(text)))
    except ValueError:
        return datetime.fromisoformat(str(text))


def write_segment(folder: Path, given: Iterable[Given], *, number: int = 1) -> Path:
    """Write a sealed journal segment with one delivery for each event."""
    lines = b"".join(_lines(event) for event in given)
    path = folder / f"{number:012d}-00000000.ndjson"
    path.write_bytes(lines + trailer(lines))
    return path


def _lines(event: Given) -> bytes:
    if "sync" in event:
        return _sync_line(event)
    if "user" in event or "group" in event:
        change = _user(event) if "user" in event else _group(event)
        return directory_line(change, received_at=_epoch_ms(event.get("at", CLOCKS["at"])))
    at, received, sent = (event.get(clock, default) for clock, default in CLOCKS.items())
    delivery = {
        "sentAt": sent and _epoch_ms(sent),
        "context": {name: event.get(name, default) for name, default in CONTEXT.items()},
        "events": [_envelope(event, _epoch_ms(at))] if event.get("type") else [],
        "lost": event.get("lost"),
    }
    parsed = parse(json.dumps(delivery).encode(), _epoch_ms(received or at))
    rejections = [(rejection.reason, rejection.detail) for rejection in parsed.rejected]
    assert [reason for reason, _ in rejections] == list(filter(None, [event.get("rejected")])), (event, rejections)
    parsed.is_internal = event.get("internal", False)
    own_id = uuid4()  # one envelope, one id
    lines = delivery_lines(storable(parsed), key_id=event.get("key", "k1"), new_id=lambda: own_id)
    if "replayed" in event:
        lines += replay_line(str(own_id), received_at=_epoch_ms(event["replayed"]))
    return lines


def _sync_line(sync: Given) -> bytes:
    at = instant(sync.get("at", CLOCKS["at"]))
    result = {
        "syncJobId": sync["sync"],
        "generatedFiles": [{"path": "cubes/orders.yml"}],
        "manifestStats": {"models": 3, "sources": 2, "macros": 1},
        CUBE_COUNT_FIELD: 4,
        "completedAt": f"{at.isoformat()}Z",
        "durationMs": 5_000,
    }
    sync_record = Sync(
        deployment=sync.get("deployment", CONTEXT["deployment"]),
        job_id=sync["sync"],
        received_at=_epoch_ms(sync.get("received") or at),
        completed_at=_epoch_ms(at) * 1_000,
        digest=digest_of(result),
        result=result,
    )
    return sync_line(sync_record, key_id="k1")


def _user(given: Given) -> DirectoryChange:
    resource: dict[str, Any] = {
        "id": given.get("id", given["user"]),
        "externalId": given["user"],
        "userName": f"{given['user']}@example.com",
        "active": "deactivated" not in given,
    }
    if "name" in given:
        resource["displayName"] = given["name"]
    if "department" in given:
        resource[ENTERPRISE] = {"department": given["department"]}
    deactivated_at = _epoch_ms(given["deactivated"]) if "deactivated" in given else None
    return DirectoryChange("User", resource["id"], resource, deactivated_at)


def _group(given: Given) -> DirectoryChange:
    resource = {"id": given.get("id", given["group"]), "displayName": given["group"]}
    return DirectoryChange("Group", resource["id"], resource, members_added=tuple(given["members"]))


def _envelope(event: Given, timestamp: int) -> dict[str, Any]:
    envelope = {name: event.get(name, default) for name, default in ENVELOPE.items()}
    if envelope["id"] is not None:
        envelope["id"] = str(UUID(int=envelope["id"]))
    non_payload = {"type", *TEST_FIELDS, *CONTEXT, *ENVELOPE, *CLOCKS}
    fields = {name: value for name, value in event.items() if name not in non_payload}
    required = ACTIONS if envelope["direction"] == "action" else REQUIRED
    payload = required.get(event["type"], {}) | fields
    if event["type"] in ("ready", "view"):
        payload["surface"] = envelope["surface"]
    if envelope["direction"] == "action":
        envelope["surface"] = None
    extra_fields: dict[str, Any] = event.get("extra_fields", {})
    return {
        **envelope,
        **extra_fields,
        "source": "svc-embed",
        "type": f"svc:{envelope['direction']}:{event['type']}",
        "timestamp": timestamp,
        "payload": payload,
    }


def _epoch_ms(text: object) -> int:
    return round(instant(text).replace(tzinfo=UTC).timestamp() * 1000)
