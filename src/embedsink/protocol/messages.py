"""The messages of the protocol (spec 6) as types: eight events (6.4), six actions (6.5) and their envelope (6.1).

`x-filter` and `x-feedback` are extensions of ours, which the spec does not have.

The types are TypedDicts, not models: validation costs 1 µs an event instead of 3.6, and the journal gets the validated
objects unchanged. Types are strict (`"3"` is not 3). An optional field may be absent or null. Unknown fields are
accepted, because the vendor may extend its protocol before embedsink does.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from pydantic.plugin._schema_validator import PluggableSchemaValidator
from pydantic_core import SchemaValidator

# Before Python 3.12, pydantic accepts a TypedDict with config only from typing_extensions.
from typing_extensions import TypedDict

# Validators only check. Their output is discarded, so unknown fields are ignored instead of collected.
_ignore_unknown_fields = with_config(ConfigDict(strict=True, extra="ignore"))
_forbid_unknown_fields = with_config(ConfigDict(strict=True, extra="forbid"))

Surface = Literal["dashboard", "app", "chat"]
Direction = Literal["event", "action"]

# The largest integer that every JSON implementation reads exactly (RFC 7493, section 2.2).
SAFE_INTEGER_MAX = 2**53 - 1
SafeInteger = Annotated[int, Field(ge=-SAFE_INTEGER_MAX, le=SAFE_INTEGER_MAX)]
Number = Annotated[float, Field(allow_inf_nan=False)]
# Epoch milliseconds of the years 1 to 9999, the range of Python's `datetime`.
Timestamp = Annotated[float, Field(ge=-62_135_596_800_000, le=253_402_300_799_999)]
Uuid = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")]
# The vendor of an embed, such as `looker`.
VENDOR_PATTERN = r"^[a-z0-9-]{1,32}$"
Vendor = Annotated[str, Field(pattern=VENDOR_PATTERN)]
FilterUrlParameter = Annotated[str, Field(pattern=r"^f_[^.=]+\.[^=]+=[\s\S]")]
FILTER_NAME_CHARACTERS_MAX = 256
# Each filter of an event is a row of the report `filters`.
FILTERS_MAX = 100
Filters = Annotated[
    dict[Annotated[str, Field(max_length=FILTER_NAME_CHARACTERS_MAX)], Any], Field(max_length=FILTERS_MAX)
]
# The number of reasons is limited, because each one becomes a journal line.
LOST_REASONS_MAX = 32
Lost = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[int, Field(ge=0, le=SAFE_INTEGER_MAX)]],
    Field(max_length=LOST_REASONS_MAX),
]


@_ignore_unknown_fields
class Ready(TypedDict):
    """The embed has authenticated and mounted; once per session."""

    embedTenant: str | None
    deploymentId: SafeInteger | None
    mode: Literal["signed", "private"]
    surface: Surface
    publicId: NotRequired[str | None]


@_ignore_unknown_fields
class View(TypedDict):
    """A surface is viewed: on load, and on each navigation inside it."""

    surface: Surface
    path: str
    publicId: NotRequired[str | None]
    title: NotRequired[str | None]


@_ignore_unknown_fields
class Navigate(TypedDict):
    """The viewer changes the route inside the embed."""

    path: str
    previousPath: NotRequired[str | None]


@_ignore_unknown_fields
class DashboardLoaded(TypedDict):
    """All widgets of a dashboard have rendered."""

    publicId: NotRequired[str | None]
    widgetCount: NotRequired[Number | None]
    loadDurationMs: NotRequired[Number | None]


@_ignore_unknown_fields
class Download(TypedDict):
    """The viewer exports data. The event does not contain the exported rows."""

    format: Literal["csv", "xlsx", "png", "pdf"]
    target: Literal["widget", "dashboard"]
    widgetId: NotRequired[str | None]
    title: NotRequired[str | None]
    rowCount: NotRequired[Number | None]


@_ignore_unknown_fields
class Drilldown(TypedDict):
    """The viewer drills into a measure."""

    member: str
    value: NotRequired[Any]
    widgetId: NotRequired[str | None]


@_ignore_unknown_fields
class AiQuery(TypedDict):
    """A stage of a natural-language query."""

    query: str
    status: Literal["submitted", "completed", "error"]
    chatId: NotRequired[str | None]
    agentId: NotRequired[str | None]


@_ignore_unknown_fields
class Error(TypedDict):
    """The embed shows an error. A `fatal` error ended the whole surface."""

    message: str
    name: NotRequired[str | None]
    context: NotRequired[str | None]
    fatal: NotRequired[bool | None]


@_ignore_unknown_fields
class FilterChange(TypedDict):
    """An extension of ours: the viewer changes filters. `filters` has the filters that the vendor reports, by name."""

    filters: NotRequired[Filters | None]
    path: NotRequired[str | None]


@_ignore_unknown_fields
class Feedback(TypedDict):
    """An extension of ours: the viewer rates the answer to the last question of a chat."""

    chatId: str
    rating: Literal["up", "down"]
    text: NotRequired[str | None]


@_ignore_unknown_fields
class SetColorScheme(TypedDict):
    """Switch the color scheme. `auto` follows the viewer's system."""

    scheme: Literal["light", "dark", "auto"]


@_ignore_unknown_fields
class SetTheme(TypedDict):
    """Apply a brand theme. Spec 6.5 names only the common fields; a theme may have others."""

    embedTheme: NotRequired[dict[str, Any] | None]
    primaryColor: NotRequired[Any]
    borderRadius: NotRequired[Any]
    font: NotRequired[Any]


