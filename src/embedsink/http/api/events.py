"""`POST /api/v1/events`: the path of a delivery from the connection to the journal (docs/wire.md)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from embedsink.auth.keys import KeyKind
from embedsink.engine import now_ms
from embedsink.errors import EmbedsinkError, Refused, Unavailable
from embedsink.http.anonymous_limits import request_cost
from embedsink.http.cors import INGEST_PATH, answer_preflight
from embedsink.http.ingest_admission import LOOP_BYTES_MAX, Admission, RequestMeta
from embedsink.http.ingest_response import error_response, receipt_response
from embedsink.http.openapi.errors import ACCESS_REASONS, ANY_REQUEST_REASONS, BODY_REASONS, JOURNAL_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import content_encoding, parameter
from embedsink.http.openapi.parts import TEXT, Schema, array, ref
from embedsink.http.rate_limiter import REJECTED_FACTOR
from embedsink.http.wire.raw_response import RawResponse, Reply
from embedsink.ingest.pipeline import ParseResult, encode_delivery, inflate, parse_and_encode
from embedsink.ingest.worker_process import IngestWorker
from embedsink.protocol.validation import parse_fast
from embedsink.reasons import Reason
from embedsink.settings import Settings

# The event loop runs the full parser on bodies that `parse_fast` does not accept, up to this size and number of
# values. Each value takes some 4 µs.
SLOW_BYTES_MAX = 4_096
SLOW_VALUES_MAX = 64


class IngestEndpoint:
    """The ingest endpoint. It works on ASGI scopes and callbacks.

    Starlette's request and response objects would cost a third of the throughput here.
    """

    def __init__(self, settings: Settings) -> None:
        self.admission = Admission(settings)
        self.worker = IngestWorker(settings.rules(), body_bytes_max=settings.body_bytes_max)
        self._body_bytes_max = settings.body_bytes_max

    def ingest(self, scope: Scope, body: bytes, reply: Reply) -> None:
        """Ingest a request that has arrived completely. Call `reply` once: after the fsync, or with an error."""
        try:
            meta = self.admission.admit(scope)
        except Exception as error:  # noqa: BLE001  answered; a bug is logged with its traceback
            self._reply_error(scope, error, reply)
        else:
            self._ingest_body(meta, body, reply)

    async def read_and_ingest(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a body that is still arriving, ingest it, and send the response. This is an ASGI application."""
        response: asyncio.Future[RawResponse] = asyncio.get_running_loop().create_future()

        def reply(raw_response: RawResponse) -> None:
            if not response.done():  # A shutdown cancels the request, and with it this future.
                response.set_result(raw_response)

        try:
            meta = self.admission.admit(scope)
            # Don't store the body in a variable, which would keep it in memory until the response is sent.
            self._ingest_body(meta, await self.admission.read(meta, receive), reply)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  answered; a bug is logged with its traceback
            self._reply_error(scope, error, reply)
        raw_response = await response
        await raw_response.send(send)

    def _ingest_body(self, meta: RequestMeta, body: bytes, reply: Reply) -> None:
        """Authenticate, limit, validate, journal and answer a delivery whose headers are already checked."""
        try:
            self.admission.admit_body(meta, body)
            result = self._validate_on_loop(meta, body)
            if result is None:
                self._validate_in_worker(meta, body, reply)
            else:
                self._journal(meta, result, reply)
        except Exception as error:  # noqa: BLE001  answered; a bug is logged with its traceback
            self._reply_error(meta.scope, error, reply)

    def _validate_on_loop(self, meta: RequestMeta, body: bytes) -> ParseResult | None:
        """Validate a small body on the event loop. Return None for a body that the worker has to validate."""
        content = self._inflate_small(meta, body)
        if content is None:
            return None
        rules = meta.engine.rules
        # The fast parser returns None for a body that may be invalid. Only the full parser says what is wrong with it.
        delivery = None if meta.is_ndjson else parse_fast(content, now_ms(), rules)
        if delivery is not None:
            key = meta.valid_key
            return encode_delivery(
                delivery,
                len(content),
                meta.engine.privacy,
                key_id=key.key_id,
                scope=key.scope,
                is_opted_out=meta.is_opted_out,
            )
        # Don't run the full parser, which is slow, for a sender with too many rejections or large bodies.
        self.admission.rates.check_work(meta.sender)
        if _is_slow(content, is_ndjson=meta.is_ndjson):
            return None
        job = replace(meta.parse_job(content), encoding="")  # `content` is already decompressed.
        return parse_and_encode(job, rules, body_bytes_max=self._body_bytes_max)

    def _inflate_small(self, meta: RequestMeta, body: bytes) -> bytes | None:
        """Return the body, decompressed if necessary; None for a damaged body, or one too large for the event loop."""
        if len(body) > LOOP_BYTES_MAX:
            return None
        if meta.encoding != "gzip":
            return body
        try:
            return inflate(body, bytes_max=min(LOOP_BYTES_MAX, self._body_bytes_max))
        except Refused:
            return None  # The worker decompresses the body up to the full limit, and reports damage.

    def _validate_in_worker(self, meta: RequestMeta, body: bytes, reply: Reply) -> None:
        """Validate a body in the worker process, and then journal it. Meanwhile, count it as a body in memory."""
        sender, body_bytes = meta.sender, len(body)
        rates, inflight = self.admission.rates, self.admission.bodies.inflight
        rates.check_work(sender)
        inflight.acquire(sender, body_bytes)

        def on_validated(result: ParseResult | Exception) -> None:
            inflight.release(sender, body_bytes)
            try:
                if isinstance(result, Exception):
                    raise result
                if meta.engine.privacy is not job.privacy:
                    self._validate_in_worker(meta, body, reply)  # An erasure has begun. It may concern this body.
                    return
                # The compressed size is already charged, so charge the growth by decompression.
                rates.charge_work(sender, max(0, result.body_bytes - body_bytes))
                self._journal(meta, result, reply)
            except Exception as error:  # noqa: BLE001  answered; a bug is logged with its traceback
                self._reply_error(meta.scope, error, reply)

        job = meta.parse_job(body)
        try:
            self.worker.submit(job, on_validated, address=sender.address)
        except Unavailable:
            inflight.release(sender, body_bytes)
            raise
        rates.charge_work(sender, body_bytes)  # A body that the queue refuses costs no work.

    def _journal(self, meta: RequestMeta, result: ParseResult, reply: Reply) -> None:
        """Journal a validated body, and answer after the fsync: a 202 promises that the events survive power loss."""
        self._charge_rejections(meta, result)
        key = self.admission.check_key(meta, result)
        event_count = result.accepted_count + result.rejected_count
        # Before the body was parsed, one event was charged. Charge the real number instead.
        if event_count > 1:
            self.admission.rates.charge_events(key.key_id, event_count)
        if result.refusal is not None and not result.rejected_count:
            # The whole body was refused. Only an unreadable body is journaled: it counts as one rejection.
            raise result.refusal
        on_durable = _durable_callback(meta, result, reply)
        if result.rejected_count:
            is_scoped = key.scope.deployments is not None
            meta.engine.submit_with_rejections(result, on_durable, key_id=key.key_id, is_scoped=is_scoped)
        else:
            meta.engine.submit_counted(
                result.accepted_lines,
                on_durable,
                accepted=result.accepted_count,
                quarantined=0,
                deployment=result.deployment,
                tenant=result.tenant,
            )

    def _charge_rejections(self, meta: RequestMeta, result: ParseResult) -> None:
        """Charge rejected bytes at a multiple of their size: they need the full parser and space in the quarantine."""
        if result.refusal is not None:
            self.admission.rates.charge_work(meta.sender, REJECTED_FACTOR * result.body_bytes)
        elif result.rejected_count:
            self.admission.rates.charge_work(meta.sender, REJECTED_FACTOR * len(result.rejection_lines))  # bytes

    def _reply_error(self, scope: Scope, error: Exception, reply: Reply) -> None:
        """Answer with an error, or with a 429 if the address sends too many requests without a valid key.

        The 429 is delayed, so that each connection of such a client gets at most one response a second.
        """
        limits = self.admission.anonymous_limits
        is_authenticated = "key_id" in scope["state"]  # The limits of a valid key apply instead.
        is_bug = not isinstance(error, EmbedsinkError)  # The client is not to blame.
        if is_authenticated or is_bug:
            reply(error_response(scope, error))
            return
        rate_error = limits.charge(scope, cost=request_cost(scope))
        if rate_error is None:
            reply(error_response(scope, error))
        else:
            limits.delay_response(scope, lambda: reply(error_response(scope, rate_error)))


