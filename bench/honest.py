"""Honest senders: single events at a steady pace, each with an id of its own, on connections that stay open."""

import http.client
import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from embedsink.http.cors import INGEST_PATH

CONNECTIONS = 32
PER_S = 400
_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Aggregator:
    """What honest senders saw: seconds until each 202, how many requests were due, and how many got another answer."""

    durations_s: list[float] = field(default_factory=list)
    due_count: int = 0
    refused_count: int = 0

    @property
    def share(self) -> float:
        """Of the requests that were due, those that were answered with a 202 in time."""
        return len(self.durations_s) / self.due_count

    def percentile_ms(self, percent: int) -> float:
        """How long so many of hundred took at most; endless where none was answered."""
        ordered = sorted(self.durations_s)
        return 1e3 * ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] if ordered else float("inf")


def send_for(url: str, key: str, *, seconds: float, connections: int = CONNECTIONS, per_s: float = PER_S) -> Aggregator:
    """Send at a steady pace. A connection that waits for an answer sends none meanwhile, and misses what is due."""
    seen = Aggregator(due_count=int(seconds * per_s))
    ends_at = time.monotonic() + seconds
    sender = (url, key, connections / per_s, ends_at, seen)
    threads = [threading.Thread(target=_send, args=sender) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def _send(url: str, key: str, every_s: float, ends_at: float, seen: Aggregator) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    due_at = time.monotonic()
    while due_at < ends_at:
        time.sleep(max(0.0, due_at - time.monotonic()))
        started_at = time.monotonic()
        try:
            connection.request("POST", INGEST_PATH, _event(), headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            seen.refused_count += 1
        else:
            if answer.status == http.HTTPStatus.ACCEPTED:
                seen.durations_s.append(time.monotonic() - started_at)
            else:
                seen.refused_count += 1
        due_at = max(due_at + every_s, time.monotonic() - every_s)
    connection.close()


def _event() -> bytes:
    return json.dumps(
        {
            "id": str(uuid.uuid4()),
            "source": "svc-embed",
            "direction": "event",
            "type": "svc:event:view",
            "payload": {"surface": "dashboard", "path": "/dashboards/sales"},
            "timestamp": time.time_ns() // 1_000_000,
            "surface": "dashboard",
        }
    ).encode()
