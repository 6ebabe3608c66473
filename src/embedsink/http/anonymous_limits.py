"""The rate limit of each address for requests without a valid key. Responses beyond the limit are delayed."""

import asyncio
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from embedsink.auth.keys import KeyKind
from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.http.client_address import client_address
from embedsink.http.cors import INGEST_PATH
from embedsink.http.problems import problem_response
from embedsink.http.rate_limiter import TokenBuckets
from embedsink.http.sessions import Sessions
from embedsink.reasons import Reason

# A connection gets at most one delayed response a second.
RESPONSE_DELAY_S = 1.0
# A body of this size costs as much as one more request.
BODY_BYTES_PER_REQUEST = 131_072
# Orchestrators and load balancers never get a 429 here, only a delay. These paths have separate buckets.
_PROBES = ("/healthz", "/readyz")


class AnonymousLimits:
    """Token buckets by address for requests without a valid key, and the count of delayed responses.

    Args:
        requests_per_s: the rate of each address.
    """

    def __init__(self, requests_per_s: int) -> None:
        self._buckets = TokenBuckets(requests_per_s)
        self._delayed_count = 0

    def charge(self, scope: Scope, *, cost: float = 0.0, is_probe: bool = False) -> Unavailable | None:
        """Charge the address of a request. Return the `rate_limited` error if its bucket is empty.

        Args:
            scope: the ASGI scope of the request.
            cost: the cost in requests; 0 only checks the bucket.
            is_probe: whether to use the bucket for probes.
        """
        now, address = time.monotonic(), client_address(scope)
        name = (address, is_probe)
        if wait_s := self._buckets.wait_s(name, 1, now):
            limit = f"{self._buckets.rate_per_s:,} requests/s without a valid key (EMBEDSINK_RATE_ANONYMOUS_PER_S)"
            detail = f"address {address}: sends more than {limit}. Send a key, or wait."
            return Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=int(wait_s) + 1)
        self._buckets.charge(name, cost, now)
        return None

    def delay_response(self, scope: Scope, respond: Callable[[], None]) -> None:
        """Call `respond` after a second plus its wait in a queue, which empties at the rate of one address.

        The connection may be closed for other connections meanwhile. If its client disconnects, `respond` is called at
        once, so the queue is never longer than the number of connections.
        """

        def release() -> None:
            self._delayed_count -= 1
            respond()

        self._delayed_count += 1
        delay_s = RESPONSE_DELAY_S + self._delayed_count / self._buckets.rate_per_s
        delay_response = scope["state"].get("delay_response") or asyncio.get_running_loop().call_later
        delay_response(delay_s, release)


class AnonymousLimitMiddleware:
    """ASGI middleware that limits requests without a valid key.

    The ingest endpoint counts `POST /api/v1/events` itself, because its key may be in the body.
    """

    def __init__(self, app: ASGIApp, *, limits: AnonymousLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with `rate_limited` after a delay."""
        if scope["type"] == "http" and not (scope["path"] == INGEST_PATH and scope["method"] == "POST"):
            is_probe = scope["path"] in _PROBES
            if limited := self._charge(scope, is_probe=is_probe):
                delayed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._limits.delay_response(scope, lambda: None if delayed.done() else delayed.set_result(None))
                await delayed
                if not is_probe:
                    await problem_response(Request(scope), limited)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _charge(self, scope: Scope, *, is_probe: bool) -> Unavailable | None:
        if has_valid_key(scope):
            return None
        return self._limits.charge(scope, cost=request_cost(scope), is_probe=is_probe)


def has_valid_key(scope: Scope) -> bool:
    """Return whether the header has a live key, or the cookie a session.

    Ingest keys don't count: they are public, and valid for ingest only.
    """
    engine: Engine = scope["state"]["engine"]
    sessions: Sessions = scope["state"]["sessions"]
    for name, value in scope["headers"]:
        if name == b"authorization":
            key = engine.keys.find(value.decode("latin-1").partition(" ")[2].strip())
            return key is not None and key.kind is not KeyKind.INGEST
        if name == b"cookie" and sessions.key_of(Request(scope), engine.keys) is not None:
            return True
    return False


def request_cost(scope: Scope) -> float:
    """Return the cost of a request for its address, in requests."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return 1 + int(value[:9]) / BODY_BYTES_PER_REQUEST
    return 1.0
