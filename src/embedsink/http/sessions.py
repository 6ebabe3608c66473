"""Sessions of people: a cookie that stands for a key, signed, expiring, and worth no more than the key.

The secret is made at the start and kept in memory alone: whoever steals the data folder can sign nothing, and a restart
ends all sessions (docs/decisions/0008).
"""

import secrets

from itsdangerous import BadSignature, TimestampSigner
from starlette.requests import Request

from embedsink.auth.key_cache import KeyCache
from embedsink.auth.keys import Key
from embedsink.http.transport import is_https

COOKIE = "embedsink_login"
# A browser takes a cookie of this prefix over HTTPS alone, for this host alone (RFC 6265bis, section 4.1.3).
COOKIE_OVER_HTTPS = f"__Host-{COOKIE}"


class Sessions:
    """Cookies for keys, and keys for cookies.

    Args:
        timeout_s: how long a login lasts.
        is_framed: whether pages of other sites may frame ours; their cookie has to travel there.
    """

    def __init__(self, timeout_s: int, *, is_framed: bool = False) -> None:
        self._signer = TimestampSigner(secrets.token_bytes(32))
        self._timeout_s = timeout_s
        self._is_framed = is_framed

    def cookie(self, key: Key, request: Request) -> str:
        """The `Set-Cookie` that logs the key's holder in."""
        value = self._signer.sign(key.key_id).decode()
        return self._set_cookie(request, value, self._timeout_s)

    def no_cookie(self, request: Request) -> str:
        """The `Set-Cookie` that logs out."""
        return self._set_cookie(request, "", 0)

    def key_of(self, request: Request, keys: KeyCache) -> Key | None:
        """The live key that a request's cookie stands for."""
        value = _cookie_of(request)
        if not value:
            return None
        try:
            key_id = self._signer.unsign(value, max_age=self._timeout_s).decode()
        except BadSignature:  # an expired one is one
            return None
        key = keys.by_id(key_id)
        return key if key is not None and keys.is_live(key) else None

    def _set_cookie(self, request: Request, value: str, max_age_s: int) -> str:
        parts = [f"Max-Age={max_age_s}", "Path=/", "HttpOnly"]
        cookie = f"{_name_of(request)}={value}"
        if not is_https(request):
            return "; ".join([cookie, *parts, "SameSite=Lax"])
        # In a frame of another site the cookie is a third party's: it goes only where it was set.
        site = ("SameSite=None", "Partitioned") if self._is_framed else ("SameSite=Lax",)
        return "; ".join([cookie, *parts, "Secure", *site])


def _cookie_of(request: Request) -> str | None:
    """The value of the login's cookie; None when there is none."""
    # Not `request.cookies`: it parses all of them, and takes 0.2 s for a quoted one of 16 KiB.
    cookies = ";" + ";".join(request.headers.getlist("cookie")).replace("; ", ";")
    _, found, rest = cookies.partition(f";{_name_of(request)}=")
    return rest.partition(";")[0].strip() if found else None


def _name_of(request: Request) -> str:
    """Cookies know no ports (RFC 6265, section 8.5): two servers on one host would log each other's people out."""
    name = COOKIE_OVER_HTTPS if is_https(request) else COOKIE
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{name}_{port}" if port.isascii() and port.isdigit() else name
