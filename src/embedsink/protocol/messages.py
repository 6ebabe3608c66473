"""Spec 6 as types: the eight events (6.4), the six actions (6.5) and the envelope around them (6.1).

TypedDicts, not models: validation then costs 1 µs an event instead of 3.6, and what was validated is what
is journaled, untouched. All types are strict (no `"3"` for 3); an optional field may be absent or null; unknown
fields pass, because the vendor's protocol may grow before we do.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from pydantic.plugin._schema_validator import PluggableSchemaValidator
from pydantic_core import SchemaValidator

# Pydantic takes TypedDict with config from here on Python below 3.12.
from typing_extensions import TypedDict

# Not "allow": what a validator makes is thrown away, so it need not collect the unknown fields.
_open = with_config(ConfigDict(strict=True, extra="ignore"))
_closed = with_config(ConfigDict(strict=True, extra="forbid"))

Surface = Literal["dashboard", "app", "chat"]
Direction = Literal["event", "action"]

# Integers that every JSON implementation agrees on (RFC 7493, section 2.2).
SafeInteger = Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
# Epoch milliseconds of the years 1 to 9999: what RFC 3339 can write, and so every reader can read.
Timestamp = Annotated[float, Field(ge=-62_135_596_800_000, le=253_402_300_799_999)]
Uuid = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")]
FilterUrlParameter = Annotated[str, Field(pattern=r"^f_[^.=]+\.[^=]+=[\s\S]")]
# One journal line each, so there can't be many.
LOST_REASONS_MAX = 32
Lost = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[int, Field(ge=0, le=2**53 - 1)]],
    Field(max_length=LOST_REASONS_MAX),
]


@_open
class Ready(TypedDict):
    """The embed has authenticated and mounted; once per session."""

    embedTenant: str | None
    deploymentId: SafeInteger | None
    mode: Literal["signed", "private"]
    surface: Surface
    publicId: NotRequired[str | None]


@_open
class View(TypedDict):
    """A surface is viewed: on load, and on each navigation inside."""

    surface: Surface
    path: str
    publicId: NotRequired[str | None]
    title: NotRequired[str | None]


@_open
class Navigate(TypedDict):
    """The viewer changes the route inside the embed."""

    path: str
    previousPath: NotRequired[str | None]


@_open
class DashboardLoaded(TypedDict):
    """All widgets of a dashboard have rendered."""

    publicId: NotRequired[str | None]
    widgetCount: NotRequired[Number | None]
    loadDurationMs: NotRequired[Number | None]


@_open
class Download(TypedDict):
    """The viewer exports something; the exported rows themselves are never in it."""

    format: Literal["csv", "xlsx", "png", "pdf"]
    target: Literal["widget", "dashboard"]
    widgetId: NotRequired[str | None]
    title: NotRequired[str | None]
    rowCount: NotRequired[Number | None]


@_open
class Drilldown(TypedDict):
    """The viewer drills into a measure."""

    member: str
    value: NotRequired[Any]
    widgetId: NotRequired[str | None]


@_open
class AiQuery(TypedDict):
    """One stage in the life of a natural-language query."""

    query: str
    status: Literal["submitted", "completed", "error"]
    chatId: NotRequired[str | None]
    agentId: NotRequired[str | None]


@_open
class Error(TypedDict):
    """The embed shows an error; `fatal` took down the whole surface."""

    message: str
    name: NotRequired[str | None]
    context: NotRequired[str | None]
    fatal: NotRequired[bool | None]


@_open
class SetColorScheme(TypedDict):
    """Switch the color scheme; `auto` follows the viewer's system."""

    scheme: Literal["light", "dark", "auto"]


@_open
class SetTheme(TypedDict):
    """Apply a brand theme. Spec 6.5 names the common fields only: the theme is open, and kept whole."""

    embedTheme: NotRequired[dict[str, Any] | None]
    primaryColor: NotRequired[Any]
    borderRadius: NotRequired[Any]
    font: NotRequired[Any]


@_open
class SetLocale(TypedDict):
    """Switch the language of the embed."""

    locale: str


@_open
class SetFilter(TypedDict):
    """Push a filter, `f_<semantic_view>.<dimension>=<JSON>`, into a dashboard."""

    filterUrlParameter: FilterUrlParameter


@_open
class NavigateTo(TypedDict):
    """Send the embed to one of its paths."""

    path: str


@_open
class Refresh(TypedDict):
    """Run the embed's queries again. The payload is empty."""


@_closed
class Context(TypedDict, total=False):
    """What the host page knows. It is ours, not the vendor's: an unknown field is a typing error, and said so."""

    deployment: SafeInteger | None
    session: str | None
    viewer: str | None
    tenant: str | None
    page: str | None


