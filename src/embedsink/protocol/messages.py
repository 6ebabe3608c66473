"""The messages of the protocol (spec 6) as types: eight events (6.4), six actions (6.5) and their envelope (6.1).

The types are TypedDicts, not models: validation costs 1 µs an event instead of 3.6, and the journal gets the validated
objects unchanged. Types are strict (`"3"` is not 3). An optional field may be absent or null. Unknown fields are
accepted, because the vendor may extend its protocol first.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from pydantic.plugin._schema_validator import PluggableSchemaValidator
from pydantic_core import SchemaValidator

# Before Python 3.12, pydantic accepts a TypedDict with config only from typing_extensions.
from typing_extensions import TypedDict

# Not "allow": the output of the validators is discarded, so they need not collect unknown fields.
_open = with_config(ConfigDict(strict=True, extra="ignore"))
_closed = with_config(ConfigDict(strict=True, extra="forbid"))

Surface = Literal["dashboard", "app", "chat"]
Direction = Literal["event", "action"]

# Integers that every JSON implementation agrees on (RFC 7493, section 2.2).
SafeInteger = Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
# Epoch milliseconds of the years 1 to 9999, the range of RFC 3339.
Timestamp = Annotated[float, Field(ge=-62_135_596_800_000, le=253_402_300_799_999)]
Uuid = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")]
FilterUrlParameter = Annotated[str, Field(pattern=r"^f_[^.=]+\.[^=]+=[\s\S]")]
# The number of reasons is limited, because each one becomes a journal line.
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
    """A surface is viewed: on load, and on each navigation inside it."""

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
    """The viewer exports data. The event does not contain the exported rows."""

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
    """A stage of a natural-language query."""

    query: str
    status: Literal["submitted", "completed", "error"]
    chatId: NotRequired[str | None]
    agentId: NotRequired[str | None]


@_open
class Error(TypedDict):
    """The embed shows an error. A `fatal` error ended the whole surface."""

    message: str
    name: NotRequired[str | None]
    context: NotRequired[str | None]
    fatal: NotRequired[bool | None]


@_open
class SetColorScheme(TypedDict):
    """Switch the color scheme. `auto` follows the viewer's system."""

    scheme: Literal["light", "dark", "auto"]


@_open
class SetTheme(TypedDict):
    """Apply a brand theme. Spec 6.5 names only the common fields; a theme may have others."""

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
    """Set a filter of a dashboard: `f_<semantic_view>.<dimension>=<JSON>`."""

    filterUrlParameter: FilterUrlParameter


@_open
class NavigateTo(TypedDict):
    """Navigate the embed to one of its paths."""

    path: str


@_open
class Refresh(TypedDict):
    """Run the embed's queries again. The payload is empty."""


@_closed
class Context(TypedDict, total=False):
    """The context from the host page. It is not part of the vendor's protocol, so an unknown field is an error."""

    deployment: SafeInteger | None
    session: str | None
    viewer: str | None
    tenant: str | None
    page: str | None


@_closed
class Delivery(TypedDict, total=False):
    """A request body: envelopes and their shared context. An unknown field is an error."""

    sentAt: Timestamp | None
    context: Context | None
    events: Required[list[Any]]
    lost: Lost | None
    key: str | None


CONTEXT_FIELDS = frozenset(Context.__annotations__)
DELIVERY_FIELDS = frozenset(Delivery.__annotations__)

DASHBOARD_ONLY = frozenset({"dashboard"})
SURFACES = frozenset(get_args(Surface))


@dataclass(frozen=True, slots=True)
class MessageType:
    """An entry of the catalog: the type of the payload, and the surfaces that may send it. Actions have none."""

    payload: type
    direction: Direction
    surfaces: frozenset[str] = frozenset()


