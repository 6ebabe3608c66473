"""`/login` and `/logout`: start a session with a read key, and end it."""

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.status import HTTP_401_UNAUTHORIZED

from embedsink.audit.entry import ANONYMOUS, Action, Entry, Outcome, Via
from embedsink.auth.keys import KeyKind
from embedsink.auth.sessions import Sessions
from embedsink.engine import Engine
from embedsink.errors import Refused
from embedsink.http.audit_entries import entry_of
from embedsink.http.authentication import check_kind
from embedsink.http.client_address import client_address
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS, AUDIT_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import parameter
from embedsink.http.openapi.parts import TEXT, html_page, object_of
from embedsink.http.pages.templating import page_headers, render
from embedsink.http.query_params import check_parameters
from embedsink.http.rate_limiter import Sender
from embedsink.http.session_cookie import cookie_header, read_cookie
from embedsink.http.transport import check_own_page, check_transport
from embedsink.http.wire.request_body import BodyReader
from embedsink.reasons import Reason
from embedsink.settings import Settings

DASHBOARDS_PATH = "/dashboards/"
FORM_TYPE = "application/x-www-form-urlencoded"
FIELDS_MAX = 8
FORM_BYTES_MAX = 16_384
_DURATION_UNITS = ((3_600, "hour"), (60, "minute"), (1, "second"))


class LoginPage:
    """The login form."""

    def __init__(self, settings: Settings) -> None:
        self._body_reader = BodyReader(settings.model_copy(update={"body_bytes_max": FORM_BYTES_MAX}))
        self._session_s = settings.login_timeout_s
        self._is_framed = settings.frame_origins != "none"
        self._durations = {
            "duration": _duration_text(settings.login_timeout_s),
            "idle_duration": _duration_text(settings.login_idle_timeout_s),
        }
        self.headers = page_headers(frame_origins=settings.frame_origins) | {"Cache-Control": "no-store"}

    async def fields(self, request: Request) -> dict[str, str]:
        """Return the submitted fields of the form, by name.

        Raises:
            Refused: the media type is not that of a form (`media_type`), or the body is not a form (`bad_parameter`).
            Refused: the body is too large (`body_too_large`), or arrives too slowly (`body_too_slow`).
            Unavailable: too many bodies are in memory, or the server stops (`overloaded`).
        """
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != FORM_TYPE:
            raise Refused(Reason.MEDIA_TYPE, f"content-type: is not {FORM_TYPE}. Send the form as {FORM_TYPE}.")
        try:
            self._body_reader.check_size(int(request.headers.get("content-length", 0)))
            body = await self._body_reader.read(request.receive, Sender(client_address(request.scope)))
        except Refused as refusal:
            if refusal.reason is not Reason.BODY_TOO_LARGE:
                raise
            limit = f"{FORM_BYTES_MAX:,} bytes, the limit of this form"
            detail = f"body: is larger than {limit}. Open /login and submit its form."
            raise Refused(Reason.BODY_TOO_LARGE, detail) from None
        try:
            fields = parse_qs(body.decode(), max_num_fields=FIELDS_MAX)
        except ValueError:
            raise Refused(
                Reason.BAD_PARAMETER,
                f"body: is not a form with at most {FIELDS_MAX} fields. Open /login and submit its form.",
            ) from None
        return {name: values[0] for name, values in fields.items()}  # Ignore repeated fields.

    async def form(self, request: Request, path: str, *, error: str = "", status: int = 401) -> Response:
        """Return the page of the form, which redirects to `path` after the login.

        Args:
            request: the request.
            path: the path of a dashboard page.
            error: the message about a failed login; empty without one.
            status: the status of the response, if there is a message.
        """
        provider = request.state.login_provider
        login = provider.login if provider is not None else None
        variables = {
            "provider": urlsplit(login.issuer).hostname if login is not None else None,
            # The provider sends the browser back to this URL, so begin there.
            "server_url": login.server_url if login is not None else None,
        }
        html = await run_in_threadpool(render, "login.html", next=path, error=error, **variables, **self._durations)
        if not error:
            return HTMLResponse(html, headers=self.headers)
        challenge = {"WWW-Authenticate": 'Bearer realm="embedsink"'} if status == HTTP_401_UNAUTHORIZED else {}
        return HTMLResponse(html, status, headers=self.headers | challenge)

    def redirect(self, request: Request, path: str, token: str) -> Response:
        """Return a redirect to `path` that sets the session cookie. An empty token deletes the cookie."""
        max_age_s = self._session_s if token else 0
        cookie = cookie_header(request, token, max_age_s, is_framed=self._is_framed)
        return RedirectResponse(path, 303, headers=self.headers | {"Set-Cookie": cookie})


def _duration_text(seconds: int) -> str:
    """Return a duration in the largest unit that divides it, such as `12 hours` or `90 minutes`."""
    unit_s, unit = next((unit_s, unit) for unit_s, unit in _DURATION_UNITS if seconds % unit_s == 0)
    count = seconds // unit_s
    return f"{count:,} {unit if count == 1 else f'{unit}s'}"


