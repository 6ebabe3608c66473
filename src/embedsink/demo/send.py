"""Send deliveries with the requests of a browser, and count the server's responses."""

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
BROWSER_COUNT = 6
ATTEMPTS_MAX = 8
_RETRY_STATUSES = (429, 503)


@dataclass
class SendCounts:
    """Counts of sent envelopes and deliveries, by the server's responses. A body that is not JSON is one envelope."""

    sent: int = 0  # envelopes
    deliveries: int = 0
    retries: int = 0  # deliveries that the forwarder sent again
    accepted: int = 0  # envelopes
    rejected: Counter[str] = field(default_factory=Counter)  # envelopes by reason
    examples: dict[str, str] = field(default_factory=dict)  # the first detail of each reason
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, delivery: Delivery, response: dict[str, Any]) -> None:
        """Count a delivery, and the envelopes in the server's response to it. Several threads may call this at once."""
        accepted_count = response.get("accepted", 0)
        rejections = _rejections_in(response)
        with self._lock:
            self.deliveries += 1
            self.retries += delivery.is_retry
            self.accepted += accepted_count
            self.sent += accepted_count + len(rejections)
            for rejection in rejections:
                self.rejected[rejection["reason"]] += 1
                self.examples.setdefault(rejection["reason"], rejection["detail"])


class Browsers:
    """Simulated browsers, which send the deliveries of pages.

    Args:
        port: the server's port on loopback.
        keys: an ingest key for each origin of a page.
        counts: updated after each response.
    """

    def __init__(self, port: int, keys: dict[str, str], counts: SendCounts) -> None:
        self._port = port
        self._keys = keys
        self._counts = counts

    def send_all(self, visits: list[list[Delivery]], stop: Stop) -> Iterator[None]:
        """Send all visits, several at once. Yield when a visit was sent, and at least every 0.1 s.

        Raises:
            Stopped: the user asked to stop.
            EmbedsinkError: the server did not store a delivery.
        """
        pool = ThreadPoolExecutor(BROWSER_COUNT)
        try:
            pending = {pool.submit(self.send_visit, visit) for visit in visits}
            while pending:
                stop.check()
                completed, pending = wait(pending, timeout=CHECK_INTERVAL_S, return_when=FIRST_COMPLETED)
                for future in completed:
                    future.result()  # Raises the exception of the thread, if any.
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
        """Post a delivery, with retries while the server is overloaded. Return the response.

        Raises:
            EmbedsinkError: the server is still overloaded after the last attempt, or stored nothing.
        """
        for _ in range(ATTEMPTS_MAX):
            now_ms = time.time_ns() // 1_000_000
            body = delivery.body(now_ms, self._keys[delivery.origin])
            connection.request("POST", PATH, body, self._headers(delivery))
            response = connection.getresponse()
            content = response.read()
            if response.status not in _RETRY_STATUSES:
                return _parse_response(response.status, content)
            time.sleep(float(response.headers.get("Retry-After", 1)))
        raise EmbedsinkError(f"POST {PATH}: {response.status} after {ATTEMPTS_MAX} attempts.")

    def _headers(self, delivery: Delivery) -> dict[str, str]:
        """Return the headers that a browser sends with a delivery."""
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
        # A beacon has its key in the body, because it can't set this header.
        if not delivery.is_beacon:
            headers["Authorization"] = f"Bearer {self._keys[delivery.origin]}"
        return headers


def _rejections_in(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rejections of a response, each with its reason and detail."""
    if "rejected" in response:
        rejections: list[dict[str, Any]] = response["rejected"]
        return rejections
    # A response with a reason but without a list is about the body, which was quarantined as a whole.
    return [response] if "reason" in response else []


def _parse_response(status: int, content: bytes) -> dict[str, Any]:
    """Parse the JSON of a response.

    Raises:
        EmbedsinkError: the server stored nothing.
    """
    response: dict[str, Any] = json.loads(content)
    # 202: envelopes were accepted. 422: all were quarantined. A body that is not JSON is quarantined as a whole.
    is_stored = status in (202, 422) or response.get("reason") == Reason.NOT_JSON
    if not is_stored:
        raise EmbedsinkError(f"POST {PATH}: {status} {response.get('detail', '')}")
    return response
