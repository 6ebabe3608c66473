"""The HTTP client of a server, for one key. It uses the standard library alone, so that commands start quickly."""

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
from urllib.parse import quote as percent_encode

from embedsink.auth.tokens import looks_like_key
from embedsink.errors import EmbedsinkError, Misconfigured, Refused, Unavailable, preview
from embedsink.net import is_loopback
from embedsink.reasons import Reason

TIMEOUT_S = 60.0
RETRY_AFTER_S_MAX = 60
_PROBLEM_BYTES_MAX = 1_048_576
_CHUNK_BYTES = 65_536
# The media types of proxies and login pages, and of responses without a type. embedsink never sends them below /api/v1.
_FOREIGN_TYPES = ("text/html", "text/plain")
_PAUSE_S_MIN = 0.5

T = TypeVar("T")


class Unreachable(EmbedsinkError):
    """The server did not respond, so the outcome of the request is unknown."""


class NotEmbedsink(EmbedsinkError):
    """The response has status 200 but is not embedsink's, so the outcome of the request is unknown."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url}: answered 200, but not as an embedsink server. Check the URL, and whether a proxy or a login page "
            "answers instead."
        )


class NothingAccepted(Refused):
    """All envelopes of a delivery were quarantined. `response` lists them as that of a 202 does (docs/wire.md)."""

    def __init__(self, detail: str, response: dict[str, Any]) -> None:
        super().__init__(Reason.NOTHING_ACCEPTED, detail)
        self.response = response


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The refusal of redirects: a redirect would send the key to another server."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class HttpClient:
    """A client of one server with one key.

    Args:
        url: such as `https://events.example.com`. Plain HTTP is allowed for this machine only, and then bypasses any
            proxy.
        key: a read or an admin key for reports, an ingest key for events, a sync key for dbt syncs.

    Raises:
        Misconfigured: the URL or the key is malformed.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self.url = _validate_url(url)
        if not key:
            raise Misconfigured("key: is missing. Set EMBEDSINK_KEY, or pass a key.")
        if not looks_like_key(key):
            raise Misconfigured("key: is not an embedsink key, or is incomplete. Copy it again.")
        self._authorization = f"Bearer {key}"
        # A proxy of the environment would read the key, and would resolve the loopback address to itself.
        proxies = [urllib.request.ProxyHandler({})] if is_loopback(urlsplit(self.url).hostname or "") else []
        self._opener = urllib.request.build_opener(_NoRedirects, *proxies)

    def get(self, *path: str, query: Mapping[str, Any] | None = None) -> bytes:
        """Return the response body of a path below `/api/v1`.

        Args:
            path: the segments of the path.
            query: the parameters. None is omitted, and a list repeats its parameter.

        Raises:
            Refused: the request is wrong, or the key does not allow it.
            Unavailable: the server is overloaded, or not ready.
            Unreachable: the server did not respond.
            NotEmbedsink: the response is not an embedsink server's.
        """
        return b"".join(self.chunks(*path, query=query))

    def get_object(
        self, *path: str, members: tuple[str, ...], query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a JSON object that has at least these members. Raises as `get` does."""
        return self._object(self.get(*path, query=query), members)

    def get_rows(
        self, *path: str, members: tuple[str, ...] = (), query: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return a JSON array of objects that have at least these members. Raises as `get` does."""
        rows = self._json(self.get(*path, query=query))
        if not isinstance(rows, list) or not all(_has(row, members) for row in rows):
            raise NotEmbedsink(self.url)
        return rows

    def chunks(self, *path: str, query: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """Yield the response body in chunks, for large downloads. Raises as `get` does, also between two chunks."""
        yield from self._send(self._request(path, query=query))

    def post(self, *path: str, members: tuple[str, ...], body: bytes = b"") -> dict[str, Any]:
        """Post JSON and return the response, an object with at least these members.

        Raises as `get` does. After Unreachable or NotEmbedsink the server may have processed the request.
        """
        return self._object(b"".join(self._send(self._request(path, body=body))), members)

    def put(self, *path: str, members: tuple[str, ...] = (), body: bytes) -> bytes:
        """Put JSON and return the response body, an object with at least these members. It is safe to repeat.

        Raises as `get` does. After Unreachable or NotEmbedsink the server may have processed the request.
        """
        content = b"".join(self._send(self._request(path, body=body, method="PUT")))
        self._object(content, members)
        return content

    def delete(self, *path: str, members: tuple[str, ...], query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Delete and return the response, an object with at least these members. It is safe to repeat.

        Raises as `get` does. After Unreachable or NotEmbedsink the server may have processed the request.
        """
        return self._object(b"".join(self._send(self._request(path, query=query, method="DELETE"))), members)

    def _object(self, content: bytes, members: tuple[str, ...]) -> dict[str, Any]:
        value = self._json(content)
        if not _has(value, members):
            raise NotEmbedsink(self.url)
        object_: dict[str, Any] = value
        return object_

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
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            url = "/".join([self.url, "api/v1", *(percent_encode(part, safe="") for part in path)])
            query_string = f"?{urlencode(params, doseq=True)}" if params else ""
        except UnicodeEncodeError as error:
            message = f"url: {preview(error.object)} contains a lone surrogate. Remove it."
            raise Refused(Reason.BAD_PARAMETER, message) from None
        request = urllib.request.Request(url + query_string, data=body, method=method)  # noqa: S310 (http or https)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        # The key is sent to this server only, never to the target of a redirect.
        request.add_unredirected_header("Authorization", self._authorization)
        return request

    def _send(self, request: urllib.request.Request) -> Iterator[bytes]:
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                if response.headers.get_content_type() in _FOREIGN_TYPES:
                    raise NotEmbedsink(self.url)
                while chunk := response.read(_CHUNK_BYTES):
                    yield chunk
                # Reading in chunks does not detect a body that ends too early.
                if response.length:
                    raise IncompleteRead(b"", response.length)
        except urllib.error.HTTPError as error:
            with error:
                _raise_problem(error, self.url)
        except (OSError, HTTPException) as error:
            cause = getattr(error, "reason", None) or error
            advice = "Trust its certificate." if isinstance(cause, ssl.SSLError) else "Check that the server runs."
            raise Unreachable(f"{self.url}: does not answer ({cause}). {advice}") from None


def retry(call: Callable[[], T], *, timeout_s: float, pause_s_max: float) -> T:
    """Retry an idempotent request with back-off while the server is unreachable or overloaded.

    Args:
        call: sends the request.
        timeout_s: no retry begins later than this.
        pause_s_max: the longest pause that doubling reaches. A longer `Retry-After` is respected.

    Raises:
        Unavailable, Unreachable: the retries timed out.
    """
    end, pause_s = time.monotonic() + timeout_s, _PAUSE_S_MIN
    while True:
        try:
            return call()
        except (Unavailable, Unreachable) as error:
            wait_s = max(pause_s, error.retry_after_s) if isinstance(error, Unavailable) else pause_s
            # Jitter, so that many clients don't retry at the same moment.
            wait_s *= random.uniform(1.0, 1.5)  # noqa: S311
            if time.monotonic() + wait_s > end:
                raise
        time.sleep(wait_s)
        pause_s = min(2 * pause_s, pause_s_max)


def _has(value: object, members: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and all(name in value for name in members)


def _validate_url(url: str) -> str:
    parts = _split_url(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Misconfigured(f"url: {preview(url)} is not the URL of a server. Example: https://events.example.com.")
    if parts.username is not None or parts.password is not None:
        raise Misconfigured("url: contains a user or a password. Pass the key instead.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise Misconfigured(f"url: {preview(url)} would send the key unencrypted. Use https.")
    return url.rstrip("/")


def _split_url(url: str) -> SplitResult | None:
    """Split a URL. Return None for one that can't be requested."""
    try:
        parts = urlsplit(url)
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        return None
    # `urlsplit` removes line breaks silently, and a request line allows no spaces and only ASCII.
    return parts if parts.path.isascii() and not any(character <= " " for character in url) else None


def _raise_problem(error: urllib.error.HTTPError, url: str) -> NoReturn:
    """Raise the exception that the server reported as a problem (RFC 9457)."""
    try:
        problem = json.loads(error.read(_PROBLEM_BYTES_MAX))
        reason, detail = Reason[str(problem["reason"]).upper()], str(problem["detail"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        message = f"{url}: answered {error.code} {error.reason}. Check that the URL is an embedsink server's."
        if error.code in (429, 502, 503, 504):
            raise Unavailable(Reason.NOT_READY, message, retry_after_s=_retry_after_s(error)) from None
        raise EmbedsinkError(message) from None
    if error.code in (429, 503):
        raise Unavailable(reason, detail, retry_after_s=_retry_after_s(error)) from None
    if reason is Reason.NOTHING_ACCEPTED:
        raise NothingAccepted(detail, problem) from None
    raise Refused(reason, detail) from None


def _retry_after_s(error: urllib.error.HTTPError) -> int:
    text = error.headers.get("Retry-After", "1")
    return min(int(text), RETRY_AFTER_S_MAX) if text.isdigit() else 1
