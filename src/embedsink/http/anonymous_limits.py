"""The rate limit of each address for requests without a valid key. Responses beyond the limit are delayed."""

import asyncio
import time
from collections.abc import Callable
from enum import Enum, auto

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from embedsink.auth.credentials import Credentials
from embedsink.auth.keys import KeyKind
from embedsink.errors import Refused, Unavailable
from embedsink.http.client_address import client_address
from embedsink.http.cors import INGEST_PATH
from embedsink.http.problems import problem_response
from embedsink.http.rate_limiter import TokenBuckets
from embedsink.http.session_cookie import read_cookie
from embedsink.reasons import Reason

# A connection gets at most one delayed response a second.
RESPONSE_DELAY_S = 1.0
# A body of this size costs as much as one more request.
BODY_BYTES_PER_REQUEST = 131_072
# Orchestrators and load balancers never get a 429 here, only a delay. These paths have separate buckets.
_PROBES = ("/healthz", "/readyz")


class Bucket(Enum):
    """The requests that an address may send at the rate for requests without a valid key."""

    REQUESTS = auto()
    PROBES = auto()
    LOGINS = auto()  # Each exchange of a code at the identity provider costs as much as many requests.


class AnonymousLimits:
    """Token buckets by address for requests without a valid key, and the number of delayed responses.

    Args:
        requests_per_s: the rate of each address.
    """

    def __init__(self, requests_per_s: int) -> None:
        self._buckets = TokenBuckets(requests_per_s)
        self._delayed_count = 0

    def charge(self, scope: Scope, *, cost: float, bucket: Bucket = Bucket.REQUESTS) -> Unavailable | None:
        """Charge a request to the client's address. Beyond the rate, charge nothing and return the error; else None.

        Args:
            scope: the ASGI scope of the request.
            cost: the cost in requests; 0 only checks the rate.
            bucket: the bucket of the address.
        """
        now = time.monotonic()
        address = client_address(scope)
        bucket_name = (address, bucket)
        # Require only one token: a cost above the available tokens leaves a debt.
        wait_s = self._buckets.wait_s(bucket_name, 1, now)
        if wait_s > 0:
            limit = f"{self._buckets.rate_per_s:,} requests/s without a valid key (EMBEDSINK_RATE_ANONYMOUS_PER_S)"
            detail = f"address {address}: sends more than {limit}. Send a key, or wait."
            return Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=int(wait_s) + 1)  # rounded up
        self._buckets.charge(bucket_name, cost, now)
        return None

    def delay_response(self, scope: Scope, respond: Callable[[], None]) -> None:
        """Call `respond` after a second, plus a wait in the queue of all delayed responses.

        The queue empties at the rate of one address, so that a flood from many addresses gets no more responses than a
        flood from one. During the delay, the server may close the connection to make room for other connections. If the
        client disconnects, `respond` is called at once, so a connection has at most one entry in the queue.
        """

        def leave_queue() -> None:
            self._delayed_count -= 1
            respond()

        self._delayed_count += 1
        delay_s = RESPONSE_DELAY_S + self._delayed_count / self._buckets.rate_per_s
        call_later = scope["state"].get("delay_response")
        if call_later is None:  # Only this server's protocol provides the function.
            call_later = asyncio.get_running_loop().call_later
        call_later(delay_s, leave_queue)


class AnonymousLimitMiddleware:
    """ASGI middleware that limits the rate of requests without a valid key.

    The ingest endpoint limits `POST /api/v1/events` itself, because its key may be in the body.
    """

    def __init__(self, app: ASGIApp, *, limits: AnonymousLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request with a valid key, a request within the rate, and a POST of events. Delay other requests.

        After the delay, answer 429. But pass on a probe (a health check): after a 429, a load balancer would remove the
        server.
        """
        if scope["type"] != "http" or _is_delivery(scope) or await has_valid_key(scope):
            await self._app(scope, receive, send)
            return
        is_probe = scope["path"] in _PROBES
        rate_error = self._limits.charge(
            scope, cost=request_cost(scope), bucket=Bucket.PROBES if is_probe else Bucket.REQUESTS
        )
        if rate_error is not None:
            await self._delay(scope)
        if rate_error is None or is_probe:
            await self._app(scope, receive, send)
        else:
            response = problem_response(Request(scope), rate_error)
            await response(scope, receive, send)

    async def _delay(self, scope: Scope) -> None:
        """Wait as long as a response to this request is delayed."""
        delay_ended = asyncio.Event()
        self._limits.delay_response(scope, delay_ended.set)
        await delay_ended.wait()


def _is_delivery(scope: Scope) -> bool:
    """Return whether this request sends events. The ingest endpoint limits the rate of such requests itself."""
    return (scope["method"], scope["path"]) == ("POST", INGEST_PATH)


async def has_valid_key(scope: Scope) -> bool:
    """Return whether the `Authorization` header contains a valid token, or a cookie belongs to a session.

    A token that permits only ingest doesn't count, because ingest keys are public. This waits a few seconds if the
    signing keys of an access token's issuer are being fetched.
    """
    credentials: Credentials = scope["state"]["credentials"]
    for name, value in scope["headers"]:
        if name == b"authorization":
            _, _, token = value.decode("latin-1").partition(" ")
            try:
                key = await credentials.find_when_ready(token.strip())
            except (Refused, Unavailable):
                return False
            return key is not None and bool(key.kinds - {KeyKind.INGEST})
        if name == b"cookie":
            session_token = read_cookie(Request(scope))
            if session_token is not None and credentials.sessions.has(session_token):
                return True
    return False


def request_cost(scope: Scope) -> float:
    """Return the cost of a request, in requests: 1, plus a part that grows with the declared size of the body."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return 1 + int(value) / BODY_BYTES_PER_REQUEST
    return 1.0
