"""Range requests for one range of bytes (RFC 9110, sections 13.1.5 and 14)."""

import re

from starlette.requests import Request

# Accepts any number that fits into a header, even far beyond the end of a file.
_RANGE = re.compile(r"bytes=([0-9]{0,999})-([0-9]{0,999})", re.IGNORECASE)


class Unsatisfiable(Exception):
    """The range begins after the end of the file."""


def is_range_requested(request: Request, *, etag: str, size: int) -> bool:
    """Return whether to answer with a part of the file instead of the whole file.

    A server may ignore a header that is not a single range of bytes (section 14.2). It must ignore a range of another
    version of the file. A date in `If-Range` never matches, because a file may be replaced twice in a second.

    Args:
        request: the request with `Range` and `If-Range`.
        etag: the strong entity tag of the file.
        size: the size of the file in bytes.

    Raises:
        Unsatisfiable: the range begins after the end of the file.
    """
    requested, versions = ", ".join(request.headers.getlist("range")), request.headers.getlist("if-range")
    match = _RANGE.fullmatch(requested) if request.method == "GET" and set(versions) <= {etag} else None
    if not match or not any(match.groups()):
        return False
    first, last = (int(number) if number else None for number in match.groups())
    if first is not None and last is not None and last < first:
        return False
    if (not last) if first is None else first >= size:
        raise Unsatisfiable
    return True
