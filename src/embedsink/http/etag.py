"""Weak entity tags and 304 responses (RFC 9110, sections 8.8.3 and 13.1.2)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2s
from typing import Self

from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.keys import Key
from embedsink.engine import Engine


@dataclass(frozen=True, slots=True)
class EtagCheck:
    """The entity tag of a response, and whether the client already has that response.

    A key that is limited to tenants gets no tag (`is_hidden`), because loads of other tenants change it.
    """

    tag: str
    is_not_modified: bool
    is_hidden: bool = False

    @classmethod
    def of(cls, request: Request, key: Key, *, depends_on_clock: bool, depends_on_directory: bool = False) -> Self:
        """Return the check for a request. Call this before the query: rows that are loaded later must change the tag.

        The tag depends on the URL, the key's scope, and the last load of the key's deployments. The tag also changes:

        - when the directory changes, if the response depends on the directory;
        - every minute, if the response depends on the clock;
        - every day, if the key is limited to deployments: changes to old rows of a session longer than
          `EMBEDSINK_DEDUP_DAYS` are not recorded as a load of the deployment (docs/decisions/0018).
        """
        engine: Engine = request.state.engine
        now = datetime.now(UTC)
        if depends_on_clock:
            time_part = now.strftime("%Y-%m-%dT%H:%M")
        elif key.scope.deployments is not None:
            time_part = now.strftime("%Y-%m-%d")
        else:
            time_part = ""
        revisions = engine.store.revisions
        directory_part = revisions.of_directory() if depends_on_directory else ""
        parts = (
            revisions.of(key.scope.deployments),
            *representation_key(request, key),
            time_part,
            directory_part,
        )
        tag = f'W/"{blake2s(repr(parts).encode(), digest_size=12).hexdigest()}"'
        if key.scope.tenants is not None:
            return cls(tag, is_not_modified=False, is_hidden=True)
        return cls(tag, is_not_modified(request, tag))

    def headers(self) -> dict[str, str]:
        """Return the `ETag` header, unless the tag is hidden."""
        return {} if self.is_hidden else {"ETag": self.tag}

    def not_modified_response(self, headers: dict[str, str]) -> Response:
        """Return the 304 response."""
        return Response(status_code=304, headers=headers | self.headers())


def representation_key(request: Request, key: Key) -> tuple[str, ...]:
    """Return the path, the query and the key's scope, which identify a response until the next load."""
    return request.url.path, repr(sorted(request.query_params.multi_items())), repr(key.scope.variables())


def content_etag(content: bytes) -> str:
    """Return a strong tag that depends on the content only, for responses that are the same for all clients."""
    return f'"{blake2s(content, digest_size=12).hexdigest()}"'


def is_not_modified(request: Request, tag: str) -> bool:
    """Return whether `If-None-Match` contains this tag or `*`, so that the client already has the response."""
    # Compare without the `W/`, which proxies may remove. The opaque part begins and ends with a quote, so a search in
    # the header value finds whole tags only. Splitting a long list of tags would take milliseconds.
    opaque_tag = tag.removeprefix("W/")
    values = request.headers.getlist("if-none-match")
    return any(value.strip() == "*" or opaque_tag in value for value in values)
