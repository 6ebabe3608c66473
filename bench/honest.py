"""Honest senders: single events at a steady rate, on persistent connections."""

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.traffic import view
from embedsink.http.cors import INGEST_PATH

CONNECTIONS = 32
REQUESTS_PER_S = 400
_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Latencies:
    """The latencies of the requests that were answered with 202, and the numbers of due and of failed requests."""

    durations_s: list[float] = field(default_factory=list)
    due_count: int = 0
    failure_count: int = 0

    @property
    def share(self) -> float:
        """The share of due requests that were answered with a 202 in time."""
        return len(self.durations_s) / self.due_count

    def percentile_ms(self, percent: int) -> float:
        """Return a percentile of the latencies; infinity if no request was answered with 202."""
        if not self.durations_s:
            return float("inf")
        index = min(len(self.durations_s) * percent // 100, len(self.durations_s) - 1)
        return 1e3 * sorted(self.durations_s)[index]


def send_for(
    url: str, key: str, *, seconds: float, connections: int = CONNECTIONS, per_s: float = REQUESTS_PER_S
) -> Latencies:
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
        # After a slow response, skip the requests that became due in the meantime.
        due_at = max(due_at + interval_s, time.monotonic() - interval_s)
    connection.close()
