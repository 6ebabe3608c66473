"""Whether a reader has the answer already: weak entity tags and 304 (RFC 9110, sections 8.8.3 and 13.1.2)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2s
from typing import Self

from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.key import Key
from embedsink.engine import Engine


@dataclass(frozen=True, slots=True)
class EtagCheck:
    """Of one answer: its tag, and whether the reader's is the same."""

    tag: str
    is_known: bool

    @classmethod
    def of(cls, request: Request, key: Key, *, is_timed: bool) -> Self:
        """Look before anything is read: what is loaded meanwhile must get another tag.

        The tag is of the address with its parameters, the key's deployments, and the last load of these. Where the
        answer also depends on the clock (`is_timed`) it lasts for the minute, and that of a key with a scope for a day
        at most (docs/decisions/0018).
        """
        engine: Engine = request.state.engine
        lasting = "%Y-%m-%dT%H:%M" if is_timed else "" if key.deployments is None else "%Y-%m-%d"
        moment = datetime.now(UTC).strftime(lasting)
        parts = (engine.store.revisions.of(key.deployments), *representation_key(request, key), moment)
        tag = f'W/"{blake2s(repr(parts).encode(), digest_size=12).hexdigest()}"'
        return cls(tag, is_known(request, tag))

    def headers(self) -> dict[str, str]:
        """What says so to the reader."""
        return {"ETag": self.tag}

    def not_modified(self, headers: dict[str, str]) -> Response:
        """The 304."""
        return Response(status_code=304, headers=headers | self.headers())


def representation_key(request: Request, key: Key) -> tuple[str, ...]:
    """What is asked: the address with its parameters, and the key's deployments."""
    deployments = None if key.deployments is None else sorted(key.deployments)
    return request.url.path, repr(sorted(request.query_params.multi_items())), repr(deployments)


def content_etag(content: bytes) -> str:
    """The tag of what is the same for everybody."""
    return f'"{blake2s(content, digest_size=12).hexdigest()}"'


def is_known(request: Request, tag: str) -> bool:
    """Whether the reader has the answer with this tag."""
    # Weak comparison: whether a proxy took the mark off makes no difference. A tag has quotes around it and none in it,
    # so a search in the line finds it; splitting a long list of tags would take milliseconds.
    opaque = tag.removeprefix("W/")
    return any(line.strip() == "*" or opaque in line for line in request.headers.getlist("if-none-match"))
