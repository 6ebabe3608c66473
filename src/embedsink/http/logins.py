"""Logins of people: a cookie that stands for a key, signed, expiring, and worth no more than the key.

The secret is made at the start and kept in memory alone: whoever steals the data folder can sign nothing, and a restart
ends all logins (docs/decisions/0008).
"""

import secrets
import time
from collections import OrderedDict

from itsdangerous import BadSignature, TimestampSigner
from starlette.requests import Request

from embedsink.errors import Unavailable
from embedsink.http.access import is_https
from embedsink.keys import Key, KeyRing
from embedsink.reasons import Reason

COOKIE = "embedsink_login"
# A browser takes a cookie of this prefix over HTTPS alone, for this host alone (RFC 6265bis, section 4.1.3).
COOKIE_OVER_HTTPS = f"__Host-{COOKIE}"
TRIES_AT_ONCE = 20
TRIES_PER_S = 0.5
ADDRESSES_MAX = 1_024


class Logins:
    """Cookies for keys, and keys for cookies.

    Args:
        timeout_s: how long a login lasts.
        is_framed: whether pages of other sites may frame ours; their cookie has to travel there.
    """

    def __init__(self, timeout_s: int, *, is_framed: bool = False) -> None:
        self._signer = TimestampSigner(secrets.token_bytes(32))
        self._timeout_s = timeout_s
        self._is_framed = is_framed
        self._tries: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def cookie(self, key: Key, request: Request) -> str:
        """The `Set-Cookie` that logs the key's holder in."""
        value = self._signer.sign(key.key_id).decode()
        return self._told(request, value, self._timeout_s)

    def no_cookie(self, request: Request) -> str:
        """The `Set-Cookie` that logs out."""
        return self._told(request, "", 0)

    def key_of(self, request: Request, keys: KeyRing) -> Key | None:
        """The live key that a request's cookie stands for."""
        value = request.cookies.get(COOKIE_OVER_HTTPS if is_https(request) else COOKIE)
        if not value:
            return None
        try:
            key_id = self._signer.unsign(value, max_age=self._timeout_s).decode()
        except BadSignature:  # an expired one is one
            return None
        key = keys.by_id(key_id)
        return key if key is not None and keys.is_live(key) else None

    def check_tries(self, address: str) -> None:
        """Whether an address may try.

        Raises:
            Unavailable: `rate_limited`, after too many wrong keys.
        """
        if self._level(address) < 1:
            detail = f"login: more than {TRIES_AT_ONCE} wrong keys from this address. Wait."
            raise Unavailable(Reason.RATE_LIMITED, detail, retry_after_s=int(1 / TRIES_PER_S))

    def count_wrong(self, address: str) -> None:
        """An address has tried a wrong key."""
        level = self._level(address)
        self._tries.pop(address, None)
        self._tries[address] = (level - 1, time.monotonic())
        if len(self._tries) > ADDRESSES_MAX:
            self._tries.popitem(last=False)

    def _level(self, address: str) -> float:
        now = time.monotonic()
        level, at = self._tries.get(address, (float(TRIES_AT_ONCE), now))
        return min(float(TRIES_AT_ONCE), level + (now - at) * TRIES_PER_S)

    def _told(self, request: Request, value: str, max_age_s: int) -> str:
        parts = [f"Max-Age={max_age_s}", "Path=/", "HttpOnly"]
        if not is_https(request):
            return "; ".join([f"{COOKIE}={value}", *parts, "SameSite=Lax"])
        # In a frame of another site the cookie is a third party's: it goes only where it was set.
        site = ("SameSite=None", "Partitioned") if self._is_framed else ("SameSite=Lax",)
        return "; ".join([f"{COOKIE_OVER_HTTPS}={value}", *parts, "Secure", *site])
