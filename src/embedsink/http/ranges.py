"""Range requests for one range of bytes (RFC 9110, sections 13.1.5 and 14)."""

import re

from starlette.requests import Request

# Accepts numbers of up to 999 digits, far beyond the end of any file. `int` rejects more than 4,300 digits.
_RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,999})-(?P<last>[0-9]{0,999})", re.IGNORECASE)


class Unsatisfiable(Exception):
    """The range contains no byte of the file."""


def is_range_requested(request: Request, *, etag: str, size: int) -> bool:
    """Return whether to send the requested range of the file instead of the whole file.

    A server may ignore a `Range` header that is not a single range of bytes (RFC 9110, section 14.2). A server must
    ignore the header if `If-Range` names another version of the file. A date in `If-Range` never matches, because a
    file may be replaced twice in a second.

    Args:
        request: the request with `Range` and `If-Range`.
        etag: the strong entity tag of the file.
        size: the size of the file in bytes.

    Raises:
        Unsatisfiable: the range contains no byte of the file.
    """
    is_same_version = all(version == etag for version in request.headers.getlist("if-range"))
    match = _RANGE.fullmatch(", ".join(request.headers.getlist("range")))
    if request.method != "GET" or not is_same_version or match is None:
        return False
    first, last = match["first"], match["last"]
    if not first and not last:
        return False  # `bytes=-` is invalid, so it is ignored.
    if not first:
        contains_bytes = int(last) > 0  # `bytes=-5` requests the last five bytes.
    elif last and int(last) < int(first):
        return False  # `bytes=5-2` is invalid too.
    else:
        contains_bytes = int(first) < size
    if not contains_bytes:
        raise Unsatisfiable
    return True