EVENTS: dict[str, MessageType] = {
    "ready": MessageType(Ready, "event", SURFACES),
    "view": MessageType(View, "event", SURFACES),
    "navigate": MessageType(Navigate, "event", SURFACES),
    "dashboard-loaded": MessageType(DashboardLoaded, "event", DASHBOARD_ONLY),
    "download": MessageType(Download, "event", DASHBOARD_ONLY),
    "drilldown": MessageType(Drilldown, "event", DASHBOARD_ONLY),
    "ai-query": MessageType(AiQuery, "event", SURFACES),
    "error": MessageType(Error, "event", SURFACES),
}
ACTIONS: dict[str, MessageType] = {
    "set-color-scheme": MessageType(SetColorScheme, "action"),
    "set-theme": MessageType(SetTheme, "action"),
    "set-locale": MessageType(SetLocale, "action"),
    "set-filter": MessageType(SetFilter, "action"),
    "navigate": MessageType(NavigateTo, "action"),
    "refresh": MessageType(Refresh, "action"),
}
ENVELOPE_FIELDS = frozenset({"id", "seq", "source", "direction", "type", "payload", "timestamp", "surface"})

Validator = SchemaValidator | PluggableSchemaValidator


@dataclass(frozen=True, slots=True)
class Catalog:
    """The message types of one vendor.

    Args:
        source: the `source` of all envelopes.
        types: the message types by their full names, such as `svc:event:view`.
        known_fields: the payload fields of the spec, by full type name.
        envelope_validators: the validators of single envelopes, by full type name.
        list_validator: the validator of a list of envelopes of any type.
        envelope_types: the TypedDicts of the envelopes, by full type name.
    """

    source: str
    types: dict[str, MessageType]
    known_fields: dict[str, frozenset[str]]
    envelope_validators: dict[str, Validator]
    list_validator: Validator
    envelope_types: dict[str, Any] = field(repr=False)


delivery_validator = TypeAdapter(Delivery).validator


@lru_cache(maxsize=8)
def catalog_for(service_name: str) -> Catalog:
    """Return the catalog of the vendor with this service name, which its identifiers contain (`svc:event:view`)."""
    source = f"{service_name}-embed"
    types = {f"{service_name}:event:{name}": type_ for name, type_ in EVENTS.items()}
    types |= {f"{service_name}:action:{name}": type_ for name, type_ in ACTIONS.items()}
    envelope_types = {name: _envelope_type(name, type_, source) for name, type_ in types.items()}
    any_envelope: Any = Annotated[Union[tuple(envelope_types.values())], Field(discriminator="type")]  # noqa: UP007
    # Fail at the first invalid envelope: one is enough to leave the fast path.
    list_adapter: TypeAdapter[Any] = TypeAdapter(Annotated[list[any_envelope], Field(fail_fast=True)])
    validators = {name: TypeAdapter(envelope_type).validator for name, envelope_type in envelope_types.items()}
    return Catalog(
        source=source,
        types=types,
        known_fields={name: _known_fields(type_) for name, type_ in types.items()},
        envelope_validators=validators,
        list_validator=list_adapter.validator,
        envelope_types=envelope_types,
    )


def _envelope_type(name: str, type_: MessageType, source: str) -> Any:
    """Return the envelope of spec 6.1 for one message type, with `id` and `seq`, which a sender may add."""
    surface: Any = Required[Literal[tuple(sorted(type_.surfaces))]] if type_.surfaces else NotRequired[None]
    fields: dict[str, Any] = {
        "source": Required[Literal[source]],
        "direction": Required[Literal[type_.direction]],
        "type": Required[Literal[name]],
        "payload": Required[type_.payload],
        "timestamp": Required[Timestamp],
        "surface": surface,
        "id": NotRequired[Uuid | None],
        "seq": NotRequired[Annotated[int, Field(ge=0, le=2**53 - 1)] | None],
    }
    # Call it through Any: mypy requires the fields of a TypedDict to be written out.
    typed_dict: Any = TypedDict
    envelope = typed_dict(type_.payload.__name__ + "Envelope", fields)
    envelope.__doc__ = type_.payload.__doc__
    return _open(envelope)


def _known_fields(type_: MessageType) -> frozenset[str]:
    """Return the payload fields that get columns. A theme is open (spec 6.5), so all its fields are stored as extra."""
    return frozenset() if type_.payload is SetTheme else frozenset(type_.payload.__annotations__)
