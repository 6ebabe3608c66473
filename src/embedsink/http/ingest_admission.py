"""The admission of a delivery: checks of its transport, key, size and rates, before its body is parsed."""

from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.types import Receive, Scope

from embedsink.auth.credentials import Credentials
from embedsink.auth.keys import Key, KeyKind
from embedsink.engine import Engine, now_ms
from embedsink.errors import Refused
from embedsink.http.anonymous_limits import AnonymousLimits
from embedsink.http.authentication import check_found, check_kind, check_origin, find_key, parse_bearer_token
from embedsink.http.client_address import client_address
from embedsink.http.media_type import parse_media_type
from embedsink.http.rate_limiter import RateLimiter, Sender
from embedsink.http.transport import check_transport
from embedsink.http.wire.body_tokens import find_body_tokens
from embedsink.http.wire.request_body import ANONYMOUS_BYTES_MAX, BodyReader
from embedsink.ingest.pipeline import ParseJob, ParseResult, inflate_prefix
from embedsink.reasons import Reason
from embedsink.settings import Settings

NDJSON = "application/x-ndjson"
MEDIA_TYPES = ("application/json", "text/plain", NDJSON)
# A worker parses larger bodies. A valid body of this size takes the event loop half a millisecond.
LOOP_BYTES_MAX = 32_768
_UNKNOWN_SENDER = Sender("")


@dataclass(slots=True)
class RequestMeta:
    """The properties of an ingest request before its body is parsed.

    Args:
        scope: the ASGI scope.
        engine: the open data folder.
        credentials: the credentials that the server accepts.
        header_token: the token of the `Authorization` header, if any.
        body_token: the token that was found in the body, if the header is missing.
        origin: the origin of the page; several origins are joined, and match no key.
        content_type: the `Content-Type`.
        encoding: the `Content-Encoding`, in lower case.
        length: the declared length in bytes; 0 if unknown.
        charged_bytes: the bytes that the rate limiter has charged so far.
        key: the sender's key, once it is found.
        sender: the sender, once its key is found.
        is_ndjson: whether the body is NDJSON.
        is_opted_out: whether the viewer has opted out, by the header `Sec-GPC: 1` (Global Privacy Control).
    """

    scope: Scope
    engine: Engine
    credentials: Credentials
    header_token: str | None = None
    body_token: str | None = None
    origin: str | None = None
    content_type: str = ""
    encoding: str = ""
    length: int = 0
    charged_bytes: int = 0
    key: Key | None = None
    sender: Sender = _UNKNOWN_SENDER
    is_ndjson: bool = False
    is_opted_out: bool = False

    @classmethod
    def parse(cls, scope: Scope) -> "RequestMeta":
        """Parse the headers of a request.

        Raises:
            Refused: there are several `Authorization` headers (`two_credentials`), the URL contains a key, or the
                header is not a bearer token (`bad_credential`).
        """
        state = scope["state"]
        meta = cls(scope, state["engine"], state["credentials"])
        authorization: list[str] = []
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization.append(value.decode("latin-1"))
            elif name == b"origin":
                origin = value.decode("latin-1")
                # A joined text matches no key's origin.
                meta.origin = origin if meta.origin is None else f"{meta.origin}, {origin}"
            elif name == b"content-type":
                meta.content_type = value.decode("latin-1")
            elif name == b"content-encoding":
                # Several lines are one list (RFC 9110, section 5.3).
                encoding = value.decode("latin-1").strip().lower()
                meta.encoding = f"{meta.encoding}, {encoding}" if meta.encoding else encoding
            elif name == b"content-length":
                meta.length = int(value)
            elif name == b"sec-gpc":
                # Several headers are one list (RFC 9110, section 5.3).
                meta.is_opted_out |= b"1" in map(bytes.strip, value.split(b","))
        meta.header_token = parse_bearer_token(authorization, scope["query_string"].decode("latin-1"))
        return meta

    @property
    def valid_key(self) -> Key:
        """The sender's key, which is known once `admit_body` has returned."""
        assert self.key is not None  # noqa: S101  a bug otherwise
        return self.key

    def parse_job(self, body: bytes) -> ParseJob:
        """Return the parameters for parsing a body."""
        key = self.valid_key
        return ParseJob(
            body=body,
            encoding=self.encoding,
            is_ndjson=self.is_ndjson,
            received_at=now_ms(),
            key_id=key.key_id,
            scope=key.scope,
            privacy=self.engine.privacy,
            is_opted_out=self.is_opted_out,
        )


