"""`POST /api/v1/events`: the way of a delivery from the socket to the journal (docs/wire.md)."""

from dataclasses import dataclass

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from embedsink.envelope import REJECTIONS_LISTED_MAX, Parsed, parse
from embedsink.errors import EmbedsinkError, Refused, quote
from embedsink.http.access import check_kind, check_origin, check_transport, key_for, token_of
from embedsink.http.body import BodyReader
from embedsink.http.cors import allowing
from embedsink.http.problems import answer_bug, answer_known, nothing_accepted
from embedsink.http.rates import RateLimiter
from embedsink.keys import Key, KeyKind
from embedsink.reasons import Reason
from embedsink.settings import Settings
from embedsink.sink import Sink, now_ms

_NDJSON = "application/x-ndjson"
_MEDIA_TYPES = ("application/json", "text/plain", _NDJSON)
# What is wrong with the body itself. It is kept, because nothing is dropped silently.
_KEPT = (
    Reason.NOT_JSON,
    Reason.NOT_UTF8,
    Reason.TOO_DEEP,
    Reason.DUPLICATE_KEY,
    Reason.NOT_FINITE,
    Reason.EMPTY,
)


class Events:
    """The ingest endpoint. A bare ASGI application, errors and all: on this path a Request and a Response would cost
    a third, and so would the framework's middleware (`embedsink.http.app`).
    """

    def __init__(self, settings: Settings) -> None:
        self._bodies = BodyReader(settings)
        self._rates = RateLimiter(settings.rate_events_per_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take in one delivery, and say what became of it."""
        try:
            await self._take_in(scope, receive, send)
        except EmbedsinkError as error:
            response = await answer_known(Request(scope), error)
            await response(scope, receive, send)
        except Exception as error:  # noqa: BLE001  the last resort, as in Starlette: logged with its traceback
            response = await answer_bug(Request(scope), error)
            await response(scope, receive, send)

    async def _take_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        sink: Sink = scope["state"]["sink"]
        headers = _Headers.of(scope)
        check_transport(scope["scheme"], sink)
        # With a key in the header, nothing is read before it is known to be good; without, it may be in the body.
        key = None if headers.token is None else self._admit(headers.token, headers, scope, sink)
        ndjson = media_type_of(headers.media_type) == _NDJSON
        try:
            body = await self._bodies.read(receive, length=headers.length, encoding=headers.encoding)
        except ClientDisconnect:
            return
        parsed = await self._parse(body, key, sink, ndjson=ndjson)
        key = key or self._admit(parsed.key, headers, scope, sink)
        self._rates.spend(key.key_id, parsed.received_count)
        parsed = within_scope(parsed, key)
        await sink.accept(parsed, key_id=key.key_id)
        await _answer(parsed, headers.origin, scope, receive, send)

    def _admit(self, token: str | None, headers: "_Headers", scope: Scope, sink: Sink) -> Key:
        key = key_for(token, sink)
        scope["state"]["key_id"] = key.key_id
        check_kind(key, (KeyKind.INGEST,))
        check_origin(key, headers.origin)
        return key

    async def _parse(self, body: bytes, key: Key | None, sink: Sink, *, ndjson: bool) -> Parsed:
        received_at = now_ms()
        try:
            parsed = parse(body, received_at, sink.rules, ndjson=ndjson)
        except Refused as refusal:
            if refusal.reason not in _KEPT:
                raise
            if key is None:
                # Nobody vouches for this body, so it is not kept.
                detail = f"authorization: is missing, and the body holds no key that can be read. {refusal}"
                raise Refused(Reason.NO_CREDENTIAL, detail) from None
            self._rates.spend(key.key_id, 1)
            await sink.quarantine_body(body, refusal, received_at=received_at, key_id=key.key_id)
            raise
        if key is not None and parsed.key is not None:
            raise Refused(Reason.TWO_CREDENTIALS, "key: stands in the body and in the header. Send it once.")
        return parsed


@dataclass(slots=True)
class _Headers:
    """The headers that ingest reads."""

    token: str | None = None
    origin: str | None = None
    media_type: str = ""
    encoding: str = ""
    length: int = 0

    @classmethod
    def of(cls, scope: Scope) -> "_Headers":
        headers, authorization = cls(), []
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization.append(value.decode("latin-1"))
            elif name == b"origin":
                headers.origin = value.decode("latin-1")
            elif name == b"content-type":
                headers.media_type = value.decode("latin-1")
            elif name == b"content-encoding":
                # Two such lines are one list (RFC 9110, section 5.3).
                coding = value.decode("latin-1").strip().lower()
                headers.encoding = f"{headers.encoding}, {coding}" if headers.encoding else coding
            elif name == b"content-length":
                headers.length = int(value)
        headers.token = token_of(authorization, scope["query_string"].decode("latin-1"))
        return headers


def media_type_of(content_type: str) -> str:
    """The media type without its parameters.

    Raises:
        Refused: `media_type`, also for a charset other than UTF-8.
    """
    if content_type in _MEDIA_TYPES:
        return content_type
    media_type, _, parameters = content_type.partition(";")
    media_type = media_type.strip().lower()
    charset = parameters.lower().replace(" ", "").replace('"', "").partition("charset=")[2].partition(";")[0]
    if media_type not in _MEDIA_TYPES or charset not in ("", "utf-8", "utf8"):
        allowed = ", ".join(_MEDIA_TYPES)
        raise Refused(Reason.MEDIA_TYPE, f"content-type: {quote(content_type)} is not one of {allowed}, in UTF-8.")
    return media_type


def within_scope(parsed: Parsed, key: Key) -> Parsed:
    """The delivery as far as the key reaches (spec 5.3, design section 6).

    Raises:
        Refused: `out_of_scope` when it names a deployment that is not the key's.
    """
    if key.deployments is None:
        return parsed
    outside = parsed.deployments - key.deployments
    if outside:
        raise Refused(Reason.OUT_OF_SCOPE, f"deployment: {min(outside)} is outside the key's scope. Use its own key.")
    if len(key.deployments) == 1:
        return parsed.in_deployment(min(key.deployments))
    return parsed.without_homeless()


async def _answer(parsed: Parsed, origin: str | None, scope: Scope, receive: Receive, send: Send) -> None:
    rejected = [rejection.listed() for rejection in parsed.rejected[:REJECTIONS_LISTED_MAX]]
    if rejected and not parsed.accepted:
        response = nothing_accepted(Request(scope), rejected, len(parsed.rejected))
        await response(scope, receive, send)
        return
    answer = {"accepted": len(parsed.accepted), "rejected": rejected}
    if len(parsed.rejected) > len(rejected):
        answer["rejectedCount"] = len(parsed.rejected)
    body = orjson.dumps(answer)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if origin is not None:
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in allowing(origin).items()]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": body})
