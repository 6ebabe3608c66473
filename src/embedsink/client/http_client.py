"""A server over HTTP, asked with a key. Standard library only, so that the command line stays quick."""

import json
import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException, IncompleteRead
from typing import Any, NoReturn, TypeVar
from urllib.parse import SplitResult, urlencode, urlsplit
from urllib.parse import quote as quoted

from embedsink.auth.tokens import looks_like_key
from embedsink.errors import EmbedsinkError, Misconfigured, Refused, Unavailable, preview
from embedsink.net import is_loopback
from embedsink.reasons import Reason

TIMEOUT_S = 60.0
RETRY_AFTER_MAX_S = 60
_PROBLEM_BYTES_MAX = 1_048_576
_CHUNK_BYTES = 65_536
# What proxies, portals and other servers say; and what has no type at all. Nothing below /api/v1 is either.
_FOREIGN_TYPES = ("text/html", "text/plain")
_PAUSE_S_MIN = 0.5

T = TypeVar("T")


class Unreachable(EmbedsinkError):
    """No answer came, so nobody knows what became of the request."""


class NotEmbedsink(EmbedsinkError):
    """Something answered that all is well, and not as embedsink does: so nothing is known to be done."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url}: answered 200, and not as embedsink does. See whether a server of it is there, and whether a proxy "
            "or a login page stands before it."
        )


class NothingAccepted(Refused):
    """All envelopes of a delivery were quarantined; `answer` lists them as a 202 does (docs/wire.md)."""

    def __init__(self, detail: str, answer: dict[str, Any]) -> None:
        super().__init__(Reason.NOTHING_ACCEPTED, detail)
        self.answer = answer


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to whoever it names."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class HttpClient:
    """One server and the key for it.

    Args:
        url: where it is, such as `https://engine.example.com`; over plain HTTP only on this machine, and there never
            through a proxy.
        key: a read or an admin key; for events an ingest key, for dbt syncs a sync key.

    Raises:
        Misconfigured: the URL or the key can't be one.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self.url = _checked_url(url)
        if not key:
            raise Misconfigured("key: is missing. Set EMBEDSINK_KEY, or give it beside the URL: --key, or key=.")
        if not looks_like_key(key):
            raise Misconfigured("key: is not an embedsink key, or lost a character. Copy it again.")
        self._authorization = f"Bearer {key}"
        # A proxy named in the environment would get the key in the clear, and its own loopback is another machine's.
        proxies = [urllib.request.ProxyHandler({})] if is_loopback(urlsplit(self.url).hostname or "") else []
        self._opener = urllib.request.build_opener(_NoRedirects, *proxies)

    def get(self, *path: str, query: Mapping[str, Any] | None = None) -> bytes:
        """The bytes at a path below `/api/v1`; None in the query is left out, and a list is repeated.

        Raises:
            Refused, Unavailable: what the server said, or that no address can hold this.
            Unreachable, NotEmbedsink: it said nothing, or is another.
        """
        return b"".join(self.chunks(*path, query=query))

    def get_object(
        self, *path: str, members: tuple[str, ...], query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The same for a JSON object with at least these members. It raises the same."""
        return self._object(self.get(*path, query=query), members)

    def get_rows(
        self, *path: str, members: tuple[str, ...] = (), query: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The same for a JSON array of such objects. It raises the same."""
        rows = self._json(self.get(*path, query=query))
        if not isinstance(rows, list) or not all(_has(row, members) for row in rows):
            raise NotEmbedsink(self.url)
        return rows

    def chunks(self, *path: str, query: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """The same, as it comes in: for what need not fit into memory. It raises the same, also in the middle."""
        yield from self._ask(self._request(path, query=query))

    def post(self, *path: str, members: tuple[str, ...], body: bytes = b"") -> dict[str, Any]:
        """Send JSON to a path below `/api/v1`; the answer, a JSON object with at least these members.

        Raises:
            Refused, Unavailable: what the server said.
            Unreachable, NotEmbedsink: it said nothing, or is another; it may have done what was asked.
        """
        return self._object(b"".join(self._ask(self._request(path, body=body))), members)

    def put(self, *path: str, members: tuple[str, ...] = (), body: bytes) -> bytes:
        """The same with PUT: sending it again after an unknown end is safe. The bytes of the answer.

        Raises:
            Refused, Unavailable: what the server said, or that no address can hold this.
            Unreachable, NotEmbedsink: it said nothing, or is another; it may have done what was asked.
        """
        answer = b"".join(self._ask(self._request(path, body=body, method="PUT")))
        self._object(answer, members)
        return answer

    def delete(self, *path: str, members: tuple[str, ...], query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The same with DELETE, and no body: repeating it is safe. The answer, a JSON object with these members."""
        return self._object(b"".join(self._ask(self._request(path, query=query, method="DELETE"))), members)

    def _object(self, content: bytes, members: tuple[str, ...]) -> dict[str, Any]:
        found = self._json(content)
        if not _has(found, members):
            raise NotEmbedsink(self.url)
        told: dict[str, Any] = found
        return told

    def _json(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise NotEmbedsink(self.url) from None

    def _request(
        self,
        path: tuple[str, ...],
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        method: str | None = None,
    ) -> urllib.request.Request:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            address = "/".join([self.url, "api/v1", *(quoted(part, safe="") for part in path)])
            asked = f"?{urlencode(given, doseq=True)}" if given else ""
        except UnicodeEncodeError as error:
            seen = preview(error.object)
            raise Refused(Reason.BAD_PARAMETER, f"address: {seen} holds a lone surrogate. Remove it.") from None
        request = urllib.request.Request(address + asked, data=body, method=method)  # noqa: S310 (http or https)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        # Unredirected: it is sent to this server and to no other.
        request.add_unredirected_header("Authorization", self._authorization)
        return request

    def _ask(self, request: urllib.request.Request) -> Iterator[bytes]:
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                if response.headers.get_content_type() in _FOREIGN_TYPES:
                    raise NotEmbedsink(self.url)
                while chunk := response.read(_CHUNK_BYTES):
                    yield chunk
                # A part that is read in pieces does not say itself that it is only a part.
                if response.length:
                    raise IncompleteRead(b"", response.length)
        except urllib.error.HTTPError as error:
            with error:
                _raise_problem(error, self.url)
        except (OSError, HTTPException) as error:
            cause = getattr(error, "reason", None) or error
            hint = "Trust its certificate." if isinstance(cause, ssl.SSLError) else "See whether it runs there."
            raise Unreachable(f"{self.url}: does not answer ({cause}). {hint}") from None


def retry(ask: Callable[[], T], *, patience_s: float, pause_s_max: float) -> T:
    """Ask again while a server is away or overloaded: for what counts once, however often it is sent.

    Raises:
        Unavailable, Unreachable: it stayed so for longer than `patience_s`.
    """
    end, pause_s = time.monotonic() + patience_s, _PAUSE_S_MIN
    while True:
        try:
            return ask()
        except (Unavailable, Unreachable) as error:
            wait_s = max(pause_s, error.retry_after_s) if isinstance(error, Unavailable) else pause_s
            if time.monotonic() + wait_s > end:
                raise
        # Jittered, so that many senders don't come back at once.
        time.sleep(wait_s * random.uniform(1.0, 1.5))  # noqa: S311
        pause_s = min(2 * pause_s, pause_s_max)


def _has(value: object, members: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and all(name in value for name in members)


def _checked_url(url: str) -> str:
    parts = _parts_of(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Misconfigured(f"url: {preview(url)} is no address of a server. Write it like https://engine.example.com.")
    if parts.username is not None or parts.password is not None:
        raise Misconfigured("url: has a user or a password in it. Give the key alone.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise Misconfigured(f"url: {preview(url)} would carry the key unencrypted. Use https.")
    return url.rstrip("/")


def _parts_of(url: str) -> SplitResult | None:
    """The parts of what can be sent as an address; None where it can't."""
    try:
        parts = urlsplit(url)
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        return None
    # What `urlsplit` takes out by itself, and what no request line can hold.
    return parts if parts.path.isascii() and not any(character <= " " for character in url) else None


def _raise_problem(error: urllib.error.HTTPError, url: str) -> NoReturn:
    """The server's problem (RFC 9457) as the exception that it was over there."""
    try:
        problem = json.loads(error.read(_PROBLEM_BYTES_MAX))
        reason, detail = Reason[str(problem["reason"]).upper()], str(problem["detail"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        sentence = f"{url}: answered {error.code} {error.reason}. See whether an embedsink server is there."
        if error.code in (429, 502, 503, 504):
            raise Unavailable(Reason.NOT_READY, sentence, retry_after_s=_retry_after_s(error)) from None
        raise EmbedsinkError(sentence) from None
    if error.code in (429, 503):
        raise Unavailable(reason, detail, retry_after_s=_retry_after_s(error)) from None
    if reason is Reason.NOTHING_ACCEPTED:
        raise NothingAccepted(detail, problem) from None
    raise Refused(reason, detail) from None


def _retry_after_s(error: urllib.error.HTTPError) -> int:
    text = error.headers.get("Retry-After", "1")
    return min(int(text), RETRY_AFTER_MAX_S) if text.isdigit() else 1
