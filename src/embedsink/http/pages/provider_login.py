"""`/login/start`, `/login/callback` and `/login/backchannel`: log in and out at an OpenID provider."""

import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from embedsink.audit.entry import ANONYMOUS, Action, Entry, Outcome, Via
from embedsink.auth.identity import CALLBACK_PATH
from embedsink.auth.keys import Key
from embedsink.auth.sessions import LoggedOut, Sessions
from embedsink.errors import Refused, Unavailable, redact_keys
from embedsink.http.anonymous_limits import AnonymousLimits, Bucket
from embedsink.http.audit_entries import entry_of
from embedsink.http.client_address import client_address
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import parameter
from embedsink.http.openapi.parts import TEXT, object_of
from embedsink.http.pages.login import BODY_REASONS, FORM_TYPE, LoginPage, redirect_path
from embedsink.http.query_params import check_parameters
from embedsink.http.session_cookie import cookie_header, read_cookie
from embedsink.http.transport import check_transport
from embedsink.reasons import Reason
from embedsink.settings import Settings

if TYPE_CHECKING:
    from embedsink.auth.login_provider import LoginFailed, LoginProvider, PendingLogin  # loads cryptography

log = logging.getLogger(__name__)

START_PATH, BACKCHANNEL_PATH = "/login/start", "/login/backchannel"
# How long a person may take at the provider.
PENDING_S_MAX = 600
# The cost of an exchange of a code, in requests without a key.
EXCHANGE_COST = 50
_PENDING_COOKIE = "embedsink_pending_login"
# Browsers ignore a cookie of more than 4,096 bytes, with its name and attributes.
COOKIE_CHARACTERS_MAX = 3_800
# The number of finished logins that are remembered.
_FINISHED_MAX = 10_000
_BUSY = "The server can't log you in now. Try again in a minute."
_NOT_PENDING = "This login has expired, or began in another browser. Log in again."


class PendingLogins:
    """The logins that have begun, in signed cookies: a stranger who begins many takes no memory.

    Each one can be finished once.
    """

    def __init__(self) -> None:
        self._serializer = URLSafeTimedSerializer(secrets.token_bytes(32))
        self._finished_states: dict[str, None] = {}  # an ordered set, the oldest first

    def cookie(self, request: Request, fields: dict[str, str]) -> str:
        """Return the `Set-Cookie` value of a login that begins. A path that is too long for a cookie is left out."""
        value = self._serializer.dumps(fields)
        if len(value) > COOKIE_CHARACTERS_MAX:
            value = self._serializer.dumps(fields | {"next_path": redirect_path(None)})
        return cookie_header(request, value, PENDING_S_MAX, name=_PENDING_COOKIE)

    def read(self, request: Request) -> dict[str, str] | None:
        """Return the fields of the browser's pending login; None without one."""
        try:
            fields: dict[str, str] = self._serializer.loads(
                read_cookie(request, _PENDING_COOKIE) or "", max_age=PENDING_S_MAX
            )
        except BadData:
            return None
        return fields

    def finish(self, fields: dict[str, str]) -> bool:
        """Return whether a login was still pending. From now on, it is finished."""
        state = fields["state"]
        if state in self._finished_states:
            return False
        if len(self._finished_states) >= _FINISHED_MAX:
            del self._finished_states[next(iter(self._finished_states))]
        self._finished_states[state] = None
        return True


async def start(request: Request) -> Response:
    """Send the browser to the provider's login page."""
    from embedsink.auth.login_provider import LoginFailed, PendingLogin

    check_transport(request.scope)
    check_parameters(request.query_params, ("next",))
    page, provider = _page_and_provider(request)
    next_path = redirect_path(request.query_params.get("next"))
    pending = PendingLogin(next_path)
    try:
        url = await provider.authorization_url(pending)
    except LoginFailed as error:
        return await _failed(request, error, next_path)
    fields = {name: getattr(pending, name) for name in PendingLogin.__slots__}
    cookie = request.state.pending_logins.cookie(request, fields)
    return RedirectResponse(url, 303, page.headers | {"Set-Cookie": cookie})


