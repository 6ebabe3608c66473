"""Files that are the same for everybody: with a tag, and compressed for those who take it."""

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from embedsink.http.etag import is_known

# What has its version in its name never changes.
IMMUTABLE = "public, max-age=31536000, immutable"
# Asked about each time, so that a page and what it loads are always of the same version.
REVALIDATED = "no-cache"
# Encodings of an `Accept-Encoding` that are looked at. Browsers name four.
ENCODINGS_MAX = 32
_NOT_AT_ALL = re.compile(r"0(?:\.0*)?")


@dataclass(frozen=True, slots=True)
class TaggedFile:
    """A file as it goes out.

    Args:
        media_type: its type.
        tag: its entity tag; a weak one where it also goes out compressed (RFC 9110, section 8.8.1).
        content: empty where it is only kept compressed.
        compressed: by gzip; None where it goes out as it is.
    """

    media_type: str
    tag: str
    content: bytes = field(default=b"", repr=False)
    compressed: bytes | None = field(default=None, repr=False)

    async def answer(self, request: Request, headers: Mapping[str, str]) -> Response:
        """The file with these headers, or 304 where the reader has it."""
        told = {"ETag": self.tag, "X-Content-Type-Options": "nosniff", **headers}
        if self.compressed is not None:
            told["Vary"] = "Accept-Encoding"
        if is_known(request, self.tag):
            return Response(status_code=304, headers=told)
        if self.compressed is not None and _takes_gzip(request):
            return Response(self.compressed, headers=told | {"Content-Encoding": "gzip"}, media_type=self.media_type)
        content = self.content
        if self.compressed is not None and not content:
            content = await run_in_threadpool(gzip.decompress, self.compressed)
        return Response(content, headers=told, media_type=self.media_type)


def _takes_gzip(request: Request) -> bool:
    """Whether an `Accept-Encoding` allows gzip: what it says of gzip comes before what it says of all others (`*`)."""
    takes = {}
    for part in request.headers.get("accept-encoding", "").lower().split(",", ENCODINGS_MAX)[:ENCODINGS_MAX]:
        # One encoding, with how much the reader likes it (RFC 9110, section 12.5.3).
        name, _, weight = (word.strip() for word in part.partition(";"))
        if name and (not weight or weight.startswith("q=")):
            takes[name] = not _NOT_AT_ALL.fullmatch(weight.removeprefix("q="))
    return takes.get("gzip", takes.get("*", False))
