"""`POST /api/v1/events`: the way of a delivery from the socket to the journal (docs/wire.md)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from embedsink.auth.key import Key, KeyKind
from embedsink.engine import Engine, now_ms
from embedsink.errors import EmbedsinkError, Refused, Unavailable, quote
from embedsink.http.anonymous_limits import AnonymousLimits, request_cost
from embedsink.http.authentication import bearer_token, check_kind, check_origin, find_key
from embedsink.http.client_address import client_address
from embedsink.http.cors import allow_origin_headers, answer_preflight
from embedsink.http.problems import nothing_accepted_response, problem_response
from embedsink.http.rate_limiter import REJECTED_FACTOR, RateLimiter, Sender
from embedsink.http.transport import check_transport
from embedsink.http.wire.body_key import find_tokens
from embedsink.http.wire.raw_response import RawResponse
from embedsink.http.wire.request_body import ANONYMOUS_BYTES_MAX, BodyReader
from embedsink.ingest.pipeline import Job, Outcome, inflate, inflate_beginning, outcome_of, take_in
from embedsink.ingest.worker_pool import IngestPool
from embedsink.protocol.validation import parse_plain
from embedsink.reasons import Reason
from embedsink.settings import Settings

_NDJSON = "application/x-ndjson"
_MEDIA_TYPES = ("application/json", "text/plain", _NDJSON)
# The worker parses larger bodies. A valid one of this size takes the event loop half a millisecond.
LOOP_BYTES_MAX = 32_768
# The worker also parses a body that `parse_plain` can't, if it is larger than this or has more values: each costs the
# event loop some 4 µs then. All but the first follow a comma, or in NDJSON a line break.
SLOW_BYTES_MAX = 4_096
SLOW_VALUES_MAX = 64
_UNKNOWN = Sender("")

Reply = Callable[[RawResponse], None]


class IngestEndpoint:
    """The ingest endpoint: a bare ASGI application. `ingest` is the same without ASGI.

    A Request, a Response and exceptions that the framework catches would cost a third on this path. Other endpoints
    share the limits of its bodies and its rates.
    """

    def __init__(self, settings: Settings) -> None:
        self.bodies = BodyReader(settings)
        self.rates = RateLimiter(
            settings.rate_events_per_s,
            bytes_per_s=settings.rate_bytes_per_s,
            address_bytes_per_s=settings.rate_address_bytes_per_s,
        )
        self.pool = IngestPool(settings.rules(), body_bytes_max=settings.body_bytes_max)
        self._body_bytes_max = settings.body_bytes_max
        self.anonymous_limits = AnonymousLimits(settings.rate_strangers_per_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key, read the body within its limits, take it in, answer. Or answer the preflight of it all."""
        if scope["method"] == "OPTIONS":
            preflight = await answer_preflight(Request(scope))
            await preflight(scope, receive, send)
            return
        answered: asyncio.Future[RawResponse] = asyncio.get_running_loop().create_future()

        def reply(answer: RawResponse) -> None:
            if not answered.done():  # It is when a shutdown has cancelled this request.
                answered.set_result(answer)

        try:
            head = self._check_head(scope)
            # The body has no name here: it would be kept until the answer is there, and that may be held back.
            self._take_in(head, await self._read(head, receive), reply)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  answered; and a bug is logged with its traceback
            self._reply_with(scope, error, reply)
        await (await answered).send(send)

    def ingest(self, scope: Scope, body: bytes, reply: Reply) -> None:
        """The same for a request that has arrived whole. `reply` is called once: at once, or when all is durable."""
        try:
            head = self._check_head(scope)
        except Exception as error:  # noqa: BLE001  as above
            self._reply_with(scope, error, reply)
        else:
            self._take_in(head, body, reply)

    def _check_head(self, scope: Scope) -> "_Head":
        check_transport(scope)
        head = _Head.of(scope)
        # With a key in the header, nothing is read before it is known to be good; without, it may be in the body.
        if head.token is not None:
            _admit(head, head.token)
        head.is_ndjson = parse_media_type(head.media_type) == _NDJSON
        self.bodies.check_head(length=head.length, encoding=head.encoding)
        if head.key is not None:
            if head.length > LOOP_BYTES_MAX:
                self.rates.check_work(head.sender)
            self.rates.admit(head.sender, head.length)
            head.charged_bytes = head.length
        elif head.length > ANONYMOUS_BYTES_MAX and (limited := self.anonymous_limits.charge(scope)):
            raise limited
        return head

    async def _read(self, head: "_Head", receive: Receive) -> bytes:
        if head.key is not None:
            return await self.bodies.read(receive, head.sender)
        return await self.bodies.read(
            receive, Sender(client_address(head.scope)), authenticate=partial(self._authenticate, head)
        )

    def _authenticate(self, head: "_Head", beginning: bytes) -> Sender:
        """Find the key in the first bytes of a body.

        Raises:
            Refused: `no_credential` or `bad_credential`, or the key may not do this.
        """
        beginning = beginning[:ANONYMOUS_BYTES_MAX]
        if head.encoding == "gzip":
            beginning = inflate_beginning(beginning, bytes_max=ANONYMOUS_BYTES_MAX)
        tokens = list(find_tokens(beginning))
        live = next(filter(head.engine.keys.find, tokens), None)
        if live is None and not tokens:
            limit = f"the first {ANONYMOUS_BYTES_MAX:,} bytes of the body hold no key"
            raise Refused(Reason.NO_CREDENTIAL, f"authorization: is missing, and {limit}. Send one of the two.")
        head.token_in_body = live or tokens[0]
        _admit(head, head.token_in_body)
        self.rates.admit(head.sender, 0)
        return head.sender

    def _take_in(self, head: "_Head", body: bytes, reply: Reply) -> None:
        try:
            if head.key is None:
                self._authenticate(head, body)
            if len(body) > head.charged_bytes:
                self.bodies.check_size(len(body))
                self.rates.charge_bytes(head.sender, len(body) - head.charged_bytes)
            outcome = self._read_at_once(head, body)
            if outcome is not None:
                self._keep(head, outcome, reply)
            else:
                self._hand_over(head, body, reply)
        except Exception as error:  # noqa: BLE001  as above
            self._reply_with(head.scope, error, reply)

    def _read_at_once(self, head: "_Head", body: bytes) -> Outcome | None:
        """The outcome of a small body; None where the worker has to read it."""
        if len(body) > LOOP_BYTES_MAX:
            return None
        text = body
        if head.encoding == "gzip":
            try:
                text = inflate(body, bytes_max=min(LOOP_BYTES_MAX, self._body_bytes_max))
            except Refused:  # It is large, or damaged.
                return None
        rules = head.engine.rules
        parsed = None if head.is_ndjson else parse_plain(text, now_ms(), rules)
        if parsed is not None:
            key = head.good_key
            return outcome_of(parsed, len(text), key_id=key.key_id, deployments=key.deployments)
        self.rates.check_work(head.sender)
        value_count = text.count(b",") + (text.count(b"\n") if head.is_ndjson else 0)
        if len(text) > SLOW_BYTES_MAX or value_count > SLOW_VALUES_MAX:
            return None
        return take_in(head.job_of(body), rules, body_bytes_max=self._body_bytes_max)

    def _hand_over(self, head: "_Head", body: bytes, reply: Reply) -> None:
        """Let the worker read a body."""
        sender, size = head.sender, len(body)
        self.rates.check_work(sender)
        self.bodies.inflight.acquire(sender, size)

        def done(outcome: Outcome | Exception) -> None:
            self.bodies.inflight.release(sender, size)
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                self.rates.charge_work(sender, max(0, outcome.byte_count - size))
                self._keep(head, outcome, reply)
            except Exception as error:  # noqa: BLE001  as above
                self._reply_with(head.scope, error, reply)

        try:
            self.pool.submit(head.job_of(body), done, address=sender.address)
        except Unavailable:
            self.bodies.inflight.release(sender, size)
            raise
        self.rates.charge_work(sender, size)

    def _reply_with(self, scope: Scope, error: Exception, reply: Reply) -> None:
        """Answer what was refused; later where no good key was found, and the address has sent too much of that."""
        is_stranger = "key_id" not in scope["state"] and isinstance(error, EmbedsinkError)
        limited = self.anonymous_limits.charge(scope, cost=request_cost(scope)) if is_stranger else None
        if limited is None:
            reply(_refuse(scope, error))
        else:
            self.anonymous_limits.delay_answer(scope, lambda: reply(_refuse(scope, limited)))

    def _keep(self, head: "_Head", outcome: Outcome, reply: Reply) -> None:
        """Journal. The answer waits for the fsync: a 202 promises that the events survive power loss."""
        refusal = outcome.refusal
        accepted_count, rejected_count, listed = outcome.accepted_count, outcome.rejected_count, outcome.listed
        if refusal is not None:
            self.rates.charge_work(head.sender, REJECTED_FACTOR * outcome.byte_count)
        elif rejected_count:
            self.rates.charge_work(head.sender, REJECTED_FACTOR * len(outcome.rejection_lines))
        key = _key_of(head, outcome)
        if accepted_count + rejected_count > 1:
            self.rates.charge_events(key.key_id, accepted_count + rejected_count)
        if refusal is not None and not rejected_count:
            raise refusal

        # It holds what the answer needs and no more, so that the lines can go before the fsync: docs/decisions/0006.
        def on_durable(failure: Unavailable | None) -> None:
            problem = failure or refusal
            reply(_refuse(head.scope, problem) if problem else _answer(head, accepted_count, rejected_count, listed))

        if rejected_count:
            head.engine.submit_rejections(outcome, on_durable, key_id=key.key_id, is_scoped=key.deployments is not None)
        else:
            head.engine.submit(
                outcome.lines, on_durable, accepted=accepted_count, quarantined=0, deployment=outcome.deployment
            )


