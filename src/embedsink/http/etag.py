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
    """The tag of a response, and whether the client already has that response."""

    tag: str
    is_known: bool

    @classmethod
    def of(cls, request: Request, key: Key, *, is_timed: bool) -> Self:
        """Return the check for a request. Call it before the query: rows loaded later must change the tag.

        The tag depends on the URL, the key's deployments, and the last load of these deployments. If the response also
        depends on the clock (`is_timed`), the tag is valid for one minute. The tag of a key with a scope is valid for
        one day at most (docs/decisions/0018).
        """
        engine: Engine = request.state.engine
        validity = "%Y-%m-%dT%H:%M" if is_timed else "" if key.deployments is None else "%Y-%m-%d"
        moment = datetime.now(UTC).strftime(validity)
        parts = (engine.store.revisions.of(key.deployments), *representation_key(request, key), moment)
        tag = f'W/"{blake2s(repr(parts).encode(), digest_size=12).hexdigest()}"'
        return cls(tag, is_known(request, tag))

    def headers(self) -> dict[str, str]:
        """Return the `ETag` header."""
        return {"ETag": self.tag}

    def not_modified(self, headers: dict[str, str]) -> Response:
        """Return the 304 response."""
        return Response(status_code=304, headers=headers | self.headers())


def representation_key(request: Request, key: Key) -> tuple[str, ...]:
    """Return the URL with its parameters, and the key's deployments: what identifies a response until the next load."""
    deployments = None if key.deployments is None else sorted(key.deployments)
    return request.url.path, repr(sorted(request.query_params.multi_items())), repr(deployments)


def content_etag(content: bytes) -> str:
    """Return the tag of a response that is the same for all clients."""
    return f'"{blake2s(content, digest_size=12).hexdigest()}"'


def is_known(request: Request, tag: str) -> bool:
    """Return whether the client already has the response with this tag."""
    # The comparison is weak, because proxies may remove the `W/`. A tag contains its quotes and no other quotes, so a
    # search in the line finds it. Splitting a long list of tags would take milliseconds.
    opaque = tag.removeprefix("W/")
    return any(line.strip() == "*" or opaque in line for line in request.headers.getlist("if-none-match"))
