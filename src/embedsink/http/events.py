"""`POST /api/v1/events`: the way of a delivery from the socket to the journal (docs/wire.md)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from embedsink.envelope import REJECTIONS_LISTED_MAX, Parsed, parse
from embedsink.errors import Refused, Unavailable, quote
from embedsink.http.access import check_kind, check_origin, check_transport, key_for, token_of
from embedsink.http.answers import Answer
from embedsink.http.body import BodyReader
from embedsink.http.cors import allowing, answer_preflight
from embedsink.http.problems import nothing_accepted, problem_of
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


Reply = Callable[[Answer], None]


class Events:
    """The ingest endpoint: a bare ASGI application. `take_in_whole` is the same without ASGI.

    A Request, a Response and exceptions that the framework catches would cost a third on this path. The limits of its
    bodies and of its rates hold for everything that is sent, so others use them too.
    """

    def __init__(self, settings: Settings) -> None:
        self.bodies = BodyReader(settings)
        self.rates = RateLimiter(settings.rate_events_per_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key, read the body within its limits, take it in, answer. Or answer the preflight of it all."""
        if scope["method"] == "OPTIONS":
            preflight = await answer_preflight(Request(scope))
            await preflight(scope, receive, send)
            return
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def reply(answer: Answer) -> None:
            if not answered.done():  # It is when a shutdown has cancelled this request.
                answered.set_result(answer)

        try:
            head = self._check_head(scope)
            body = await self.bodies.read(receive, known=head.key is not None)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  answered; and a bug is logged with its traceback
            reply(_refuse(scope, error))
        else:
            self._take_in(head, body, reply)
        await (await answered).send(send)

    def take_in_whole(self, scope: Scope, body: bytes, reply: Reply) -> None:
        """The same for a request that has arrived whole. `reply` is called once: at once, or when all is durable."""
        try:
            head = self._check_head(scope)
        except Exception as error:  # noqa: BLE001  as above
            reply(_refuse(scope, error))
        else:
            self._take_in(head, body, reply)

    def _check_head(self, scope: Scope) -> "_Head":
        check_transport(scope)
        head = _Head.of(scope)
        # With a key in the header, nothing is read before it is known to be good; without, it may be in the body.
        if head.token is not None:
            head.key = _admit(head.token, head)
        head.is_ndjson = media_type_of(head.media_type) == _NDJSON
        self.bodies.check_head(length=head.length, encoding=head.encoding)
        return head

    def _take_in(self, head: "_Head", body: bytes, reply: Reply) -> None:
        try:
            self._keep(head, self.bodies.decode(body, encoding=head.encoding), reply)
        except Exception as error:  # noqa: BLE001  as above
            reply(_refuse(head.scope, error))

    def _keep(self, head: "_Head", body: bytes, reply: Reply) -> None:
        """Parse and journal. The answer waits for the fsync: a 202 promises that the events survive power loss."""
        received_at = now_ms()
        try:
            parsed = parse(body, received_at, head.sink.rules, ndjson=head.is_ndjson)
        except Refused as refusal:
            self._keep_unreadable(head, body, refusal, received_at, reply)
            return
        key = _key_of(parsed, head)
        self.rates.spend(key.key_id, parsed.received_count or 1)
        kept = parsed.within_scope(key.deployments)
        # All that the answer needs, so that the envelopes can go before the fsync: docs/decisions/0006.
        accepted_count, rejected_count = len(kept.accepted), len(kept.rejected)
        listed = [rejection.listed() for rejection in kept.rejected[:REJECTIONS_LISTED_MAX]]

        def settled(failure: Unavailable | None) -> None:
            told = _refuse(head.scope, failure) if failure else _answer(head, accepted_count, rejected_count, listed)
            reply(told)

        head.sink.keep(kept, settled, key_id=key.key_id)

    def _keep_unreadable(self, head: "_Head", body: bytes, refusal: Refused, received_at: int, reply: Reply) -> None:
        if refusal.reason not in _KEPT:
            raise refusal
        if head.key is None:
            # Nobody vouches for this body, so it is not kept.
            detail = f"authorization: is missing, and the body holds no key that can be read. {refusal}"
            raise Refused(Reason.NO_CREDENTIAL, detail)

        def settled(failure: Unavailable | None) -> None:
            reply(_refuse(head.scope, failure or refusal))

        self.rates.spend(head.key.key_id, 1)
        head.sink.keep_body(body, refusal, settled, received_at=received_at, key_id=head.key.key_id)


@dataclass(slots=True)
class _Head:
    """What ingest knows of a request before it reads the body."""

    scope: Scope
    token: str | None = None
    origin: str | None = None
    media_type: str = ""
    encoding: str = ""
    length: int = 0
    key: Key | None = None
    is_ndjson: bool = False

    @property
    def sink(self) -> Sink:
        sink: Sink = self.scope["state"]["sink"]
        return sink

    @classmethod
    def of(cls, scope: Scope) -> "_Head":
        head, authorization = cls(scope), []
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization.append(value.decode("latin-1"))
            elif name == b"origin":
                # More than one is none that a key belongs to.
                origin = value.decode("latin-1")
                head.origin = origin if head.origin is None else f"{head.origin}, {origin}"
            elif name == b"content-type":
                head.media_type = value.decode("latin-1")
            elif name == b"content-encoding":
                # Two such lines are one list (RFC 9110, section 5.3).
                coding = value.decode("latin-1").strip().lower()
                head.encoding = f"{head.encoding}, {coding}" if head.encoding else coding
            elif name == b"content-length":
                head.length = int(value)
        head.token = token_of(authorization, scope["query_string"].decode("latin-1"))
        return head


def _key_of(parsed: Parsed, head: _Head) -> Key:
    if head.key is None:
        return _admit(parsed.key, head)
    if parsed.key is not None:
        raise Refused(Reason.TWO_CREDENTIALS, "key: stands in the body and in the header. Send it once.")
    return head.key


def _admit(token: str | None, head: _Head) -> Key:
    key = key_for(token, head.sink)
    head.scope["state"]["key_id"] = key.key_id
    check_kind(key, (KeyKind.INGEST,))
    check_origin(key, head.origin)
    return key


def media_type_of(content_type: str, allowed: Sequence[str] = _MEDIA_TYPES) -> str:
    """The media type without its parameters.

    Raises:
        Refused: `media_type`, also for a charset other than UTF-8.
    """
    if content_type in allowed:
        return content_type
    media_type, _, parameters = content_type.partition(";")
    media_type = media_type.strip().lower()
    charset = parameters.lower().replace(" ", "").replace('"', "").partition("charset=")[2].partition(";")[0]
    if media_type not in allowed or charset not in ("", "utf-8", "utf8"):
        listed = ", ".join(allowed)
        which = f"one of {listed}" if len(allowed) > 1 else listed
        raise Refused(Reason.MEDIA_TYPE, f"content-type: {quote(content_type)} is not {which}, in UTF-8.")
    return media_type


def _answer(head: _Head, accepted_count: int, rejected_count: int, listed: list[dict[str, Any]]) -> Answer:
    if listed and not accepted_count:
        return Answer.of(nothing_accepted(Request(head.scope), listed, rejected_count))
    content = {"accepted": accepted_count, "rejected": listed}
    if rejected_count > len(listed):
        content["rejectedCount"] = rejected_count
    body = orjson.dumps(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if head.origin is not None:
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in allowing(head.origin).items()]
    return Answer(202, headers, body)


def _refuse(scope: Scope, error: Exception) -> Answer:
    return Answer.of(problem_of(Request(scope), error))