async def finish(request: Request) -> Response:
    """Log in a person whom the provider has sent back (OpenID Connect Core 1.0, section 3.1.2.5)."""
    from embedsink.auth.login_provider import DENIED, LoginFailed, PendingLogin

    check_transport(request.scope)
    page, provider = _page_and_provider(request)
    if request.method == "HEAD":
        return Response(headers=page.headers)  # A HEAD must have no effect (RFC 9110, section 9.2.1).
    pending_logins: PendingLogins = request.state.pending_logins
    fields = pending_logins.read(request)
    if fields is None or not _has_state(request.query_params, fields["state"]):
        error = LoginFailed(_NOT_PENDING, "the state is not that of a pending login, or a parameter is given twice.")
        # A later login of this browser may still be pending.
        return await _failed(request, error, "", is_finished=False)
    # Without a limit, one client could send the provider hundreds of requests a second in this server's name.
    limits: AnonymousLimits = request.state.admission.anonymous_limits
    rate_error = limits.charge(request.scope, cost=EXCHANGE_COST, bucket=Bucket.LOGINS)
    if rate_error is not None:
        error = LoginFailed(_BUSY, "too many logins from this address.", status=503)
        return await _failed(request, error, fields["next_path"], is_finished=False)
    if not pending_logins.finish(fields):
        return await _failed(request, LoginFailed(_NOT_PENDING, "the login is already finished."), "")
    pending = PendingLogin(**fields)
    try:
        key, token = await _log_in(request, provider, pending)
    except LoginFailed as error:
        return await _failed(request, error, pending.next_path)
    except LoggedOut as error:
        return await _failed(request, LoginFailed(DENIED, str(error)), pending.next_path)
    except Unavailable as error:  # Too many logins, or the login can't be recorded.
        return await _failed(request, LoginFailed(_BUSY, str(error), status=503), pending.next_path)
    request.scope["state"]["key_id"] = key.key_id  # for log lines
    log.info("login", extra={"key_id": key.key_id, "label": key.label, "kinds": sorted(key.kinds)})
    response = page.redirect(request, pending.next_path, token)
    response.headers.append("Set-Cookie", _without_pending(request))
    return response


def _has_state(query: QueryParams, state: str) -> bool:
    """Return whether a response has the state of a pending login, and no parameter twice (RFC 6749, section 3.1)."""
    is_same = secrets.compare_digest(query.get("state", "").encode(), state.encode())
    return is_same and all(len(query.getlist(name)) <= 1 for name in ("state", "code", "iss"))


async def _log_in(request: Request, provider: "LoginProvider", pending: "PendingLogin") -> tuple[Key, str]:
    """Exchange the code of a response for a key, and start a session. Return the key and the token of the session.

    Raises:
        LoginFailed: the provider denies the login.
        LoggedOut: the person has logged out at the provider meanwhile.
        Unavailable: too many people log in, or the login can't be recorded in the audit trail.
    """
    from embedsink.auth.login_provider import DENIED, LoginFailed

    query = request.query_params
    provider.check_response(query.get("iss"))
    if "code" not in query:
        cause = " ".join(query.get(name, "") for name in ("error", "error_description")).strip()
        raise LoginFailed(DENIED, f"the provider answered: {cause or 'no code'}")
    async with request.state.engine.limiters.logins.slot(client_address(request.scope)):
        key, person = await provider.log_in(query["code"], pending)
    detail: dict[str, Any] = {"kinds": sorted(key.kinds), "issuer": person.issuer, "subject": person.subject}
    if key.scope.is_limited:
        detail["scope"] = key.scope.variables()
    entry = replace(entry_of(request, key, Action.LOGIN, detail=detail), via=Via.PROVIDER)
    # A logout at the provider must find the session, also while the entry is written.
    sessions: Sessions = request.state.credentials.sessions
    token, former_token = sessions.start(key, person), read_cookie(request)
    try:
        await request.state.engine.audit.record(entry)
    except BaseException:
        sessions.end(token)
        raise
    if former_token is not None:
        sessions.end(former_token)
    return key, token


async def end_at_provider(request: Request) -> Response:
    """End the sessions of a person who logged out at the provider (OpenID Connect Back-Channel Logout 1.0)."""
    from embedsink.auth.signed_tokens import InvalidToken

    check_transport(request.scope)
    page, provider = _page_and_provider(request)
    form = await page.fields(request)
    try:
        person = await provider.parse_logout_token(form.get("logout_token", ""))
    except InvalidToken as error:
        raise Refused(Reason.BAD_PARAMETER, f"logout_token: {error}. Send a logout token of the provider.") from None
    count = request.state.credentials.sessions.end_of_person(person)
    log.info("logout_at_provider", extra={"sessions": count})
    if count:
        entry = Entry(
            action=Action.SESSION_ENDED,
            actor="provider",
            via=Via.PROVIDER,
            client_address=client_address(request.scope),
            target=person.subject or person.session_id,
            detail={"issuer": person.issuer, "sessions": count},
        )
        await request.state.engine.audit.record_or_log(entry)
    return Response(status_code=200, headers={"Cache-Control": "no-store"})