@dataclass(slots=True)
class _Head:
    """What ingest knows of a request before it parses the body."""

    scope: Scope
    engine: Engine
    token: str | None = None
    token_in_body: str | None = None
    origin: str | None = None
    media_type: str = ""
    encoding: str = ""
    length: int = 0
    charged_bytes: int = 0
    key: Key | None = None
    sender: Sender = _UNKNOWN  # until the key is found
    is_ndjson: bool = False

    @classmethod
    def of(cls, scope: Scope) -> "_Head":
        head, authorization = cls(scope, scope["state"]["engine"]), []
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization.append(value.decode("latin-1"))
            elif name == b"origin":
                # Several origins together match no key.
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
        head.token = bearer_token(authorization, scope["query_string"].decode("latin-1"))
        return head

    @property
    def good_key(self) -> Key:
        """The sender's key, once it is found."""
        assert self.key is not None  # noqa: S101  a bug otherwise
        return self.key

    def job_of(self, body: bytes) -> Job:
        """What has to be known to read the body."""
        key = self.good_key
        return Job(body, self.encoding, self.is_ndjson, now_ms(), key.key_id, key.deployments)


def _key_of(head: _Head, outcome: Outcome) -> Key:
    """The key of a request whose body was read: a key in the body counts only where the parser finds it, too."""
    key = head.good_key
    if head.token_in_body is None and outcome.key is not None:
        raise Refused(Reason.TWO_CREDENTIALS, "key: is in the body and in the header. Send it once.")
    if head.token_in_body != outcome.key:
        if outcome.key is not None:
            raise Refused(Reason.BAD_CREDENTIAL, "key: the body has another good key before this one. Send one key.")
        if outcome.refusal is not None and not outcome.reasons:
            raise outcome.refusal
        # Nobody vouches for this body, so it is not kept.
        because = f" {outcome.refusal}" if outcome.refusal is not None else ""
        detail = f"authorization: is missing, and the body holds no key that can be read.{because}"
        raise Refused(Reason.NO_CREDENTIAL, detail)
    return key


