"""Requests without a good key: each address may send so many, and gets the answers beyond that later."""

import asyncio
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from embedsink.auth.keys import KeyKind
from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.http.client_address import address_of
from embedsink.http.cors import INGEST_PATH
from embedsink.http.problems import problem_of
from embedsink.http.rate_limiter import TokenBuckets
from embedsink.http.sessions import Sessions
from embedsink.reasons import Reason

# So a connection costs one answer a second at most, and fewer beside others.
HOLD_BACK_S = 1.0
# A body of so many bytes costs its address as much as one more request.
BODY_BYTES = 131_072
# What orchestrators and load balancers ask has buckets of its own, and is answered in any case.
_PROBES = ("/healthz", "/readyz")


class AnonymousLimits:
    """The token buckets of addresses for requests without a good key, and the answers that are held back.

    Args:
        requests_per_s: of each address.
    """

    def __init__(self, requests_per_s: int) -> None:
        self._buckets = TokenBuckets(requests_per_s)
        self._held_count = 0

    def limit_of(self, scope: Scope, *, cost: float = 0.0, is_probe: bool = False) -> Unavailable | None:
        """Charge the address of a request; return the `rate_limited` that answers it once the bucket is empty.

        Args:
            scope: of the request.
            cost: in requests; 0 charges nothing.
            is_probe: whether to look into the bucket for probes.
        """
        now, address = time.monotonic(), address_of(scope)
        name = (address, is_probe)
        if wait_s := self._buckets.wait_s(name, 1, now):
            limit = f"{self._buckets.rate_per_s:,} requests/s without a good key (EMBEDSINK_RATE_STRANGERS_PER_S)"
            detail = f"address {address}: more than {limit}. Send a key, or wait."
            return Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=int(wait_s) + 1)
        self._buckets.take_debt(name, cost, now)
        return None

    def hold_back(self, scope: Scope, answer: Callable[[], None]) -> None:
        """Call `answer` in a second, and behind those that wait already: no more answers a second than an address has.

        The connection may give way to others meanwhile. When its client leaves, `answer` is called at once: no more
        answers are held back than there are connections.
        """

        def release() -> None:
            self._held_count -= 1
            answer()

        self._held_count += 1
        delay_s = HOLD_BACK_S + self._held_count / self._buckets.rate_per_s
        hold_back = scope["state"].get("hold_back") or asyncio.get_running_loop().call_later
        hold_back(delay_s, release)


class AnonymousLimitMiddleware:
    """ASGI middleware: hold requests without a good key back once their address has sent too many.

    `POST /api/v1/events` is counted by `Events`, since its key may be in the body.
    """

    def __init__(self, app: ASGIApp, *, strangers: AnonymousLimits) -> None:
        self._app = app
        self._strangers = strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with `rate_limited`."""
        if scope["type"] == "http" and not (scope["path"] == INGEST_PATH and scope["method"] == "POST"):
            is_probe = scope["path"] in _PROBES
            if limited := self._limit_of(scope, is_probe=is_probe):
                held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._strangers.hold_back(scope, lambda: None if held.done() else held.set_result(None))
                await held
                if not is_probe:
                    await problem_of(Request(scope), limited)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _limit_of(self, scope: Scope, *, is_probe: bool) -> Unavailable | None:
        if has_good_key(scope):
            return None
        return self._strangers.limit_of(scope, cost=cost_of(scope), is_probe=is_probe)


def has_good_key(scope: Scope) -> bool:
    """Whether a live key is in the header, or a login in the cookie.

    An ingest key is public, and good for ingest alone.
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


def cost_of(scope: Scope) -> float:
    """What a request costs its address, in requests."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return 1 + int(value[:9]) / BODY_BYTES
    return 1.0