def redirect_path(requested: str | None) -> str:
    """Return the requested path if it is a dashboard page. Otherwise return the path of the list of dashboards.

    A path that a browser could resolve to another site is not a dashboard page.
    """
    if requested is None or not requested.startswith(DASHBOARDS_PATH):
        return DASHBOARDS_PATH
    # A browser treats a backslash as a slash, and ignores line breaks.
    is_unambiguous = "\\" not in requested and requested.isprintable()
    return requested if is_unambiguous else DASHBOARDS_PATH


async def login(request: Request) -> Response:
    """Show the form (GET), or exchange a key for a cookie (POST)."""
    page: LoginPage = request.state.login_page
    check_transport(request.scope)
    if request.method == "POST":
        return await _submit(request, page)
    check_parameters(request.query_params, ("next",))
    return await page.form(request, redirect_path(request.query_params.get("next")))


async def _submit(request: Request, page: LoginPage) -> Response:
    """Exchange the submitted key for a cookie, or show the form with an error if the key is not a live read key."""
    check_own_page(request)
    fields = await page.fields(request)
    path = redirect_path(fields.get("next"))
    engine: Engine = request.state.engine
    key = engine.keys.find(fields.get("key", "").strip())
    if key is None:
        await engine.audit.record(_failed_entry(request, ANONYMOUS, "", "unknown, expired or revoked key"))
        return await page.form(
            request, path, error="This key is unknown, expired or revoked. Check it, or ask the operator for a new key."
        )
    try:
        check_kind(key, [KeyKind.READ])
    except Refused:
        await engine.audit.record(_failed_entry(request, key.key_id, key.label, f"{key.kind} key"))
        article = "an" if key.kind is KeyKind.INGEST else "a"
        return await page.form(request, path, error=f"This is {article} {key.kind} key. Dashboards need a read key.")
    request.scope["state"]["key_id"] = key.key_id  # for log lines
    detail = {"kinds": sorted(key.kinds)}
    await engine.audit.record(replace(entry_of(request, key, Action.LOGIN, detail=detail), via=Via.PAGE))
    sessions: Sessions = request.state.credentials.sessions
    former_token = read_cookie(request)
    if former_token is not None:
        sessions.end(former_token)
    token = sessions.start(key)
    return page.redirect(request, path, token)


def _failed_entry(request: Request, actor: str, label: str, cause: str) -> Entry:
    """Return the entry of a login that failed."""
    return Entry(
        action=Action.LOGIN_FAILED,
        actor=actor,
        actor_label=label,
        via=Via.PAGE,
        client_address=client_address(request.scope),
        outcome=Outcome.REFUSED,
        detail={"cause": cause},
    )


async def logout(request: Request) -> Response:
    """End the session, delete the cookie, and redirect to the login."""
    check_transport(request.scope)
    check_own_page(request)
    page: LoginPage = request.state.login_page
    token = read_cookie(request)
    key = None
    if token is not None:
        key = request.state.credentials.sessions.find(token)
        request.state.credentials.sessions.end(token)
    if key is not None:
        engine: Engine = request.state.engine
        await engine.audit.record_or_log(entry_of(request, key, Action.LOGOUT))
    return page.redirect(request, "/login", "")


ROUTES = [Route("/login", login, methods=["GET", "POST"]), Route("/logout", logout, methods=["POST"])]
BODY_REASONS = (Reason.MEDIA_TYPE, Reason.BODY_TOO_LARGE, Reason.BODY_TOO_SLOW, Reason.OVERLOADED)
_FORM_REASONS = (Reason.PLAIN_HTTP, Reason.WRONG_ORIGIN, *ANY_REQUEST_REASONS)


def operations(_: Settings) -> list[Operation]:
    """Return the OpenAPI operations of the routes."""
    next_page = parameter(
        "next", {"type": "string", "examples": ["/dashboards/overview"]}, "The page to open after the login."
    )
    return [
        Operation(
            method="get",
            path="/login",
            id="showLogin",
            summary="Show the login form",
            success=Success(200, "The form.", html_page()),
            error_reasons=(Reason.PLAIN_HTTP, *ANY_REQUEST_REASONS),
            parameters=[next_page],
        ),
        Operation(
            method="post",
            path="/login",
            id="login",
            summary=(
                "Log in with a read key. The cookie is valid until it expires or is unused for long, the key expires "
                "or is revoked, or the server restarts"
            ),
            success=Success(303, "Redirects to the dashboards, with the cookie.", {}),
            error_reasons=(*_FORM_REASONS, *BODY_REASONS, *AUDIT_REASONS),
            request_body={FORM_TYPE: object_of({"key": TEXT, "next": TEXT}, optional=("next",))},
            response_headers={"Set-Cookie": "The session; HttpOnly."},
            other_statuses={
                401: "The key is invalid or not a read key. The response is the form with an error message."
            },
        ),
        Operation(
            method="post",
            path="/logout",
            id="logout",
            summary="Log out",
            success=Success(303, "Redirects to the login form.", {}),
            error_reasons=_FORM_REASONS,
        ),
    ]