def _admit(head: _Head, token: str | None) -> Key:
    key = head.key = find_key(token, head.engine)
    head.sender = Sender(client_address(head.scope), key.key_id)
    head.scope["state"]["key_id"] = key.key_id
    check_kind(key, (KeyKind.INGEST,))
    check_origin(key, head.origin)
    return key


def parse_media_type(content_type: str, allowed: Sequence[str] = _MEDIA_TYPES) -> str:
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


def _answer(head: _Head, accepted_count: int, rejected_count: int, listed: list[dict[str, Any]]) -> RawResponse:
    if listed and not accepted_count:
        return RawResponse.of(nothing_accepted_response(Request(head.scope), listed, rejected_count))
    if not rejected_count:
        return _all_accepted(accepted_count, head.origin)
    content = {"accepted": accepted_count, "rejected": listed}
    if rejected_count > len(listed):
        content["rejectedCount"] = rejected_count
    return _accepted(content, head.origin)


@lru_cache(maxsize=1_024)
def _all_accepted(count: int, origin: str | None) -> RawResponse:
    return _accepted({"accepted": count, "rejected": []}, origin)


def _accepted(content: dict[str, Any], origin: str | None) -> RawResponse:
    body = orjson.dumps(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if origin is not None:
        headers += [
            (name.lower().encode(), value.encode("latin-1")) for name, value in allow_origin_headers(origin).items()
        ]
    return RawResponse(202, headers, body)


def _refuse(scope: Scope, error: Exception) -> RawResponse:
    return RawResponse.of(problem_response(Request(scope), error))
