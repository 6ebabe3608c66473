"""`POST /api/v1/events`: the path of a delivery from the connection to the journal (docs/wire.md)."""

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from embedsink.auth.keys import KeyKind
from embedsink.engine import now_ms
from embedsink.errors import EmbedsinkError, Refused, Unavailable
from embedsink.http.anonymous_limits import request_cost
from embedsink.http.cors import INGEST_PATH, answer_preflight
from embedsink.http.ingest_admission import LOOP_BYTES_MAX, Admission, RequestMeta
from embedsink.http.ingest_response import error_response, receipt
from embedsink.http.openapi.errors import ACCESS, ANY_REQUEST, BODY, JOURNAL
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import content_encoding, parameter
from embedsink.http.openapi.parts import TEXT, Schema, array, ref
from embedsink.http.rate_limiter import REJECTED_FACTOR
from embedsink.http.wire.raw_response import RawResponse, Reply
from embedsink.ingest.pipeline import ParseResult, encode_delivery, inflate, parse_and_encode
from embedsink.ingest.worker_pool import IngestPool
from embedsink.protocol.validation import parse_fast
from embedsink.reasons import Reason
from embedsink.settings import Settings

# The event loop runs the full parser on bodies that `parse_fast` does not accept, up to this size and number of
# values. Each value takes some 4 µs. All values but the first follow a comma, or in NDJSON a line break.
SLOW_BYTES_MAX = 4_096
SLOW_VALUES_MAX = 64


