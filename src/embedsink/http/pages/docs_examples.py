"""Examples of the four kinds of ingest request bodies. A test sends each of them unchanged."""

import json
from dataclasses import dataclass
from typing import Any

_NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00Z
_ID = "019aa6c4-5e7f-7a10-9c3d-2b8f64d1e0a7"


@dataclass(frozen=True, slots=True)
class Example:
    """A complete request body. `anchor` is the id of its heading, and `meaning` describes it."""

    anchor: str
    title: str
    meaning: str
    media_type: str
    body: str


def examples(service_name: str) -> list[Example]:
    """Return an example of each kind of request body, the smallest first.

    Args:
        service_name: the service name of the server, which `source` and `type` contain.
    """
    view = _event(service_name, "view", "dashboard", {"surface": "dashboard", "path": "/d/sales"})
    drilldown = _event(service_name, "drilldown", "dashboard", {"member": "orders.revenue"})
    question = _event(service_name, "ai-query", "chat", {"query": "Revenue by region?", "status": "submitted"})
    array_items = [_event_with_line_breaks(event, indent=" ") for event in (drilldown, question)]
    return [
        Example(
            "one-envelope",
            "One envelope",
            "The value of `event.data`, unchanged. The smallest forwarder is therefore one `fetch`.",
            "application/json",
            _object_with_line_breaks({name: json.dumps(value) for name, value in view.items()}),
        ),
        Example(
            "an-array",
            "An array",
            "Several envelopes in a JSON array.",
            "application/json",
            "[" + ",\n ".join(array_items) + "]",
        ),
        Example(
            "ndjson",
            "NDJSON",
            "One envelope per line, the format of pipelines and log shippers.",
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
            _delivery(view),
        ),
    ]


def _event(service_name: str, type_: str, surface: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return an event as the embed sends it to the page."""
    return {
        "source": f"{service_name}-embed",
        "direction": "event",
        "type": f"{service_name}:event:{type_}",
        "timestamp": _NOON_MS,
        "surface": surface,
        "payload": payload,
    }


def _delivery(event: dict[str, Any]) -> str:
    """Return the JSON of a delivery with one event. An id and a seq are added to the event."""
    context = {"deployment": 12, "session": "s_9f2c", "viewer": "u_42", "tenant": "acme"}
    extended_event = {"id": _ID, "seq": 7, **event}
    return _object_with_line_breaks(
        {
            "sentAt": str(_NOON_MS + 1_500),  # 1.5 s after the event
            "context": json.dumps(context),
            "events": f"[\n    {_event_with_line_breaks(extended_event, indent='    ')}\n  ]",
        }
    )


def _object_with_line_breaks(json_by_name: dict[str, str]) -> str:
    """Return a JSON object with each member on a separate line. `json_by_name` has the values as JSON."""
    return "{\n" + ",\n".join(f'  "{name}": {value}' for name, value in json_by_name.items()) + "\n}"


def _event_with_line_breaks(event: dict[str, Any], *, indent: str) -> str:
    """Return an event as a JSON object, with line breaks before `timestamp` and before a `source` that is not first.

    Args:
        event: the event.
        indent: the spaces before the object, which are repeated after each line break.
    """
    text = json.dumps(event)
    for name in ("source", "timestamp"):  # No comma precedes a `source` that is first.
        # One more space aligns the name with the first name, after the brace.
        text = text.replace(f', "{name}": ', f',\n{indent} "{name}": ')
    return text
