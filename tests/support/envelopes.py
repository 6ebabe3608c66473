"""Valid envelopes that tests change, and the parser with test defaults."""

import json
from copy import deepcopy
from hashlib import sha256
from typing import Any

from embedsink.protocol.delivery import ParsedDelivery, Rules
from embedsink.protocol.validation import parse

DEFAULTS = Rules()
RECEIVED_AT = 1_763_596_801_600
ID = "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"
# A key of the real length, without a valid checksum.
KEY = "es_ingest_" + "0123456789abcdefghijABCDEFGHIJ0123456789abcdefghi"

# Its stored form: the kind, and the beginning of the SHA-256.
KEY_CUT = "es_ingest_…" + sha256(KEY.encode()).hexdigest()[:8]

PAYLOADS: dict[str, dict[str, Any]] = {
    "event:ready": {"embedTenant": "acme", "deploymentId": 12, "mode": "signed", "surface": "dashboard"},
    "event:view": {"surface": "dashboard", "path": "/dashboards/sales"},
    "event:navigate": {"path": "/dashboards/costs"},
    "event:dashboard-loaded": {"widgetCount": 8},
    "event:download": {"format": "csv", "target": "widget"},
    "event:drilldown": {"member": "orders.revenue"},
    "event:ai-query": {"query": "Why?", "status": "submitted"},
    "event:error": {"message": "Query timed out"},
    "event:x-feedback": {"chatId": "c_1", "rating": "up"},
    "event:x-filter": {"filters": {"region": ["EU"]}},
    "action:set-color-scheme": {"scheme": "dark"},
    "action:set-theme": {"embedTheme": {"font": "Inter"}},
    "action:set-locale": {"locale": "de"},
    "action:set-filter": {"filterUrlParameter": "f_orders.region=[1]"},
    "action:navigate": {"path": "/dashboards/costs"},
    "action:refresh": {},
}


def event_or_action(type_: str, payload: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a valid envelope of a type such as `event:view`, with changed payload fields and envelope fields."""
    direction = type_.split(":")[0]
    envelope: dict[str, Any] = {
        "source": "svc-embed",
        "direction": direction,
        "type": f"svc:{type_}",
        "payload": deepcopy(PAYLOADS[type_]) | (payload or {}),
        "timestamp": 1_763_596_800_000,
    }
    if direction == "event":
        envelope["surface"] = "dashboard"
    return envelope | fields


def view(payload: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a valid view event."""
    return event_or_action("event:view", payload, **fields)


def envelope_in(line: dict[str, Any]) -> dict[str, Any]:
    """Return the envelope of a journal line as it was sent, with its unknown payload fields."""
    envelope: dict[str, Any] = line["envelope"]
    return envelope | {"payload": envelope["payload"] | line.get("extra", {})}


def parse_body(body: object, rules: Rules = DEFAULTS, *, ndjson: bool = False) -> ParsedDelivery:
    """Parse a body: bytes as they are, any other value as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse(content, RECEIVED_AT, rules, ndjson=ndjson)