@_closed
class Delivery(TypedDict, total=False):
    """One request body: envelopes and what they share. Unknown fields are refused, as in the context."""

    sentAt: Timestamp | None
    context: Context | None
    events: Required[list[Any]]
    lost: Lost | None
    key: str | None


CONTEXT_FIELDS = frozenset(Context.__annotations__)
DELIVERY_FIELDS = frozenset(Delivery.__annotations__)

DASHBOARD_ONLY = frozenset({"dashboard"})
EVERYWHERE = frozenset(get_args(Surface))


@dataclass(frozen=True, slots=True)
class Kind:
    """One entry of the catalog: the payload's type, and where it may happen (empty: an action, nowhere)."""

    payload: type
    direction: Direction
    surfaces: frozenset[str] = frozenset()


EVENTS: dict[str, Kind] = {
    "ready": Kind(Ready, "event", EVERYWHERE),
    "view": Kind(View, "event", EVERYWHERE),
    "navigate": Kind(Navigate, "event", EVERYWHERE),
    "dashboard-loaded": Kind(DashboardLoaded, "event", DASHBOARD_ONLY),
    "download": Kind(Download, "event", DASHBOARD_ONLY),
    "drilldown": Kind(Drilldown, "event", DASHBOARD_ONLY),
    "ai-query": Kind(AiQuery, "event", EVERYWHERE),
    "error": Kind(Error, "event", EVERYWHERE),
}
ACTIONS: dict[str, Kind] = {
    "set-color-scheme": Kind(SetColorScheme, "action"),
    "set-theme": Kind(SetTheme, "action"),
    "set-locale": Kind(SetLocale, "action"),
    "set-filter": Kind(SetFilter, "action"),
    "navigate": Kind(NavigateTo, "action"),
    "refresh": Kind(Refresh, "action"),
}
ENVELOPE_FIELDS = frozenset({"id", "seq", "source", "direction", "type", "payload", "timestamp", "surface"})


Validator = SchemaValidator | PluggableSchemaValidator


@dataclass(frozen=True, slots=True)
class Catalog:
    """The protocol as one vendor speaks it: types, validators and known payload fields by full type name."""

    source: str
    kinds: dict[str, Kind]
    known_fields: dict[str, frozenset[str]]
    one: dict[str, Validator]
    many: Validator
    envelope_types: dict[str, Any] = field(repr=False)


delivery_validator = TypeAdapter(Delivery).validator


@lru_cache(maxsize=8)
def catalog_for(service_name: str) -> Catalog:
    """The catalog of the vendor whose identifiers carry this service name (`svc-embed`, `svc:event:view`)."""
    kinds = {f"{service_name}:event:{name}": kind for name, kind in EVENTS.items()}
    kinds |= {f"{service_name}:action:{name}": kind for name, kind in ACTIONS.items()}
    types = {name: _envelope_type(name, kind, f"{service_name}-embed") for name, kind in kinds.items()}
    # One failure is enough to leave the fast path, so the list stops at the first.
    every: Any = Annotated[Union[tuple(types.values())], Field(discriminator="type")]  # noqa: UP007
    many: TypeAdapter[Any] = TypeAdapter(Annotated[list[every], Field(fail_fast=True)])
    return Catalog(
        source=f"{service_name}-embed",
        kinds=kinds,
        known_fields={name: _known_fields(kind) for name, kind in kinds.items()},
        one={name: TypeAdapter(envelope).validator for name, envelope in types.items()},
        many=many.validator,
        envelope_types=types,
    )


def _envelope_type(name: str, kind: Kind, source: str) -> Any:
    """Spec 6.1 for one type; `id` and `seq` are what a delivery may add to it."""
    surface: Any = Required[Literal[tuple(sorted(kind.surfaces))]] if kind.surfaces else NotRequired[None]
    fields: dict[str, Any] = {
        "source": Required[Literal[source]],
        "direction": Required[Literal[kind.direction]],
        "type": Required[Literal[name]],
        "payload": Required[kind.payload],
        "timestamp": Required[Timestamp],
        "surface": surface,
        "id": NotRequired[Uuid | None],
        "seq": NotRequired[Annotated[int, Field(ge=0, le=2**53 - 1)] | None],
    }
    # Called through Any, because mypy wants the fields of a TypedDict written out.
    make: Any = TypedDict
    envelope = make(kind.payload.__name__ + "Envelope", fields)
    envelope.__doc__ = kind.payload.__doc__
    return _open(envelope)


def _known_fields(kind: Kind) -> frozenset[str]:
    """The payload's fields in the catalog. A theme has none: spec 6.5 leaves it open, so it is kept whole as extra."""
    return frozenset() if kind.payload is SetTheme else frozenset(kind.payload.__annotations__)
