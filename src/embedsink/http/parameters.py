"""The parameters of an address: each is known, and stands as often as it may."""

from collections.abc import Sequence

from starlette.datastructures import QueryParams

from embedsink.envelope.body import has_bad_text
from embedsink.envelope.catalog import ACTIONS, EVENTS
from embedsink.errors import Refused, instead, nearest, quote
from embedsink.keys import Key
from embedsink.reasons import Reason
from embedsink.reports import PARAMETERS, RowsAsked, Scope, Style, parse_number, parse_scope

# The others stand once: of two periods nobody can say which was meant.
REPEATABLE = ("deployment",)
STYLE = ("guard", "bom")
ROWS = ("columns", "limit", "cursor")
# What narrows that which arrives.
ARRIVALS = ("deployment", "tenant", "session", "type", "key", "fate")
FATES = ("accepted", "quarantined")
_TYPES = (*EVENTS, *ACTIONS)


def check_parameters(query: QueryParams, known: Sequence[str]) -> None:
    """Raises Refused (`bad_parameter`) for a parameter that is not known, or that stands twice."""
    for name in query:
        if name not in known:
            there_are = instead(name, known) if known else "There are none here."
            raise Refused(Reason.BAD_PARAMETER, f"parameter {quote(name)} does not exist. {there_are}")
        if name not in REPEATABLE and len(query.getlist(name)) > 1:
            raise Refused(Reason.BAD_PARAMETER, f"{name}: stands more than once in the address. Give it once.")


def limit_of(name: str, text: str | None, *, default: int, most: int, least: int = 1) -> int:
    """How many rows, or seconds, are asked for; `default` where nobody asks.

    Raises:
        Refused: `bad_parameter`.
    """
    number = parse_number(name, text, least=least, most=most)
    return default if number is None else number


def scope_of(query: QueryParams, key: Key) -> Scope:
    """The scope that is asked for, within the key's."""
    asked = {name: query.get(name) for name in PARAMETERS}
    return parse_scope(asked, deployments=query.getlist("deployment"), allowed=key.deployments)


def arrivals_of(query: QueryParams, key: Key) -> dict[str, object]:
    """Which arrivals are asked for, within the key's scope, as session variables."""
    scope = parse_scope(
        {name: query.get(name) for name in ("since", "until", "tenant")},
        deployments=query.getlist("deployment"),
        allowed=key.deployments,
    )
    return {
        # A tuple, so that two who ask the same can be told.
        "deployments": None if scope.deployments is None else tuple(sorted(scope.deployments)),
        "since": scope.since,
        "until": scope.until,
        "tenant": scope.tenant,
        "session": text_of(query, "session"),
        "type": _type_of(query),
        "key_id": text_of(query, "key"),
        "fate": _choice_of(query, "fate", FATES),
    }


def _type_of(query: QueryParams) -> str | None:
    """A type as it stands in a row: `svc:event:view` and `view` are the same here.

    What was rejected may have a type that does not exist, but what is like one that does is a slip.
    """
    asked = text_of(query, "type")
    if asked is None:
        return None
    name = asked.rpartition(":")[2]
    if name not in _TYPES and query.get("fate") != "quarantined" and (meant := nearest(name, _TYPES)):
        rejected = "Where such a one was rejected, it shows with fate=quarantined."
        raise Refused(Reason.BAD_PARAMETER, f'type: {quote(name)} does not exist. Did you mean "{meant}"? {rejected}')
    return name


def style_of(query: QueryParams) -> Style:
    """What is special about a CSV."""
    return Style(guard=is_on(query, "guard", "on"), bom=is_on(query, "bom", "off"))


def rows_of(query: QueryParams, name: str) -> RowsAsked:
    """Which columns and rows of a report are asked for. A cursor belongs to the report and its scope, in any format."""
    scope = sorted((name, value) for name, value in query.multi_items() if name in PARAMETERS)
    columns, limit, cursor = (query.get(part) for part in ROWS)
    return RowsAsked(columns, limit, cursor, question=repr((name, scope)))


def _choice_of(query: QueryParams, name: str, choices: Sequence[str]) -> str | None:
    value = query.get(name)
    if value is not None and value not in choices:
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(value)} is not one of {', '.join(choices)}.")
    return value


def text_of(query: QueryParams, name: str) -> str | None:
    """What a column has to be equal to.

    Raises:
        Refused: `bad_parameter`.
    """
    text = query.get(name)
    if has_bad_text(text):
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(text)} holds a NUL or a lone surrogate. Remove it.")
    return text


def is_on(query: QueryParams, name: str, default: str) -> bool:
    """Whether something is switched on.

    Raises:
        Refused: `bad_parameter`.
    """
    value = query.get(name, default)
    if value not in ("on", "off"):
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(value)} is not one of on, off.")
    return value == "on"
