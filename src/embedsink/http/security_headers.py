"""Response headers for caches and for the security policy of pages."""

from collections.abc import Mapping

# Responses for one reader: never stored, or revalidated each time.
NO_STORE = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}
NO_CACHE = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
# The directives of a page with scripts of this server.
SCRIPTED_PAGE = dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'")
# `default-src` does not include `base-uri`, `form-action` and `frame-ancestors`.
_FORBID_ALL = dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")


def policy_headers(allowed: Mapping[str, str], *, referrer: str) -> dict[str, str]:
    """Return the security headers of a page. They forbid everything that `allowed` does not contain.

    Args:
        allowed: the directives of the Content-Security-Policy. Without any, a page runs no scripts, loads nothing,
            sends no forms, and can't be framed.
        referrer: the value of `Referrer-Policy`.
    """
    directives = {**_FORBID_ALL, **allowed}
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in directives.items()),
        "Referrer-Policy": referrer,
        "X-Content-Type-Options": "nosniff",
    }
