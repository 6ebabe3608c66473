"""What answers tell browsers and proxies: how long they may be kept, and what a page may do."""

from collections.abc import Mapping

# Of what is one reader's: kept by nobody, or asked about each time it is shown.
NO_STORE = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}
NO_CACHE = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
# A page that draws itself by scripts of this server.
SCRIPTED_PAGE = dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'")
_NOTHING = ("base-uri", "form-action", "frame-ancestors")


def policy_headers(allowed: Mapping[str, str], *, referrer: str) -> dict[str, str]:
    """The headers of a page that may do what is allowed, and else nothing.

    Args:
        allowed: directives of its Content-Security-Policy. Without any it runs no script, shows nothing from elsewhere,
            sends no form, and stands in nobody's frame.
        referrer: what of its address it tells where it leads (Referrer Policy).
    """
    rules = {"default-src": "'none'", **allowed, **{name: "'none'" for name in _NOTHING if name not in allowed}}
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in rules.items()),
        "Referrer-Policy": referrer,
        "X-Content-Type-Options": "nosniff",
    }
