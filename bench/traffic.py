"""Traffic as embeds cause it: sessions on three surfaces, each with a viewer, a tenant and a plausible course.

Everything follows from a seed, but for the ids: whoever sends says how they are made.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from uuid_utils import uuid7

Envelope = dict[str, Any]
Happening = tuple[str, dict[str, Any]]

EVENT_SPACING_MS = 4_000
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
    """One viewer's visit: what the host page knows, and what happened, in order."""

    context: dict[str, Any]
    envelopes: list[Envelope]


def sessions(seed: int, *, start_ms: int, length: range, new_id: Callable[[], str] | None = None) -> Iterator[Session]:
    """Sessions without end, each of so many events as `length` allows.

    Args:
        seed: the same seed gives the same sessions.
        start_ms: when the first begins, epoch milliseconds; each next begins some seconds later.
        length: how many events a session may have.
        new_id: makes the ids of envelopes; UUIDv7 if absent.
    """
    chance = random.Random(seed)
    at_ms = start_ms
    while True:
        at_ms += chance.randrange(200, 3_000)
        yield _session(chance, at_ms, chance.choice(length), new_id or (lambda: str(uuid7())))


def _session(chance: random.Random, at_ms: int, count: int, new_id: Callable[[], str]) -> Session:
    surface = chance.choices(("dashboard", "app", "chat"), (6, 3, 2))[0]
    deployment, tenant = chance.choice(DEPLOYMENTS), f"tenant-{chance.randrange(40)}"
    envelopes = []
    for seq, (name, payload) in enumerate(_course(chance, surface, deployment, tenant, count)):
        at_ms += chance.randrange(1, EVENT_SPACING_MS)
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
        "session": f"s_{chance.getrandbits(64):016x}",
        "viewer": f"u_{chance.randrange(4_000)}",
        "tenant": tenant,
        "page": f"https://app.example.com/{chance.choice(('reports', 'home', 'finance'))}",
    }
    return Session(context, envelopes)


def _course(chance: random.Random, surface: str, deployment: int, tenant: str, count: int) -> Iterator[Happening]:
    public_id = f"d_{deployment}_{chance.randrange(12)}"
    title, path = chance.choice(_TITLES), f"/{surface}/{public_id}"
    ready = {"embedTenant": tenant, "deploymentId": deployment, "mode": "signed", "surface": surface}
    course: list[Happening] = [("ready", {**ready, "publicId": public_id})]
    while len(course) < count:
        course.append(("view", {"surface": surface, "path": path, "publicId": public_id, "title": title}))
        course += _acts(chance, surface, public_id, path)
    yield from course[:count]


def _acts(chance: random.Random, surface: str, public_id: str, path: str) -> Iterator[Happening]:
    if surface == "dashboard":
        load_ms = round(chance.lognormvariate(7, 0.6), 1)
        yield "dashboard-loaded", {"publicId": public_id, "widgetCount": 8, "loadDurationMs": load_ms}
        if chance.random() < 0.3:
            yield "download", _download(chance)
    if surface == "chat" or chance.random() < 0.2:
        yield from _question(chance)
    for _ in range(chance.randrange(4) if surface == "dashboard" else 0):
        yield "drilldown", {"member": chance.choice(_MEASURES), "value": chance.randrange(10_000), "widgetId": "w_3"}
    if chance.random() < 0.1:
        name, message = chance.choice(_ERRORS)
        yield "error", {"message": message, "name": name, "context": "widget", "fatal": chance.random() < 0.1}
    yield "navigate", {"path": f"{path}/tab-{chance.randrange(5)}", "previousPath": path}


def _download(chance: random.Random) -> dict[str, Any]:
    return {
        "format": chance.choice(("csv", "xlsx", "png", "pdf")),
        "target": chance.choice(("widget", "dashboard")),
        "widgetId": f"w_{chance.randrange(9)}",
        "title": chance.choice(_TITLES),
        "rowCount": chance.randrange(20_000),
    }


def _question(chance: random.Random) -> Iterator[Happening]:
    asked = {"query": chance.choice(_QUESTIONS), "chatId": f"c_{chance.randrange(10**6)}", "agentId": "analyst"}
    yield "ai-query", {**asked, "status": "submitted"}
    yield "ai-query", {**asked, "status": chance.choices(("completed", "error"), (9, 1))[0]}
