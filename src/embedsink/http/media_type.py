"""The media type of a request body (RFC 9110, section 8.3.1)."""

from collections.abc import Sequence

from embedsink.errors import Refused, preview
from embedsink.reasons import Reason


def parse_media_type(content_type: str, allowed: Sequence[str]) -> str:
    """Return the media type in a `Content-Type`, in lower case and without parameters.

    Raises:
        Refused: the media type is not allowed, or the charset is not UTF-8 (`media_type`).
    """
    if content_type in allowed:
        return content_type
    media_type, _, parameters = content_type.partition(";")
    media_type = media_type.strip().lower()
    charset = _parse_charset(parameters)
    if media_type not in allowed or charset not in ("", "utf-8", "utf8"):
        choices = f"one of {', '.join(allowed)}" if len(allowed) > 1 else allowed[0]
        raise Refused(Reason.MEDIA_TYPE, f"content-type: {preview(content_type)} is not {choices}, in UTF-8.")
    return media_type


def _parse_charset(parameters: str) -> str:
    """Return the charset in the parameters of a media type, in lower case; empty if no charset is given."""
    compact = parameters.lower().replace(" ", "").replace('"', "")
    return compact.partition("charset=")[2].partition(";")[0]
