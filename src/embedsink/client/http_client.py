"""An HTTP client of an embedsink server. It uses only the standard library, so that commands start quickly."""

import json
import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from http.client import HTTPException, IncompleteRead
from typing import Any, NoReturn, TypeGuard, TypeVar
from urllib.parse import SplitResult, urlencode, urlsplit
from urllib.parse import quote as percent_encode

from embedsink.auth.tokens import looks_like_jwt, looks_like_key
from embedsink.errors import EmbedsinkError, Misconfigured, Refused, Unavailable, preview
from embedsink.net import is_loopback, url_opener
from embedsink.reasons import Reason

TIMEOUT_S = 60.0
RETRY_AFTER_S_MAX = 60
_PROBLEM_BYTES_MAX = 1_048_576
_CHUNK_BYTES = 65_536
# The media types of proxies and login pages, and of responses without a type. embedsink never sends them below /api/v1.
_FOREIGN_MEDIA_TYPES = ("text/html", "text/plain")
_FIRST_PAUSE_S = 0.5

T = TypeVar("T")


class Unreachable(EmbedsinkError):
    """The server did not respond. It may have processed the request."""


class NotEmbedsink(EmbedsinkError):
    """Another server or a proxy sent the response, with status 200. embedsink may have processed the request."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url}: answered 200, but is not an embedsink server. Check the URL, and whether a proxy or a login page "
            "answers instead."
        )


class NothingAccepted(Refused):
    """All envelopes of a delivery were rejected. `response` is the body of the 422, which lists them."""

    def __init__(self, detail: str, response: dict[str, Any]) -> None:
        super().__init__(Reason.NOTHING_ACCEPTED, detail)
        self.response = response


class HttpClient:
    """A client of one server with one key.

    Args:
        url: such as `https://events.example.com`. Plain HTTP is allowed for this machine only, and then bypasses any
            proxy.
        key: a read or an admin key for reports, an ingest key for events, a sync key for dbt syncs; or an access token.

    Raises:
        Misconfigured: the URL or the key is malformed.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self.url = _validate_url(url)
        if not key:
            raise Misconfigured("key: is missing. Set EMBEDSINK_KEY, or pass a key.")
        if not looks_like_key(key) and not looks_like_jwt(key):
            raise Misconfigured(
                "key: is neither an embedsink key nor an access token, or is incomplete. Copy it again."
            )
        self._authorization = f"Bearer {key}"
        self._opener = url_opener(self.url)

    def get(
        self, *path: str, query: Mapping[str, Any] | None = None, on_headers: Callable[[Message], None] | None = None
    ) -> bytes:
        """Return the response body of a path below `/api/v1`.

        Args:
            path: the segments of the path.
            query: the query parameters. A parameter that is None is omitted, and a list repeats its parameter.
            on_headers: called with the headers of a successful response, before the body is read.

        Raises:
            Refused: the request is wrong, or the key does not allow it.
            Unavailable: the server is overloaded, or not ready.
            Unreachable: the server did not respond.
            NotEmbedsink: the response has status 200, but another server or a proxy sent it.
            EmbedsinkError: the response has an error status, and no problem document (RFC 9457).
        """
        return b"".join(self.get_chunks(*path, query=query, on_headers=on_headers))

    def get_object(
        self, *path: str, required_members: tuple[str, ...], query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a JSON object that has at least these members. Raises the exceptions of `get`."""
        return self._parse_object(self.get(*path, query=query), required_members)

    def get_rows(
        self,
        *path: str,
        required_members: tuple[str, ...] = (),
        query: Mapping[str, Any] | None = None,
        on_headers: Callable[[Message], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Return a JSON array of objects that have at least these members. Raises the exceptions of `get`."""
        rows = self._parse_json(self.get(*path, query=query, on_headers=on_headers))
        if not isinstance(rows, list) or not all(_is_object_with(row, required_members) for row in rows):
            raise NotEmbedsink(self.url)
        return rows

    def get_chunks(
        self, *path: str, query: Mapping[str, Any] | None = None, on_headers: Callable[[Message], None] | None = None
    ) -> Iterator[bytes]:
        """Yield the response body in chunks, for large downloads.

        Takes the arguments of `get`, and raises its exceptions, even after the first chunk.
        """
        yield from self._send(self._request(path, query=query), on_headers)

    def post(self, *path: str, required_members: tuple[str, ...], body: bytes = b"") -> dict[str, Any]:
        """Post JSON and return the response, an object with at least these members.

        Raises the exceptions of `get`. After Unreachable or NotEmbedsink the server may have processed the request.
        """
        content = b"".join(self._send(self._request(path, body=body)))
        return self._parse_object(content, required_members)

    def put(self, *path: str, required_members: tuple[str, ...] = (), body: bytes) -> bytes:
        """Put JSON and return the bytes of the response, an object with at least these members.

        Repeating the request is safe. Raises the exceptions of `get`. After Unreachable or NotEmbedsink the server may
        have processed the request.
        """
        content = b"".join(self._send(self._request(path, body=body, method="PUT")))
        self._parse_object(content, required_members)  # Only to check the members.
        return content

    def delete(
        self, *path: str, required_members: tuple[str, ...], query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a DELETE and return the response, an object with at least these members. Repeating the request is safe.

        Raises the exceptions of `get`. After Unreachable or NotEmbedsink the server may have processed the request.
        """
        content = b"".join(self._send(self._request(path, query=query, method="DELETE")))
        return self._parse_object(content, required_members)

    def _parse_object(self, content: bytes, required_members: tuple[str, ...]) -> dict[str, Any]:
        """Parse a JSON object. Raise NotEmbedsink if the content is not an object, or lacks one of these members."""
        value = self._parse_json(content)
        if not _is_object_with(value, required_members):
            raise NotEmbedsink(self.url)
        return value

    def _parse_json(self, content: bytes) -> Any:
        """Parse a JSON value. Raise NotEmbedsink if the content is not JSON."""
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
        """Return a request with the key. The default method is GET, or POST if there is a body.

        Raises:
            Refused: the URL contains a lone surrogate, which UTF-8 can't encode (`bad_parameter`).
        """
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            url = "/".join([self.url, "api/v1", *(percent_encode(segment, safe="") for segment in path)])
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

    def _send(
        self, request: urllib.request.Request, on_headers: Callable[[Message], None] | None = None
    ) -> Iterator[bytes]:
        """Send a request and yield the response body in chunks. Raises the exceptions of `get`."""
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                if response.headers.get_content_type() in _FOREIGN_MEDIA_TYPES:
                    raise NotEmbedsink(self.url)
                if on_headers is not None:
                    on_headers(response.headers)
                while chunk := response.read(_CHUNK_BYTES):
                    yield chunk
                # `read` with a size does not raise an error if the body ends too early.
                missing_bytes = response.length
                if missing_bytes:
                    raise IncompleteRead(b"", missing_bytes)
        except urllib.error.HTTPError as error:
            with error:
                _raise_problem(error, self.url)
        except (OSError, HTTPException) as error:
            raise _unreachable_error(self.url, error) from None


def _unreachable_error(url: str, error: OSError | HTTPException) -> Unreachable:
    """Return the exception for a server that did not respond. The message has the cause and advice."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    advice = "Trust its certificate." if isinstance(cause, ssl.SSLError) else "Check that the server is running."
    return Unreachable(f"{url}: does not answer ({cause}). {advice}")


def retry(call: Callable[[], T], *, timeout_s: float, pause_s_max: float) -> T:
    """Retry an idempotent request with back-off while the server is unreachable or overloaded.

    Args:
        call: sends the request.
        timeout_s: the time after which no retry begins.
        pause_s_max: the longest back-off. A longer `Retry-After` is respected. Jitter then adds at most 50 %.

    Raises:
        Unavailable, Unreachable: the error of the last call, after the timeout.
    """
    deadline = time.monotonic() + timeout_s
    backoff_s = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except (Unavailable, Unreachable) as error:
            pause_s = max(backoff_s, error.retry_after_s) if isinstance(error, Unavailable) else backoff_s
            # Add jitter, so that many clients don't retry at the same moment.
            pause_s *= random.uniform(1.0, 1.5)  # noqa: S311
            if time.monotonic() + pause_s > deadline:
                raise
        time.sleep(pause_s)
        backoff_s = min(2 * backoff_s, pause_s_max)


def _is_object_with(value: object, required_members: tuple[str, ...]) -> TypeGuard[dict[str, Any]]:
    """Return whether a JSON value is an object that has at least these members."""
    return isinstance(value, dict) and all(name in value for name in required_members)


def _validate_url(url: str) -> str:
    """Return the URL of a server without slashes at the end.

    Raises:
        Misconfigured: the URL is invalid, contains a user or a password, or would send the key unencrypted.
    """
    parts = _split_url(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Misconfigured(f"url: {preview(url)} is not the URL of a server. Example: https://events.example.com.")
    if parts.username is not None or parts.password is not None:
        raise Misconfigured("url: contains a user or a password. Pass the key instead.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise Misconfigured(f"url: {preview(url)} would send the key unencrypted. Use https.")
    return url.rstrip("/")


def _split_url(url: str) -> SplitResult | None:
    """Split a URL into parts. Return None for a URL to which no request can be sent."""
    # `urlsplit` removes line breaks silently. Space is the first character that is not a control character.
    has_space_or_control = any(character <= " " for character in url)
    if has_space_or_control:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # Raises a ValueError if the port is not a number up to 65,535.
        (parts.hostname or "").encode("idna")  # Raises a ValueError if the host can't be a domain name.
    except ValueError:
        return None
    # The request line allows only ASCII.
    return parts if parts.path.isascii() else None


def _raise_problem(error: urllib.error.HTTPError, url: str) -> NoReturn:
    """Raise the exception for a response with an error status.

    Raises:
        Unavailable: the status is 429 or 503, or is 502 or 504 without a problem document (RFC 9457).
        EmbedsinkError: the status is any other, and the body is not a problem document.
        NothingAccepted: all envelopes of the delivery were rejected.
        Refused: the body is any other problem document.
    """
    try:
        problem = json.loads(error.read(_PROBLEM_BYTES_MAX))
        reason = Reason[str(problem["reason"]).upper()]
        detail = str(problem["detail"])
    except (ValueError, KeyError, TypeError, RecursionError, OSError, HTTPException):
        # A proxy sent the response, or another server.
        message = f"{url}: answered {error.code} {error.reason}. Check that this is the URL of an embedsink server."
        if error.code in (429, 502, 503, 504):
            raise Unavailable(Reason.NOT_READY, message, retry_after_s=_retry_after_s(error)) from None
        raise EmbedsinkError(message) from None
    if error.code in (429, 503):
        raise Unavailable(reason, detail, retry_after_s=_retry_after_s(error)) from None
    if reason is Reason.NOTHING_ACCEPTED:
        raise NothingAccepted(detail, problem) from None
    raise Refused(reason, detail) from None


def _retry_after_s(error: urllib.error.HTTPError) -> int:
    """Return the `Retry-After` of a response in seconds, at most 60. Return 1 if the header is missing or a date."""
    value = error.headers.get("Retry-After", "1")
    return min(int(value), RETRY_AFTER_S_MAX) if value.isascii() and value.isdigit() else 1