def _is_slow(content: bytes, *, is_ndjson: bool) -> bool:
    """Return whether the full parser may block the event loop for too long with this content."""
    # Estimate the number of values from the number of separators: commas, and in NDJSON also line breaks.
    separator_count = content.count(b",") + (content.count(b"\n") if is_ndjson else 0)
    return len(content) > SLOW_BYTES_MAX or separator_count > SLOW_VALUES_MAX


def _durable_callback(meta: RequestMeta, result: ParseResult, reply: Reply) -> Callable[[Unavailable | None], None]:
    """Return the callback that the journal calls after the fsync or a failure, and that answers the client."""
    # The callback must not keep the result, so that its lines can be freed before the fsync (docs/decisions/0006).
    accepted_count = result.accepted_count
    rejected_count = result.rejected_count
    listed_rejections = result.listed_rejections
    refusal = result.refusal

    def on_durable(failure: Unavailable | None) -> None:
        # An unreadable body is refused even after a success, which only means that its rejection is durable.
        error = refusal if failure is None else failure
        if error is None:
            reply(receipt_response(meta.scope, accepted_count, rejected_count, listed_rejections, origin=meta.origin))
        else:
            reply(error_response(meta.scope, error))

    return on_durable


class _IngestApp:
    """The ASGI application of the route: CORS preflights and deliveries."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            response = await answer_preflight(Request(scope))
            await response(scope, receive, send)
        else:
            endpoint: IngestEndpoint = scope["state"]["ingest_endpoint"]
            await endpoint.read_and_ingest(scope, receive, send)


ROUTES = [Route(INGEST_PATH, _IngestApp(), methods=["POST", "OPTIONS"])]
_ERROR_REASONS = (
    *ACCESS_REASONS,
    *BODY_REASONS,
    Reason.EMPTY,
    Reason.OUT_OF_SCOPE,
    Reason.TOO_MANY_EVENTS,
    Reason.NOTHING_ACCEPTED,
    *JOURNAL_REASONS,
)


def operations(settings: Settings) -> list[Operation]:
    """Describe the route."""
    return [
        Operation(
            method="post",
            path=INGEST_PATH,
            id="sendEvents",
            summary="Store events durably: one envelope, an array of envelopes, NDJSON or a delivery",
            success=Success(
                202,
                "The events are durable. Delete them from the client's queue.",
                {"application/json": ref("Receipt")},
            ),
            error_reasons=_ERROR_REASONS,
            key_kinds=(KeyKind.INGEST, KeyKind.ADMIN),
            is_key_header_optional=True,
            parameters=[content_encoding()],
            request_body=_request_body(settings),
        ),
        Operation(
            method="options",
            path=INGEST_PATH,
            id="preflightEvents",
            summary="Answer a CORS preflight, without a key",
            success=Success(204, "Pages of this origin may send events.", {}),
            error_reasons=(Reason.WRONG_ORIGIN, *ANY_REQUEST_REASONS),
            parameters=[parameter("Origin", TEXT, location="header")],
        ),
    ]


def _request_body(settings: Settings) -> dict[str, Schema]:
    """Return the schemas of a body by media type."""
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