class IngestEndpoint:
    """The ingest endpoint.

    Request and response objects would cost a third of the throughput here, so it works on ASGI scopes and callbacks.
    """

    def __init__(self, settings: Settings) -> None:
        self.admission = Admission(settings)
        self.pool = IngestPool(settings.rules(), body_bytes_max=settings.body_bytes_max)
        self._body_bytes_max = settings.body_bytes_max

    def ingest(self, scope: Scope, body: bytes, reply: Reply) -> None:
        """Process a request that has arrived completely. `reply` is called once, now or when all is durable."""
        try:
            meta = self.admission.admit(scope)
        except Exception as error:  # noqa: BLE001  answered; a bug is logged with its traceback
            self._reply_error(scope, error, reply)
        else:
            self._process(meta, body, reply)

    async def read_and_ingest(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request whose body is still arriving, as an ASGI application."""
        answered: asyncio.Future[RawResponse] = asyncio.get_running_loop().create_future()

        def reply(response: RawResponse) -> None:
            if not answered.done():  # A shutdown cancels requests.
                answered.set_result(response)

        try:
            meta = self.admission.admit(scope)
            # No variable refers to the body: it would stay in memory until the response, which may be delayed.
            self._process(meta, await self.admission.read(meta, receive), reply)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  answered; a bug is logged with its traceback
            self._reply_error(scope, error, reply)
        await (await answered).send(send)

    def _process(self, meta: RequestMeta, body: bytes, reply: Reply) -> None:
        """Authenticate, limit, validate, journal and answer a delivery whose head was admitted and whose body was read.

        Validation includes the scope of the key. The response follows the fsync.
        """
        try:
            self.admission.admit_body(meta, body)
            outcome = self._validate(meta, body)
            if outcome is None:
                self._validate_in_worker(meta, body, reply)
            else:
                self._journal(meta, outcome, reply)
        except Exception as error:  # noqa: BLE001  answered; a bug is logged with its traceback
            self._reply_error(meta.scope, error, reply)

    def _validate(self, meta: RequestMeta, body: bytes) -> ParseResult | None:
        """Validate a small body on the event loop. Return None for a body that the worker has to validate."""
        if len(body) > LOOP_BYTES_MAX:
            return None
        text = body
        if meta.encoding == "gzip":
            try:
                text = inflate(body, bytes_max=min(LOOP_BYTES_MAX, self._body_bytes_max))
            except Refused:  # The content is too large or damaged.
                return None
        rules = meta.engine.rules
        parsed = None if meta.is_ndjson else parse_fast(text, now_ms(), rules)
        if parsed is not None:
            key = meta.valid_key
            return encode_delivery(parsed, len(text), key_id=key.key_id, deployments=key.deployments)
        self.admission.rates.check_work(meta.sender)
        value_count = text.count(b",") + (text.count(b"\n") if meta.is_ndjson else 0)
        if len(text) > SLOW_BYTES_MAX or value_count > SLOW_VALUES_MAX:
            return None
        return parse_and_encode(meta.job(body), rules, body_bytes_max=self._body_bytes_max)

    def _validate_in_worker(self, meta: RequestMeta, body: bytes, reply: Reply) -> None:
        sender, size = meta.sender, len(body)
        rates, inflight = self.admission.rates, self.admission.bodies.inflight
        rates.check_work(sender)
        inflight.acquire(sender, size)

        def done(outcome: ParseResult | Exception) -> None:
            inflight.release(sender, size)
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                rates.charge_work(sender, max(0, outcome.body_bytes - size))
                self._journal(meta, outcome, reply)
            except Exception as error:  # noqa: BLE001  answered; a bug is logged with its traceback
                self._reply_error(meta.scope, error, reply)

        try:
            self.pool.submit(meta.job(body), done, address=sender.address)
        except Unavailable:
            inflight.release(sender, size)
            raise
        rates.charge_work(sender, size)

    def _journal(self, meta: RequestMeta, outcome: ParseResult, reply: Reply) -> None:
        """Journal the outcome, and answer after the fsync: a 202 promises that the events survive power loss."""
        refusal = outcome.refusal
        accepted_count, rejected_count, listed = (
            outcome.accepted_count,
            outcome.rejected_count,
            outcome.listed_rejections,
        )
        self._charge_rejections(meta, outcome, rejected_count)
        key = self.admission.check_key(meta, outcome)
        if accepted_count + rejected_count > 1:
            self.admission.rates.charge_events(key.key_id, accepted_count + rejected_count)
        if refusal is not None and not rejected_count:
            raise refusal

        # The closure must not refer to the outcome: its lines are freed before the fsync (docs/decisions/0006).
        def on_durable(failure: Unavailable | None) -> None:
            error = failure or refusal
            if error:
                reply(error_response(meta.scope, error))
            else:
                reply(receipt(meta.scope, accepted_count, rejected_count, listed, origin=meta.origin))

        if rejected_count:
            is_scoped = key.deployments is not None
            meta.engine.append_with_rejections(outcome, on_durable, key_id=key.key_id, is_scoped=is_scoped)
        else:
            meta.engine.append_counted(
                outcome.accepted_lines,
                on_durable,
                accepted=accepted_count,
                quarantined=0,
                deployment=outcome.deployment,
            )

    def _charge_rejections(self, meta: RequestMeta, outcome: ParseResult, rejected_count: int) -> None:
        if outcome.refusal is not None:
            self.admission.rates.charge_work(meta.sender, REJECTED_FACTOR * outcome.body_bytes)
        elif rejected_count:
            self.admission.rates.charge_work(meta.sender, REJECTED_FACTOR * len(outcome.rejection_lines))

    def _reply_error(self, scope: Scope, error: Exception, reply: Reply) -> None:
        """Answer with an error. Without a valid key the response is delayed once the address exceeds its rate."""
        limits = self.admission.anonymous_limits
        is_anonymous = "key_id" not in scope["state"] and isinstance(error, EmbedsinkError)
        limited = limits.charge(scope, cost=request_cost(scope)) if is_anonymous else None
        if limited is None:
            reply(error_response(scope, error))
        else:
            limits.delay_response(scope, lambda: reply(error_response(scope, limited)))


class _IngestApp:
    """The ASGI application of the route."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            preflight = await answer_preflight(Request(scope))
            await preflight(scope, receive, send)
        else:
            endpoint: IngestEndpoint = scope["state"]["events"]
            await endpoint.read_and_ingest(scope, receive, send)


ROUTES = [Route(INGEST_PATH, _IngestApp(), methods=["POST", "OPTIONS"])]
_REASONS = (
    *(reason for reason in ACCESS if reason is not Reason.NOT_READY),
    *BODY,
    Reason.EMPTY,
    Reason.OUT_OF_SCOPE,
    Reason.TOO_MANY_EVENTS,
    Reason.NOTHING_ACCEPTED,
    Reason.RATE_LIMITED,
    *JOURNAL,
)


def operations(settings: Settings) -> list[Operation]:
    """Describe the route."""
    return [
        Operation(
            "post",
            INGEST_PATH,
            "sendEvents",
            "Store events durably: one envelope, an array of envelopes, NDJSON or a delivery",
            (202, "The events are durable. Delete them from the client's queue.", {"application/json": ref("Receipt")}),
            _REASONS,
            (KeyKind.INGEST, KeyKind.ADMIN),
            is_key_optional=True,
            parameters=[content_encoding()],
            body=_bodies(settings),
        ),
        Operation(
            "options",
            INGEST_PATH,
            "preflightEvents",
            "Answer a CORS preflight, without a key",
            (204, "Pages of this origin may send events.", {}),
            (Reason.WRONG_ORIGIN, *ANY_REQUEST),
            parameters=[parameter("Origin", TEXT, location="header")],
        ),
    ]


def _bodies(settings: Settings) -> dict[str, Schema]:
    envelopes = array(ref("Envelope")) | {"minItems": 1, "maxItems": settings.events_max}
    return {
        "application/json": {"anyOf": [ref("Envelope"), envelopes, ref("Delivery")]},
        "text/plain": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "The same JSON, for beacons, which can't set another content type.",
        },
        "application/x-ndjson": {"type": "string", "description": "One envelope per line."},
    }