@_ignore_unknown_fields
class SetLocale(TypedDict):
    """Switch the language of the embed."""

    locale: str


@_ignore_unknown_fields
class SetFilter(TypedDict):
    """Set a filter of a dashboard: `f_<semantic_view>.<dimension>=<JSON>`."""

    filterUrlParameter: FilterUrlParameter


@_ignore_unknown_fields
class NavigateTo(TypedDict):
    """Navigate the embed to one of its paths."""

    path: str


@_ignore_unknown_fields
class Refresh(TypedDict):
    """Run the embed's queries again. The payload is empty."""


@_forbid_unknown_fields
class Context(TypedDict, total=False):
    """The context from the host page. It is not part of the vendor's protocol, so an unknown field is an error."""

    deployment: SafeInteger | None
    session: str | None
    viewer: str | None
    tenant: str | None
    page: str | None
    vendor: Vendor | None


@_forbid_unknown_fields
class Delivery(TypedDict, total=False):
    """A request body: envelopes and their shared context. An unknown field is an error."""

    sentAt: Timestamp | None
    context: Context | None
    events: Required[list[Any]]
    lost: Lost | None
    key: str | None
    optedOut: bool | None


CONTEXT_FIELDS = frozenset(Context.__annotations__)
DELIVERY_FIELDS = frozenset(Delivery.__annotations__)

DASHBOARD_ONLY = frozenset({"dashboard"})
SURFACES = frozenset(get_args(Surface))


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message type: its payload, its direction, and the surfaces that may send it. Actions have no surface."""

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
    # Extensions of ours (docs/wire.md).
    "x-filter": MessageType(FilterChange, "event", SURFACES),
    "x-feedback": MessageType(Feedback, "event", SURFACES),
}
ACTIONS: dict[str, MessageType] = {
    "set-color-scheme": MessageType(SetColorScheme, "action"),
    "set-theme": MessageType(SetTheme, "action"),
    "set-locale": MessageType(SetLocale, "action"),
    "set-filter": MessageType(SetFilter, "action"),
    "navigate": MessageType(NavigateTo, "action"),
    "refresh": MessageType(Refresh, "action"),
}
# The values of all payload fields that have a list of values.
ENUMERATED_VALUES = frozenset(
    value
    for message_type in (*EVENTS.values(), *ACTIONS.values())
    for annotation in message_type.payload.__annotations__.values()
    for value in get_args(annotation)
    if isinstance(value, str)
)
ENVELOPE_FIELDS = frozenset({"id", "seq", "source", "direction", "type", "payload", "timestamp", "surface"})

Validator = SchemaValidator | PluggableSchemaValidator


@dataclass(frozen=True, slots=True)
class Catalog:
    """The message types of one vendor.

    Args:
        source: the `source` of all envelopes.
        types: the message types by their full names, such as `svc:event:view`.
        known_fields: the payload fields that have columns of their own, by full type name.
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
    """Return the message types of the vendor with this service name, such as `svc` in `svc:event:view`."""
    source = f"{service_name}-embed"
    types = {f"{service_name}:event:{name}": message_type for name, message_type in EVENTS.items()}
    types |= {f"{service_name}:action:{name}": message_type for name, message_type in ACTIONS.items()}
    envelope_types = {name: _envelope_type(name, message_type, source) for name, message_type in types.items()}
    any_envelope: Any = Annotated[Union[tuple(envelope_types.values())], Field(discriminator="type")]  # noqa: UP007
    # Fail at the first invalid envelope: one is enough to leave the fast path.
    list_adapter: TypeAdapter[Any] = TypeAdapter(Annotated[list[any_envelope], Field(fail_fast=True)])
    validators = {name: TypeAdapter(envelope_type).validator for name, envelope_type in envelope_types.items()}
    return Catalog(
        source=source,
        types=types,
        known_fields={name: _known_fields(message_type) for name, message_type in types.items()},
        envelope_validators=validators,
        list_validator=list_adapter.validator,
        envelope_types=envelope_types,
    )


def is_safe_integer(value: object) -> bool:
    """Return whether a value is an integer that every JSON implementation reads exactly; False for a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= SAFE_INTEGER_MAX


def _envelope_type(name: str, message_type: MessageType, source: str) -> Any:
    """Return the TypedDict of a message type's envelope (spec 6.1), with the optional fields `id` and `seq`."""
    surfaces = tuple(sorted(message_type.surfaces))
    surface: Any = Required[Literal[surfaces]] if surfaces else NotRequired[None]  # Actions have no surface.
    fields: dict[str, Any] = {
        "source": Required[Literal[source]],
        "direction": Required[Literal[message_type.direction]],
        "type": Required[Literal[name]],
        "payload": Required[message_type.payload],
        "timestamp": Required[Timestamp],
        "surface": surface,
        "id": NotRequired[Uuid | None],
        "seq": NotRequired[Annotated[int, Field(ge=0, le=SAFE_INTEGER_MAX)] | None],
    }
    # Call it through Any: mypy requires the fields of a TypedDict to be written out.
    typed_dict: Any = TypedDict
    envelope = typed_dict(message_type.payload.__name__ + "Envelope", fields)
    envelope.__doc__ = message_type.payload.__doc__
    return _ignore_unknown_fields(envelope)


def _known_fields(message_type: MessageType) -> frozenset[str]:
    """Return the payload fields that have columns of their own. All other fields are stored together as JSON.

    A theme may have any fields (spec 6.5), so all of them are stored as JSON.
    """
    if message_type.payload is SetTheme:
        return frozenset()
    return frozenset(message_type.payload.__annotations__)
