"""Files that are the same for all clients, sent with an entity tag and optionally compressed."""

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from embedsink.http.etag import is_not_modified

# A file with a version in its name never changes.
IMMUTABLE = "public, max-age=31536000, immutable"
# Revalidated each time, so that a page and its files always have the same version.
REVALIDATED = "no-cache"
# In `Accept-Encoding`: gzip, unless its weight is zero (RFC 9110, section 12.5.3).
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:[\s,]|$))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TaggedFile:
    """A file in memory, with its entity tag.

    Args:
        media_type: the media type.
        tag: the entity tag; weak if the file is also sent compressed (RFC 9110, section 8.8.1).
        content: the content; empty if only `compressed` is stored.
        compressed: the content compressed by gzip; None if it is never sent compressed.
    """

    media_type: str
    tag: str
    content: bytes = field(default=b"", repr=False)
    compressed: bytes | None = field(default=None, repr=False)

    async def answer(self, request: Request, headers: Mapping[str, str]) -> Response:
        """Return the file with these headers; 304 if the client already has it."""
        all_headers = {"ETag": self.tag, "X-Content-Type-Options": "nosniff", **headers}
        if self.compressed is not None:
            all_headers["Vary"] = "Accept-Encoding"
        if is_not_modified(request, self.tag):
            return Response(status_code=304, headers=all_headers)
        if self.compressed is None:
            content = self.content
        elif _GZIP.search(request.headers.get("accept-encoding", "")):
            all_headers["Content-Encoding"] = "gzip"
            content = self.compressed
        else:
            content = self.content or await run_in_threadpool(gzip.decompress, self.compressed)
        return Response(content, headers=all_headers, media_type=self.media_type)
