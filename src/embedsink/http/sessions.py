"""Browser sessions: a signed cookie that refers to a key. It expires, and grants no more than the key.

The signing secret is created at start and stored in memory only. A stolen data folder can't sign cookies, and a restart
ends all sessions (docs/decisions/0008).
"""

import secrets

from itsdangerous import BadSignature, TimestampSigner
from starlette.requests import Request

from embedsink.auth.key_cache import KeyCache
from embedsink.auth.keys import Key
from embedsink.http.transport import is_https

COOKIE = "embedsink_login"
# Browsers accept a cookie with this prefix over HTTPS only, and for this host only (RFC 6265bis, section 4.1.3).
COOKIE_OVER_HTTPS = f"__Host-{COOKIE}"


class Sessions:
    """Creates and reads session cookies.

    Args:
        timeout_s: the duration of a session.
        is_framed: whether pages of other sites may frame this server's pages, which then need a third-party cookie.
    """

    def __init__(self, timeout_s: int, *, is_framed: bool = False) -> None:
        self._signer = TimestampSigner(secrets.token_bytes(32))
        self._timeout_s = timeout_s
        self._is_framed = is_framed

    def login_cookie(self, key: Key, request: Request) -> str:
        """Return the `Set-Cookie` value of a new session."""
        value = self._signer.sign(key.key_id).decode()
        return self._cookie_header(request, value, self._timeout_s)

    def logout_cookie(self, request: Request) -> str:
        """Return the `Set-Cookie` value that ends a session."""
        return self._cookie_header(request, "", 0)

    def key_of(self, request: Request, keys: KeyCache) -> Key | None:
        """Return the live key of a request's session; None without a valid session cookie or without a live key."""
        cookie_value = _cookie_value(request)
        if not cookie_value:
            return None
        try:
            key_id = self._signer.unsign(cookie_value, max_age=self._timeout_s).decode()
        except BadSignature:  # Includes expired signatures.
            return None
        key = keys.by_id(key_id)
        return key if key is not None and keys.is_live(key) else None

    def _cookie_header(self, request: Request, value: str, max_age_s: int) -> str:
        """Return the `Set-Cookie` value that sets the session cookie. A `max_age_s` of 0 deletes the cookie."""
        attributes = [f"Max-Age={max_age_s}", "Path=/", "HttpOnly"]
        if is_https(request):
            attributes.append("Secure")
        if is_https(request) and self._is_framed:
            # In a frame of another site this is a third-party cookie: browsers store it separately for each site.
            attributes += ["SameSite=None", "Partitioned"]
        else:
            attributes.append("SameSite=Lax")
        return "; ".join([f"{_cookie_name(request)}={value}", *attributes])


def _cookie_value(request: Request) -> str | None:
    """Return the value of the session cookie; None without the cookie."""
    # `request.cookies` parses all cookies, and takes 0.2 s for a quoted cookie of 16 KiB.
    # This search finds the name after a semicolon, and takes the text until the next semicolon.
    cookies = ";" + ";".join(request.headers.getlist("cookie")).replace("; ", ";")
    _, found_name, rest = cookies.partition(f";{_cookie_name(request)}=")
    return rest.partition(";")[0].strip() if found_name else None


def _cookie_name(request: Request) -> str:
    """Return the cookie name, with the port if `Host` has one.

    Browsers share cookies between the ports of a host (RFC 6265, section 8.5).
    """
    name = COOKIE_OVER_HTTPS if is_https(request) else COOKIE
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{name}_{port}" if port.isascii() and port.isdigit() else name
