"""Sends deliveries as browsers do, and counts what the server answered."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from embedsink.demo.ports import HOST
from embedsink.demo.server import REQUEST_TIMEOUT_S
from embedsink.demo.stop import CHECK_INTERVAL_S, Stop
from embedsink.demo.traffic import Delivery
from embedsink.errors import EmbedsinkError
from embedsink.reasons import Reason

PATH = "/api/v1/events"
BROWSERS = 6
ATTEMPTS_MAX = 8
_RETRY_STATUSES = (429, 503)


@dataclass
class SendCounts:
    """What was sent, and how the server answered. A body that is not JSON counts as one envelope."""

    sent: int = 0
    deliveries: int = 0
    retries: int = 0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, delivery: Delivery, answer: dict[str, Any]) -> None:
        """Count an answered delivery: a 202, a 422 with its list, or a body that was quarantined as a whole."""
        rejected = answer.get("rejected", [answer] if "reason" in answer else [])
        with self._lock:
            self.deliveries += 1
            self.retries += delivery.is_retry
            self.accepted += answer.get("accepted", 0)
            self.sent += answer.get("accepted", 0) + len(rejected)
            for one in rejected:
                self.rejected[one["reason"]] += 1
                self.examples.setdefault(one["reason"], one["detail"])


class Browsers:
    """Browsers with open pages. Each page has the ingest key of its origin."""

    def __init__(self, port: int, keys: dict[str, str], counts: SendCounts) -> None:
        self._port = port
        self._keys = keys
        self._counts = counts

    def send_all(self, visits: list[list[Delivery]], stop: Stop) -> Iterator[None]:
        """Send all visits, several at once. Yield after every change of the counts."""
        pool = ThreadPoolExecutor(BROWSERS)
        try:
            pending = {pool.submit(self.send_visit, visit) for visit in visits}
            while pending:
                stop.check()
                done, pending = wait(pending, timeout=CHECK_INTERVAL_S, return_when=FIRST_COMPLETED)
                for one in done:
                    one.result()
                yield
        finally:
            pool.shutdown(cancel_futures=True)

    def send_visit(self, deliveries: list[Delivery]) -> None:
        """Send the deliveries of one page in order, over one connection."""
        connection = self._connect()
        try:
            for delivery in deliveries:
                self._counts.add(delivery, self._post(connection, delivery))
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(HOST, self._port, timeout=REQUEST_TIMEOUT_S)

    def _post(self, connection: http.client.HTTPConnection, delivery: Delivery) -> dict[str, Any]:
        for _ in range(ATTEMPTS_MAX):
            body = delivery.body(time.time_ns() // 1_000_000, self._keys[delivery.origin])
            connection.request("POST", PATH, body, self._headers(delivery))
            response = connection.getresponse()
            content = response.read()
            if response.status not in _RETRY_STATUSES:
                return _parse(response.status, content)
            time.sleep(float(response.headers.get("Retry-After", 1)))
        raise EmbedsinkError(f"POST {PATH}: {response.status} after {ATTEMPTS_MAX} attempts.")

    def _headers(self, delivery: Delivery) -> dict[str, str]:
        headers = {
            "Accept": "*/*",
            "Accept-Language": "en-GB,en;q=0.8",
            "Content-Type": delivery.media_type,
            "Origin": delivery.origin,
            "Referer": f"{delivery.origin}/",
            "Sec-Fetch-Dest": "empty",
            "Sec-Fetch-Mode": "cors",
            "Sec-Fetch-Site": "cross-site",
            "User-Agent": delivery.user_agent,
        }
        if delivery.is_gzipped:
            headers["Content-Encoding"] = "gzip"
        # A beacon can't set this header; its key is in the body.
        if not delivery.is_beacon:
            headers["Authorization"] = f"Bearer {self._keys[delivery.origin]}"
        return headers


def _parse(status: int, content: bytes) -> dict[str, Any]:
    """Return the response to a body that the server stored, or quarantined as a whole."""
    answer: dict[str, Any] = json.loads(content)
    is_stored = status in (202, 422) or answer.get("reason") == Reason.NOT_JSON
    if not is_stored:
        raise EmbedsinkError(f"POST {PATH}: {status} {answer.get('detail', '')}")
    return answer
