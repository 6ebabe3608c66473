"""The cookie with the token of a login session (RFC 6265)."""

from starlette.requests import Request

from embedsink.http.transport import is_https

COOKIE = "embedsink_login"
# Browsers accept a cookie with this prefix over HTTPS only, and for this host only (RFC 6265bis, section 4.1.3).
_HTTPS_PREFIX = "__Host-"


def read_cookie(request: Request, name: str = COOKIE) -> str | None:
    """Return the value of a cookie; None without it."""
    # `request.cookies` parses all cookies, and takes 0.2 s for a quoted cookie of 16 KiB.
    # This search finds the name after a semicolon, and takes the text until the next semicolon.
    cookies = ";" + ";".join(request.headers.getlist("cookie")).replace("; ", ";")
    _, found_name, rest = cookies.partition(f";{_full_name(request, name)}=")
    return rest.partition(";")[0].strip() if found_name else None


def cookie_header(request: Request, value: str, max_age_s: int, *, name: str = COOKIE, is_framed: bool = False) -> str:
    """Return the value of `Set-Cookie` that sets a cookie. A `max_age_s` of 0 deletes the cookie.

    Args:
        request: the request to answer.
        value: the value.
        max_age_s: the duration in seconds.
        name: the name, without prefix and port.
        is_framed: whether pages of other sites may frame this server's pages, which then need a third-party cookie.
    """
    attributes = [f"Max-Age={max_age_s}", "Path=/", "HttpOnly"]
    if is_https(request):
        attributes.append("Secure")
    if is_https(request) and is_framed:
        # In a frame of another site this is a third-party cookie: browsers store it separately for each site.
        attributes += ["SameSite=None", "Partitioned"]
    else:
        attributes.append("SameSite=Lax")
    return "; ".join([f"{_full_name(request, name)}={value}", *attributes])


def _full_name(request: Request, name: str) -> str:
    """Return the name of a cookie with the port, if `Host` has one.

    Browsers share cookies between the ports of a host (RFC 6265, section 8.5).
    """
    full_name = f"{_HTTPS_PREFIX}{name}" if is_https(request) else name
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{full_name}_{port}" if port.isascii() and port.isdigit() else full_name