def _page_and_provider(request: Request) -> "tuple[LoginPage, LoginProvider]":
    """Return the login page and the provider. Raise Refused (`not_found`) without a provider."""
    page: LoginPage = request.state.login_page
    provider: LoginProvider | None = request.state.login_provider
    if provider is None:
        raise Refused(Reason.NOT_FOUND, "login: this server has no identity provider. Add [login] to identity.toml.")
    return page, provider


async def _failed(request: Request, error: "LoginFailed", next_path: str, *, is_finished: bool = True) -> Response:
    """Log the cause of a failed login, and show the login page with a message.

    Args:
        request: the request.
        error: the cause.
        next_path: the page to open after the next login.
        is_finished: whether the browser's pending login has ended.
    """
    detail = redact_keys(error.detail)  # The provider's words may contain a token.
    log.warning("login_failed", extra={"detail": detail})
    entry = Entry(
        action=Action.LOGIN_FAILED,
        actor=ANONYMOUS,
        via=Via.PROVIDER,
        client_address=client_address(request.scope),
        outcome=Outcome.REFUSED,
        detail={"cause": detail},
    )
    await request.state.engine.audit.record_or_log(entry)
    page: LoginPage = request.state.login_page
    response = await page.form(request, redirect_path(next_path), error=str(error), status=error.status)
    if is_finished:
        response.headers.append("Set-Cookie", _without_pending(request))
    return response


def _without_pending(request: Request) -> str:
    """Return the `Set-Cookie` value that deletes a pending login."""
    return cookie_header(request, "", 0, name=_PENDING_COOKIE)


ROUTES = [
    Route(START_PATH, start, methods=["GET"]),
    Route(CALLBACK_PATH, finish, methods=["GET"]),
    Route(BACKCHANNEL_PATH, end_at_provider, methods=["POST"]),
]
_REASONS = (Reason.PLAIN_HTTP, Reason.NOT_FOUND, *ANY_REQUEST_REASONS)


def operations(_: Settings) -> list[Operation]:
    """Return the OpenAPI operations of the routes."""
    statuses: dict[int, Any] = {
        401: "The login failed. The response is the login page with an error message.",
        503: (
            "The provider can't be reached, or the login can't be recorded. The response is the login page with an "
            "error message."
        ),
    }
    return [
        Operation(
            method="get",
            path=START_PATH,
            id="startLogin",
            summary="Begin a login at the identity provider",
            success=Success(303, "Redirects to the provider.", {}),
            error_reasons=_REASONS,
            parameters=[parameter("next", TEXT, "The page to open after the login.")],
            response_headers={"Set-Cookie": "The pending login; HttpOnly."},
            other_statuses={503: statuses[503]},
        ),
        Operation(
            method="get",
            path=CALLBACK_PATH,
            id="finishLogin",
            summary="Log in a person whom the identity provider has sent back",
            success=Success(303, "Redirects to the dashboards, with the cookie.", {}),
            error_reasons=_REASONS,
            parameters=[
                parameter("code", TEXT, "The authorization code."),
                parameter("state", TEXT, "The value that the server sent to the provider."),
                parameter("iss", TEXT, "The issuer (RFC 9207)."),
                parameter("error", TEXT, "The code of an error at the provider."),
                parameter("error_description", TEXT, "The text of an error at the provider."),
            ],
            response_headers={"Set-Cookie": "The session; HttpOnly."},
            other_statuses=statuses,
        ),
        Operation(
            method="post",
            path=BACKCHANNEL_PATH,
            id="endLoginAtProvider",
            summary="End the sessions of a person who logged out at the identity provider",
            success=Success(200, "The sessions have ended.", {}),
            error_reasons=(*_REASONS, Reason.NOT_READY, *BODY_REASONS),
            request_body={FORM_TYPE: object_of({"logout_token": TEXT})},
        ),
    ]
