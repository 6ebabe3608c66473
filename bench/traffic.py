"""Synthetic load: sessions on three surfaces with events of every type, and single views.

It is not the demo's traffic: the sizes in README are measured with these sessions, and depend on their ids and times.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from uuid_utils import uuid7

Envelope = dict[str, Any]
NamedPayload = tuple[str, dict[str, Any]]

EVENT_SPACING_MS = 4_000
LENGTHS = range(8, 40)
DEPLOYMENTS = range(1, 9)
_MEASURES = ("revenue.total", "revenue.by_month", "orders.count", "churn.rate", "margin.gross", "users.active")
_TITLES = ("Revenue by month", "Orders today", "Churn by plan", "Gross margin", "Active users", "Pipeline")
_QUESTIONS = (
    "What was our revenue last quarter?",
    "Which customers churned in March?",
    "Show orders by region",
    "Why did the margin fall?",
)
_ERRORS = (("TypeError", "Failed to fetch"), ("QueryError", "The query took too long"), ("AuthError", "Token expired"))


@dataclass(frozen=True, slots=True)
class Session:
    """The context and the events of one viewer's visit."""

    context: dict[str, Any]
    envelopes: list[Envelope]


def sessions(
    seed: int, *, start_ms: int, lengths: range = LENGTHS, new_id: Callable[[], str] = lambda: str(uuid7())
) -> Iterator[Session]:
    """Yield sessions endlessly.

    Args:
        seed: the same seed gives the same sessions, except for their ids.
        start_ms: the start of the first session, epoch milliseconds.
        lengths: the possible numbers of events in a session.
        new_id: returns an id for an envelope.
    """
    rng = random.Random(seed)
    at_ms = start_ms
    while True:
        at_ms += rng.randrange(200, 3_000)
        yield _session(rng, at_ms, rng.choice(lengths), new_id)


def view(path: str = "/dashboards/sales") -> Envelope:
    """Return a view event with a new id and the current time."""
    return {
        "id": str(uuid7()),
        "source": "svc-embed",
        "direction": "event",
        "type": "svc:event:view",
        "payload": {"surface": "dashboard", "path": path},
        "timestamp": time.time_ns() // 1_000_000,
        "surface": "dashboard",
    }


def _session(rng: random.Random, at_ms: int, count: int, new_id: Callable[[], str]) -> Session:
    surface = rng.choices(("dashboard", "app", "chat"), (6, 3, 2))[0]
    deployment, tenant = rng.choice(DEPLOYMENTS), f"tenant-{rng.randrange(40)}"
    envelopes = []
    for seq, (name, payload) in enumerate(_named_payloads(rng, surface, deployment, tenant, count)):
        at_ms += rng.randrange(1, EVENT_SPACING_MS)
        envelope = {
            "id": new_id(),
            "seq": seq,
            "source": "svc-embed",
            "direction": "event",
            "type": f"svc:event:{name}",
            "payload": payload,
            "timestamp": at_ms,
            "surface": surface,
        }
        envelopes.append(envelope)
    context = {
        "deployment": deployment,
        "session": f"s_{rng.getrandbits(64):016x}",
        "viewer": f"u_{rng.randrange(4_000)}",
        "tenant": tenant,
        "page": f"https://app.example.com/{rng.choice(('reports', 'home', 'finance'))}",
    }
    return Session(context, envelopes)


def _named_payloads(
    rng: random.Random, surface: str, deployment: int, tenant: str, count: int
) -> Iterator[NamedPayload]:
    public_id = f"d_{deployment}_{rng.randrange(12)}"
    title, path = rng.choice(_TITLES), f"/{surface}/{public_id}"
    ready = {"embedTenant": tenant, "deploymentId": deployment, "mode": "signed", "surface": surface}
    events: list[NamedPayload] = [("ready", {**ready, "publicId": public_id})]
    while len(events) < count:
        events.append(("view", {"surface": surface, "path": path, "publicId": public_id, "title": title}))
        events += _actions(rng, surface, public_id, path)
    yield from events[:count]


def _actions(rng: random.Random, surface: str, public_id: str, path: str) -> Iterator[NamedPayload]:
    if surface == "dashboard":
        load_ms = round(rng.lognormvariate(7, 0.6), 1)
        yield "dashboard-loaded", {"publicId": public_id, "widgetCount": 8, "loadDurationMs": load_ms}
        if rng.random() < 0.3:
            yield "download", _download(rng)
    if surface == "chat" or rng.random() < 0.2:
        yield from _question(rng)
    for _ in range(rng.randrange(4) if surface == "dashboard" else 0):
        yield "drilldown", {"member": rng.choice(_MEASURES), "value": rng.randrange(10_000), "widgetId": "w_3"}
    if rng.random() < 0.1:
        name, message = rng.choice(_ERRORS)
        yield "error", {"message": message, "name": name, "context": "widget", "fatal": rng.random() < 0.1}
    yield "navigate", {"path": f"{path}/tab-{rng.randrange(5)}", "previousPath": path}


def _download(rng: random.Random) -> dict[str, Any]:
    return {
        "format": rng.choice(("csv", "xlsx", "png", "pdf")),
        "target": rng.choice(("widget", "dashboard")),
        "widgetId": f"w_{rng.randrange(9)}",
        "title": rng.choice(_TITLES),
        "rowCount": rng.randrange(20_000),
    }


def _question(rng: random.Random) -> Iterator[NamedPayload]:
    question = {"query": rng.choice(_QUESTIONS), "chatId": f"c_{rng.randrange(10**6)}", "agentId": "analyst"}
    yield "ai-query", {**question, "status": "submitted"}
    yield "ai-query", {**question, "status": rng.choices(("completed", "error"), (9, 1))[0]}
