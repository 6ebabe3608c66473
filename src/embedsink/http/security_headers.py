"""Response headers for caches and for the security policy of pages."""

from collections.abc import Mapping

# Responses for one reader: never stored, or revalidated each time.
NO_STORE = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}
NO_CACHE = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
# A page with scripts of this server.
SCRIPTED_PAGE = dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'")
_NOTHING = ("base-uri", "form-action", "frame-ancestors")


def policy_headers(allowed: Mapping[str, str], *, referrer: str) -> dict[str, str]:
    """Return the headers of a page that may do only what its policy allows.

    Args:
        allowed: directives of the Content-Security-Policy. By default a page runs no scripts, loads nothing, sends no
            forms, and can't be framed.
        referrer: the value of `Referrer-Policy`.
    """
    rules = {"default-src": "'none'", **allowed, **{name: "'none'" for name in _NOTHING if name not in allowed}}
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in rules.items()),
        "Referrer-Policy": referrer,
        "X-Content-Type-Options": "nosniff",
    }
