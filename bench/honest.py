"""Honest senders: single events at a steady rate, on connections that stay open."""

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.traffic import view
from embedsink.http.cors import INGEST_PATH

CONNECTIONS = 32
PER_S = 400
_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Latencies:
    """The seconds until each 202, the number of due requests, and the number of requests without a 202."""

    durations_s: list[float] = field(default_factory=list)
    due_count: int = 0
    failure_count: int = 0

    @property
    def share(self) -> float:
        """The share of due requests that were answered with a 202 in time."""
        return len(self.durations_s) / self.due_count

    def percentile_ms(self, percent: int) -> float:
        """Return a percentile; infinite without a 202."""
        ordered = sorted(self.durations_s)
        return 1e3 * ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] if ordered else float("inf")


def send_for(url: str, key: str, *, seconds: float, connections: int = CONNECTIONS, per_s: float = PER_S) -> Latencies:
    """Send at a steady rate. A connection that waits for a response misses the requests that are due meanwhile."""
    latencies = Latencies(due_count=int(seconds * per_s))
    ends_at = time.monotonic() + seconds
    with ThreadPoolExecutor(connections) as pool:
        senders = [pool.submit(_send, url, key, connections / per_s, ends_at, latencies) for _ in range(connections)]
    for sender in senders:
        sender.result()
    return latencies


def _send(url: str, key: str, interval_s: float, ends_at: float, latencies: Latencies) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    due_at = time.monotonic()
    while due_at < ends_at:
        time.sleep(max(0.0, due_at - time.monotonic()))
        started_at = time.monotonic()
        try:
            connection.request("POST", INGEST_PATH, json.dumps(view()).encode(), headers)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            latencies.failure_count += 1
        else:
            if response.status == http.HTTPStatus.ACCEPTED:
                latencies.durations_s.append(time.monotonic() - started_at)
            else:
                latencies.failure_count += 1
        due_at = max(due_at + interval_s, time.monotonic() - interval_s)
    connection.close()