class Admission:
    """Admits deliveries within the limits of a server. Other endpoints share its limits on bodies and rates."""

    def __init__(self, settings: Settings) -> None:
        self.bodies = BodyReader(settings)
        self.rates = RateLimiter(
            settings.rate_events_per_s,
            bytes_per_s=settings.rate_bytes_per_s,
            address_bytes_per_s=settings.rate_address_bytes_per_s,
        )
        self.anonymous_limits = AnonymousLimits(settings.rate_anonymous_per_s)

    def admit(self, scope: Scope) -> RequestMeta:
        """Check the headers of a request. A key in the body is checked later, in `read` or `admit_body`.

        Raises:
            Refused: the transport, the key, the media type, the encoding or the length is not allowed.
            Unavailable: the key or the address exceeds its rate (`rate_limited`).
        """
        check_transport(scope)
        meta = RequestMeta.parse(scope)
        if meta.header_token is not None:
            self._authenticate(meta, find_key(meta.header_token, meta.credentials))
        meta.is_ndjson = parse_media_type(meta.content_type, MEDIA_TYPES) == NDJSON
        self.bodies.check_headers(length=meta.length, encoding=meta.encoding)
        if meta.key is not None:
            if meta.length > LOOP_BYTES_MAX:  # A worker will parse the body. Such work has a separate rate.
                self.rates.check_work(meta.sender)
            self.rates.admit(meta.sender, meta.length)
            meta.charged_bytes = meta.length
        elif meta.length > ANONYMOUS_BYTES_MAX:
            # Don't read a large body from an address that exceeds its rate. A cost of 0 only checks the rate. If the
            # key is invalid, the address is charged later.
            rate_error = self.anonymous_limits.charge(scope, cost=0)
            if rate_error is not None:
                raise rate_error
        return meta

    async def read_body(self, request: Request, sender: Sender) -> tuple[bytes, str]:
        """Return the body of a request that is not a delivery, without decoding it, and its `Content-Encoding`.

        Raises:
            Refused: the encoding, the size or the duration of the body is not allowed.
            Unavailable: the sender exceeds its rate (`rate_limited`), or too many bytes are in memory (`overloaded`).
        """
        headers = request.headers
        encoding = ", ".join(coding.strip().lower() for coding in headers.getlist("content-encoding"))
        declared_bytes = int(headers.get("content-length", 0))
        self.bodies.check_headers(length=declared_bytes, encoding=encoding)
        self.rates.check_work(sender)  # Refuses a sender with too many rejected bytes.
        self.rates.admit(sender, declared_bytes)
        body = await self.bodies.read(request.receive, sender)
        undeclared_bytes = max(0, len(body) - declared_bytes)  # A chunked body declares no length.
        self.rates.charge_bytes(sender, undeclared_bytes)
        return body, encoding

    async def read(self, meta: RequestMeta, receive: Receive) -> bytes:
        """Read the body within its limits.

        Raises:
            Refused: the body is too large or too slow, or its key is not allowed.
            Unavailable: too many bytes of bodies are in memory or the server stops (`overloaded`), or the key exceeds
                its rate (`rate_limited`).
            ClientDisconnect: the client has disconnected.
        """
        if meta.key is not None:
            return await self.bodies.read(receive, meta.sender)
        # The key is in the body. `authenticate` is called early, with the first bytes of a large body that arrives in
        # parts. For other bodies, `admit_body` authenticates the sender.
        authenticate = partial(self._authenticate_by_body, meta)
        return await self.bodies.read(receive, Sender(client_address(meta.scope)), authenticate=authenticate)

    def admit_body(self, meta: RequestMeta, body: bytes) -> None:
        """Check a complete body before it is parsed: the key, the size, and the rate of the sender.

        Raises:
            Refused: the key or the size is not allowed.
            Unavailable: the sender exceeds its rate (`rate_limited`).
        """
        if meta.key is None:
            self._authenticate_by_body(meta, body)
        # `admit` has already checked and charged a declared length.
        uncharged_bytes = len(body) - meta.charged_bytes
        if uncharged_bytes > 0:
            self.bodies.check_size(len(body))
            self.rates.charge_bytes(meta.sender, uncharged_bytes)

    def check_key(self, meta: RequestMeta, result: ParseResult) -> Key:
        """Return the sender's key, after checking that the parser found the token that `_authenticate_by_body` found.

        They may differ: `_authenticate_by_body` searches the bytes without parsing, and may find a token in an event.

        Raises:
            Refused: header and body both contain a key (`two_credentials`), the body contains a valid key besides that
                of the delivery (`bad_credential`), the parser reached no key (`no_credential`), or the body was refused
                before parsing.
        """
        if result.body_token == meta.body_token:  # Both are None if only the header contains a key.
            return meta.valid_key
        if meta.body_token is None:
            raise Refused(Reason.TWO_CREDENTIALS, "key: is in the body and in the header. Send it once.")
        if result.body_token is not None:
            detail = "key: the body contains another valid key. Send one key."
            raise Refused(Reason.BAD_CREDENTIAL, detail)
        if result.refusal is not None and not result.reasons:
            raise result.refusal  # The whole body was refused, for example because its gzip is truncated.
        # The parser did not reach a key. Such a body is not stored, not even in the quarantine.
        cause = f" {result.refusal}" if result.refusal is not None else ""
        detail = f"authorization: is missing, and the body contains no key that can be read.{cause}"
        raise Refused(Reason.NO_CREDENTIAL, detail)

    def _authenticate_by_body(self, meta: RequestMeta, beginning: bytes) -> Sender:
        """Find the key in the first bytes of a body, and check the key. Return the sender.

        Raises:
            Refused: the bytes contain no key (`no_credential`), no live key (`bad_credential`), or a key that may not
                send events from this origin (`wrong_kind`, `wrong_origin`).
            Unavailable: the key exceeds its rate (`rate_limited`).
        """
        # The argument may be a whole body.
        beginning = beginning[:ANONYMOUS_BYTES_MAX]
        if meta.encoding == "gzip":
            beginning = inflate_prefix(beginning, bytes_max=ANONYMOUS_BYTES_MAX)
        tokens = list(find_body_tokens(beginning))
        if not tokens:
            detail = f"the first {ANONYMOUS_BYTES_MAX:,} bytes of the body contain no key"
            raise Refused(
                Reason.NO_CREDENTIAL,
                f"authorization: is missing, and {detail}. Send a key in the header or in the body.",
            )
        # Fields of events may look like a key, so prefer a valid one. Access tokens are accepted in the header only.
        found = [(token, meta.credentials.find_api_key(token)) for token in tokens]
        meta.body_token, key = next((one for one in found if one[1] is not None), found[0])
        self._authenticate(meta, check_found(key))
        self.rates.admit(meta.sender, 0)  # `admit_body` charges the bytes.
        return meta.sender

    def _authenticate(self, meta: RequestMeta, key: Key) -> None:
        """Store the key and the sender in `meta`. Check that the key may send events from this origin."""
        meta.key = key
        meta.sender = Sender(client_address(meta.scope), key.key_id)
        meta.scope["state"]["key_id"] = key.key_id  # Log lines and error responses use it.
        check_kind(key, (KeyKind.INGEST,))
        check_origin(key, meta.origin)
