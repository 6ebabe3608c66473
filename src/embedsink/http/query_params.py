"""The parameters of an address: each is known, and stands as often as it may."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from embedsink.auth.key import Key
from embedsink.errors import Refused, instead, nearest, quote
from embedsink.protocol.messages import ACTIONS, EVENTS
from embedsink.protocol.strict_json import has_bad_text
from embedsink.reasons import Reason
from embedsink.reports.formats import Style
from embedsink.reports.opaque_numbers import OpaqueNumbers
from embedsink.reports.pagination import RowsAsked, parse_number
from embedsink.reports.scope import PARAMETERS, parse_scope
from embedsink.reports.scope import Scope as ReportScope

# The others stand once: of two periods nobody can say which was meant.
REPEATABLE = ("deployment",)
CSV_PARAMETERS = ("guard", "bom")
PAGE_PARAMETERS = ("columns", "limit", "cursor")
# What narrows that which arrives.
EVENT_FILTERS = ("deployment", "tenant", "session", "type", "key", "outcome")
OUTCOMES = ("accepted", "quarantined")
_TYPES = (*EVENTS, *ACTIONS)
# Of any address, whatever it leads to.
QUERY_BYTES_MAX = 8_192
PARAMETERS_MAX = 64


class QueryLimits:
    """ASGI middleware: refuse a query string that is too long to be parsed on the event loop.

    Args:
        app: whatever comes behind.
        refuse: makes the answer to a refusal.
    """

    def __init__(self, app: ASGIApp, *, refuse: Callable[[Request, Any], Awaitable[Response]]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with `bad_parameter`."""
        excess = _excess_of(scope["query_string"]) if scope["type"] == "http" else None
        if excess is None:
            await self._app(scope, receive, send)
        else:
            answer = await self._refuse(Request(scope), Refused(Reason.BAD_PARAMETER, excess))
            await answer(scope, receive, send)


def _excess_of(query: bytes) -> str | None:
    if len(query) > QUERY_BYTES_MAX:
        return f"address: its query has {len(query):,} bytes; the limit is {QUERY_BYTES_MAX:,}. Shorten it."
    count = query.count(b"&") + 1
    if count > PARAMETERS_MAX:
        return f"address: has {count:,} parameters; the limit is {PARAMETERS_MAX}. Leave some out."
    return None


def check_parameters(query: QueryParams, known: Sequence[str]) -> None:
    """Raises Refused (`bad_parameter`) for a parameter that is not known, or that stands twice."""
    for name in query:
        if name not in known:
            there_are = instead(name, known) if known else "There are none here."
            raise Refused(Reason.BAD_PARAMETER, f"parameter {quote(name)} does not exist. {there_are}")
        if name not in REPEATABLE and len(query.getlist(name)) > 1:
            raise Refused(Reason.BAD_PARAMETER, f"{name}: stands more than once in the address. Give it once.")


def parse_limit(name: str, text: str | None, *, default: int, most: int, least: int = 1) -> int:
    """How many rows, or seconds, are asked for; `default` where nobody asks.

    Raises:
        Refused: `bad_parameter`.
    """
    number = parse_number(name, text, least=least, most=most)
    return default if number is None else number


def parse_report_scope(query: QueryParams, key: Key) -> ReportScope:
    """The scope that is asked for, within the key's."""
    asked = {name: query.get(name) for name in PARAMETERS}
    return parse_scope(asked, deployments=query.getlist("deployment"), allowed=key.deployments)


def parse_event_filter(query: QueryParams, key: Key) -> dict[str, object]:
    """Which arrivals are asked for, within the key's scope, as session variables."""
    scope = parse_scope(
        {name: query.get(name) for name in ("since", "until", "tenant")},
        deployments=query.getlist("deployment"),
        allowed=key.deployments,
    )
    return {
        "hides_arrival": scope.hides_arrival,
        # A tuple, so that two who ask the same can be told.
        "deployments": None if scope.deployments is None else tuple(sorted(scope.deployments)),
        "since": scope.since,
        "until": scope.until,
        "tenant": scope.tenant,
        "session": parse_text(query, "session"),
        "type": _parse_type(query),
        "key_id": parse_text(query, "key"),
        "outcome": _parse_choice(query, "outcome", OUTCOMES),
    }


def _parse_type(query: QueryParams) -> str | None:
    """A type as it stands in a row: `svc:event:view` and `view` are the same here.

    What was rejected may have a type that does not exist, but what is like one that does is a slip.
    """
    asked = parse_text(query, "type")
    if asked is None:
        return None
    name = asked.rpartition(":")[2]
    if name not in _TYPES and query.get("outcome") != "quarantined" and (meant := nearest(name, _TYPES)):
        rejected = "Where such a one was rejected, it shows with outcome=quarantined."
        raise Refused(Reason.BAD_PARAMETER, f'type: {quote(name)} does not exist. Did you mean "{meant}"? {rejected}')
    return name


def parse_csv_style(query: QueryParams) -> Style:
    """What is special about a CSV."""
    return Style(guard=parse_switch(query, "guard", "on"), bom=parse_switch(query, "bom", "off"))


def parse_page(query: QueryParams, name: str, opaque: OpaqueNumbers | None) -> RowsAsked:
    """Which columns and rows of a report are asked for. A cursor belongs to the report and its scope, in any format.

    Args:
        query: the parameters.
        name: of the report.
        opaque: what cursors are written with for a key with a scope.
    """
    scope = sorted((name, value) for name, value in query.multi_items() if name in PARAMETERS)
    columns, limit, cursor = (query.get(part) for part in PAGE_PARAMETERS)
    return RowsAsked(columns, limit, cursor, question=repr((name, scope)), opaque=opaque)


def _parse_choice(query: QueryParams, name: str, choices: Sequence[str]) -> str | None:
    value = query.get(name)
    if value is not None and value not in choices:
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(value)} is not one of {', '.join(choices)}.")
    return value


def parse_text(query: QueryParams, name: str) -> str | None:
    """What a column has to be equal to.

    Raises:
        Refused: `bad_parameter`.
    """
    text = query.get(name)
    if has_bad_text(text):
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(text)} holds a NUL or a lone surrogate. Remove it.")
    return text


def parse_switch(query: QueryParams, name: str, default: str) -> bool:
    """Whether something is switched on.

    Raises:
        Refused: `bad_parameter`.
    """
    value = query.get(name, default)
    if value not in ("on", "off"):
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(value)} is not one of on, off.")
    return value == "on"
