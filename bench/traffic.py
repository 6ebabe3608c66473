"""Synthetic load: the events of the demo's visits, and single views."""

import time
import uuid
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from embedsink.demo.traffic import endless_visits
from embedsink.demo.visits import Envelope

SPACING_MS = 1_600


class Session(NamedTuple):
    """The events of one visit, and their context."""

    context: dict[str, Any]
    envelopes: list[Envelope]


def sessions(seed: int, *, start_ms: int) -> Iterator[Session]:
    """Yield sessions endlessly. The first begins at `start_ms` (epoch). The same arguments give the same sessions."""
    for visit in endless_visits(Random(seed), start_ms=start_ms, spacing_ms=SPACING_MS):
        yield Session(visit.context, [one for one in visit.envelopes if one["direction"] == "event"])


def view(path: str = "/dashboards/sales") -> Envelope:
    """Return a view event with a new id and the current time."""
    return {
        "id": str(uuid.uuid4()),
        "source": "svc-embed",
        "direction": "event",
        "type": "svc:event:view",
        "payload": {"surface": "dashboard", "path": path},
        "timestamp": time.time_ns() // 1_000_000,
        "surface": "dashboard",
    }
