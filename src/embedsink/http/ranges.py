"""Which part of a file is asked for: one range of bytes (RFC 9110, sections 13.1.5 and 14)."""

import re

from starlette.requests import Request

# So long that a number is read, however far beyond the end it lies.
_RANGE = re.compile(r"bytes=([0-9]{0,999})-([0-9]{0,999})", re.IGNORECASE)


class Unsatisfiable(Exception):
    """The range lies beyond the end."""


def is_range_requested(request: Request, *, tag: str, size: int) -> bool:
    """Whether a part of the file is asked for, and not all of it.

    What is no single range of bytes, or belongs to another version of the file, asks for all of it: a server may ignore
    the one (section 14.2), and has to ignore the other. A date in `If-Range` names no version, because a file may be
    replaced twice in a second.

    Args:
        request: with `Range` and `If-Range`.
        tag: the file's strong entity tag.
        size: its bytes.

    Raises:
        Unsatisfiable: it has no such part.
    """
    asked, versions = ", ".join(request.headers.getlist("range")), request.headers.getlist("if-range")
    found = _RANGE.fullmatch(asked) if request.method == "GET" and set(versions) <= {tag} else None
    if not found or not any(found.groups()):
        return False
    first, last = (int(number) if number else None for number in found.groups())
    if first is not None and last is not None and last < first:
        return False
    if (not last) if first is None else first >= size:
        raise Unsatisfiable
    return True
