"""Sends deliveries as browsers do, and keeps account of what the server answered."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from embedsink.demo.server import HOST, REQUEST_TIMEOUT_S
from embedsink.demo.stopping import SLICE_S, Stop
from embedsink.demo.traffic import Delivery
from embedsink.errors import EmbedsinkError
from embedsink.reasons import Reason

PATH = "/api/v1/events"
BROWSERS = 6
ATTEMPTS_MAX = 8
_WAIT_AND_RESEND = (429, 503)


@dataclass
class Account:
    """What was sent and what the answers said, by count. A body that can't be read counts as one envelope."""

    sent_count: int = 0
    delivery_count: int = 0
    retry_count: int = 0
    accepted_count: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, delivery: Delivery, answer: dict[str, Any]) -> None:
        """Count one answered delivery: a 202, a 422 with its list, or a body that was quarantined as a whole."""
        rejected = answer.get("rejected", [answer] if "reason" in answer else [])
        with self._lock:
            self.delivery_count += 1
            self.retry_count += delivery.is_retry
            self.accepted_count += answer.get("accepted", 0)
            self.sent_count += answer.get("accepted", 0) + len(rejected)
            for one in rejected:
                self.rejected[one["reason"]] += 1
                self.examples.setdefault(one["reason"], one["detail"])


class Browsers:
    """Some browsers with some tabs each; every page has an ingest key of its own, by its origin."""

    def __init__(self, port: int, keys: dict[str, str], account: Account) -> None:
        self._port = port
        self._keys = keys
        self._account = account

    def ask_leave(self) -> None:
        """The CORS preflight (Fetch standard, section 3.2) that a browser sends before the first POST of each page."""
        asked = "authorization,content-encoding,content-type"
        for origin in self._keys:
            headers = {
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": asked,
            }
            connection = self._connect()
            connection.request("OPTIONS", PATH, headers=headers)
            status = connection.getresponse().status
            connection.close()
            if status != http.client.NO_CONTENT:
                raise EmbedsinkError(f"OPTIONS {PATH} from {origin}: {status}, where 204 was expected.")

    def send_all(self, visits: list[list[Delivery]], stop: Stop) -> Iterator[None]:
        """Send every visit, several at once; yields whenever there is something new in the account."""
        pool = ThreadPoolExecutor(BROWSERS)
        try:
            waiting = {pool.submit(self.send_visit, visit) for visit in visits}
            while waiting:
                stop.check()
                done, waiting = wait(waiting, timeout=SLICE_S, return_when=FIRST_COMPLETED)
                for one in done:
                    one.result()
                yield
        finally:
            pool.shutdown(cancel_futures=True)

    def send_visit(self, deliveries: list[Delivery]) -> None:
        """Send the deliveries of one page over one connection, in order."""
        connection = self._connect()
        try:
            for delivery in deliveries:
                self._account.note(delivery, self._post(connection, delivery))
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(HOST, self._port, timeout=REQUEST_TIMEOUT_S)

    def _post(self, connection: http.client.HTTPConnection, delivery: Delivery) -> dict[str, Any]:
        for _ in range(ATTEMPTS_MAX):
            body = delivery.body(time.time_ns() // 1_000_000, self._keys[delivery.origin])
            connection.request("POST", PATH, body, self._headers(delivery))
            answer = connection.getresponse()
            content = answer.read()
            if answer.status not in _WAIT_AND_RESEND:
                return _read(answer.status, content)
            time.sleep(float(answer.headers.get("Retry-After", 1)))
        raise EmbedsinkError(f"POST {PATH}: {answer.status} after {ATTEMPTS_MAX} attempts.")

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
        # A beacon can't set this header: its key stands in the body.
        if not delivery.is_beacon:
            headers["Authorization"] = f"Bearer {self._keys[delivery.origin]}"
        return headers


def _read(status: int, content: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(content)
    was_kept = status in (202, 422) or answer.get("reason") == Reason.NOT_JSON
    if not was_kept:
        raise EmbedsinkError(f"POST {PATH}: {status} {answer.get('detail', '')}")
    return answer
