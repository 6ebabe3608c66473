"""Examples of the four ingest request bodies. A test sends each of them unchanged."""

import json
from dataclasses import dataclass
from typing import Any

_NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00Z
_ID = "019aa6c4-5e7f-7a10-9c3d-2b8f64d1e0a7"


@dataclass(frozen=True, slots=True)
class Example:
    """A complete request body. `anchor` is the id of its heading on the page."""

    anchor: str
    title: str
    meaning: str
    media_type: str
    body: str


def examples(service_name: str) -> list[Example]:
    """Return the four request bodies, the smallest first, with the service name of the server."""
    view = _event(service_name, "view", "dashboard", {"surface": "dashboard", "path": "/d/sales"})
    drilldown = _event(service_name, "drilldown", "dashboard", {"member": "orders.revenue"})
    question = _event(service_name, "ai-query", "chat", {"query": "Revenue by region?", "status": "submitted"})
    return [
        Example(
            "one-envelope",
            "One envelope",
            "The value of `event.data`, unchanged. The smallest forwarder is therefore one `fetch`.",
            "application/json",
            _one_field_per_line(view),
        ),
        Example(
            "an-array",
            "An array",
            "Several envelopes in a JSON array.",
            "application/json",
            "[" + ",\n ".join(_in_three_lines(event, " ") for event in (drilldown, question)) + "]",
        ),
        Example(
            "ndjson",
            "NDJSON",
            "One envelope per line, as pipelines and log shippers write it.",
            "application/x-ndjson",
            "\n".join(json.dumps(event) for event in (view, drilldown)),
        ),
        Example(
            "a-delivery",
            "A delivery",
            "Envelopes with their shared context. Reports count viewers and sessions only if the context contains "
            "`viewer` and `session`. With an `id`, a retried event counts once. With `seq`, reports count the events "
            "that never arrived.",
            "application/json",
            _delivery({"id": _ID, "seq": 7} | view),
        ),
    ]


def _event(service_name: str, type_: str, surface: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "source": f"{service_name}-embed",
        "direction": "event",
        "type": f"{service_name}:event:{type_}",
        "timestamp": _NOON_MS,
        "surface": surface,
        "payload": payload,
    }


def _delivery(event: dict[str, Any]) -> str:
    context = {"deployment": 12, "session": "s_9f2c", "viewer": "u_42", "tenant": "acme"}
    parts = {
        "sentAt": str(_NOON_MS + 1_500),
        "context": json.dumps(context),
        "events": f"[\n    {_in_three_lines(event, '    ')}\n  ]",
    }
    return "{\n" + ",\n".join(f'  "{name}": {text}' for name, text in parts.items()) + "\n}"


def _one_field_per_line(event: dict[str, Any]) -> str:
    return "{\n" + ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in event.items()) + "\n}"


def _in_three_lines(event: dict[str, Any], margin: str) -> str:
    """Return the event as JSON in up to three lines: the extensions, the type, and the content."""
    members = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in event.items()]
    starts = [list(event).index(name) for name in ("source", "timestamp")]
    lines = [members[: starts[0]], members[starts[0] : starts[1]], members[starts[1] :]]
    return "{" + f",\n{margin} ".join(", ".join(line) for line in lines if line) + "}"
