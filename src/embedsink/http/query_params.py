"""Query parameters: limits on the whole query, a check for unknown names, and parsers for shared parameters."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from embedsink.errors import Refused, nearest, preview, suggestion
from embedsink.key_scope import KeyScope
from embedsink.protocol.messages import ACTIONS, EVENTS
from embedsink.reasons import Reason
from embedsink.reports.csv_writer import CsvOptions
from embedsink.reports.number_cipher import NumberCipher
from embedsink.reports.pagination import PageRequest, parse_integer
from embedsink.reports.parameters import parse_choice, parse_switch, parse_text
from embedsink.reports.scope import DIRECTORY_PARAMETERS, PARAMETERS, parse_scope
from embedsink.reports.scope import Scope as ReportScope

# All other parameters may be given only once.
REPEATABLE = ("deployment",)
CSV_PARAMETERS = ("guard", "bom")
PAGE_PARAMETERS = ("columns", "limit", "cursor")
# The filters for received events.
EVENT_FILTERS = ("deployment", "tenant", "session", "type", "key", "outcome")
OUTCOMES = ("accepted", "quarantined")
_TYPES = (*EVENTS, *ACTIONS)
# The limits for all paths.
QUERY_BYTES_MAX = 8_192
PARAMETERS_MAX = 64


class QueryLimits:
    """ASGI middleware that refuses query strings that take too long to parse on the event loop.

    Args:
        app: the wrapped application.
        refuse: builds the response to a refused request.
    """

    def __init__(self, app: ASGIApp, *, refuse: Callable[[Request, Any], Awaitable[Response]]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with `bad_parameter`."""
        error_message = _query_size_error(scope["query_string"]) if scope["type"] == "http" else None
        if error_message is None:
            await self._app(scope, receive, send)
        else:
            response = await self._refuse(Request(scope), Refused(Reason.BAD_PARAMETER, error_message))
            await response(scope, receive, send)


def _query_size_error(query: bytes) -> str | None:
    """Return the error message for a query string beyond the limits; None if it is within the limits."""
    if len(query) > QUERY_BYTES_MAX:
        return f"url: its query has {len(query):,} bytes; the limit is {QUERY_BYTES_MAX:,}. Shorten it."
    parameter_count = query.count(b"&") + 1
    if parameter_count > PARAMETERS_MAX:
        return f"url: has {parameter_count:,} parameters; the limit is {PARAMETERS_MAX}. Leave some out."
    return None


def check_parameters(query: QueryParams, allowed: Sequence[str]) -> None:
    """Raise Refused (`bad_parameter`) if a parameter is not allowed, or is repeated and not in `REPEATABLE`."""
    for name in query:
        if name not in allowed:
            advice = suggestion(name, allowed) if allowed else "This path has no parameters."
            raise Refused(Reason.BAD_PARAMETER, f"parameter {preview(name)} does not exist. {advice}")
        if name not in REPEATABLE and len(query.getlist(name)) > 1:
            raise Refused(Reason.BAD_PARAMETER, f"{name}: is given more than once. Give it once.")


def parse_bounded_integer(name: str, text: str | None, *, default: int, maximum: int, minimum: int = 1) -> int:
    """Return the integer of a parameter, such as a number of rows or seconds; `default` if the parameter is missing.

    Raises:
        Refused: the text is not an integer from `minimum` to `maximum` (`bad_parameter`).
    """
    number = parse_integer(name, text, minimum=minimum, maximum=maximum)
    return default if number is None else number


def parse_report_scope(query: QueryParams, allowed: KeyScope) -> ReportScope:
    """Return the requested scope, within the scope that the key allows (`Privacy.stored_scope`).

    Call `check_parameters` first: this function reads all scope parameters, even those that the path does not allow.

    Raises:
        Refused: a parameter is invalid (`bad_parameter`), or a deployment or a tenant is outside the key's scope
            (`out_of_scope`).
    """
    params = {name: query.get(name) for name in (*PARAMETERS, *DIRECTORY_PARAMETERS)}
    return parse_scope(params, deployments=query.getlist("deployment"), allowed=allowed)


def parse_event_filter(query: QueryParams, allowed: KeyScope) -> dict[str, object]:
    """Return the filter for received events, within the scope that the key allows, as session variables of the query.

    Raises:
        Refused: a parameter is invalid (`bad_parameter`), or a deployment or a tenant is outside the key's scope
            (`out_of_scope`).
    """
    scope = parse_report_scope(query, allowed)
    return {
        "hides_ingest_seq": scope.hides_ingest_seq,  # true for a key with a scope
        **KeyScope(scope.deployments, scope.tenants, scope.shows_names).variables(),
        "since": scope.since,
        "until": scope.until,
        "tenant": scope.tenant,
        "internal": "include",  # The inspector shows developers their own events.
        "session": parse_text("session", query.get("session")),
        "type": _parse_type(query),
        "key_id": parse_text("key", query.get("key")),
        "outcome": parse_choice("outcome", query.get("outcome"), OUTCOMES),
    }


def _parse_type(query: QueryParams) -> str | None:
    """Return the requested type without its prefix, such as `view` for `svc:event:view`; None without the parameter.

    Rejections may have any type. So an unknown type is refused only if it is similar to a known type, which is probably
    the intended one. With `outcome=quarantined`, any type is allowed.

    Raises:
        Refused: the type is probably a typing error, or contains a NUL or a lone surrogate (`bad_parameter`).
    """
    text = parse_text("type", query.get("type"))
    if text is None:
        return None
    name = text.rpartition(":")[2]
    if name in _TYPES or query.get("outcome") == "quarantined":
        return name
    similar_type = nearest(name, _TYPES)
    if similar_type is not None:
        advice = f'Did you mean "{similar_type}"? To list rejections with this type, add outcome=quarantined.'
        raise Refused(Reason.BAD_PARAMETER, f"type: {preview(name)} does not exist. {advice}")
    return name


def parse_csv_options(query: QueryParams) -> CsvOptions:
    """Return the options of the CSV format.

    Raises:
        Refused: an option is neither on nor off (`bad_parameter`).
    """
    return CsvOptions(
        guard=parse_switch("guard", query.get("guard"), default=True),
        bom=parse_switch("bom", query.get("bom"), default=False),
    )


def parse_page(query: QueryParams, name: str, cipher: NumberCipher | None) -> PageRequest:
    """Return the requested columns and page. A cursor is valid for one report and scope, with any columns and format.

    Args:
        query: the query parameters.
        name: the name of the report.
        cipher: encrypts the cursors for a key with a scope; None for other keys.
    """
    names = (*PARAMETERS, *DIRECTORY_PARAMETERS)
    scope_params = sorted((parameter, value) for parameter, value in query.multi_items() if parameter in names)
    return PageRequest(
        query.get("columns"),
        query.get("limit"),
        query.get("cursor"),
        query_id=repr((name, scope_params)),
        cipher=cipher,
    )
