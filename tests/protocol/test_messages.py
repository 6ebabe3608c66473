"""The catalog agrees with spec 6 in every field. The table is copied from the spec, not from the code.

The types that begin with `x-` are extensions of ours: docs/wire.md has their fields.
"""

from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

from embedsink.protocol.messages import Surface, catalog_for
from embedsink.reports.scope import SURFACES
from tests.support.envelopes import event_or_action, parse_body

# Type, field, presence, and the accepted JSON types or words.
SPEC = """
    event:ready               embedTenant         required  string null
    event:ready               deploymentId        required  integer null
    event:ready               mode                required  signed private
    event:ready               surface             required  dashboard app chat
    event:ready               publicId            optional  string
    event:view                surface             required  dashboard app chat
    event:view                path                required  string
    event:view                publicId            optional  string
    event:view                title               optional  string
    event:navigate            path                required  string
    event:navigate            previousPath        optional  string
    event:dashboard-loaded    publicId            optional  string
    event:dashboard-loaded    widgetCount         optional  integer number
    event:dashboard-loaded    loadDurationMs      optional  integer number
    event:download            format              required  csv xlsx png pdf
    event:download            target              required  widget dashboard
    event:download            widgetId            optional  string
    event:download            title               optional  string
    event:download            rowCount            optional  integer number
    event:drilldown           member              required  string
    event:drilldown           value               optional  string integer number boolean array object
    event:drilldown           widgetId            optional  string
    event:ai-query            query               required  string
    event:ai-query            status              required  submitted completed error
    event:ai-query            chatId              optional  string
    event:ai-query            agentId             optional  string
    event:error               message             required  string
    event:error               name                optional  string
    event:error               context             optional  string
    event:error               fatal               optional  boolean
    event:x-feedback          chatId              required  string
    event:x-feedback          rating              required  up down
    event:x-feedback          text                optional  string
    event:x-filter            filters             optional  object
    event:x-filter            path                optional  string
    action:set-color-scheme   scheme              required  light dark auto
    action:set-theme          embedTheme          optional  object
    action:set-locale         locale              required  string
    action:set-filter         filterUrlParameter  required  f_orders.region=["Bavaria"]
    action:navigate           path                required  string
"""
TYPES_WITHOUT_FIELDS = {"action:refresh"}
DASHBOARD_ONLY = {"event:dashboard-loaded", "event:download", "event:drilldown"}

# By field of an envelope.
REASONS = {
    "source": "wrong_source",
    "direction": "wrong_direction",
    "type": "unknown_type",
    "payload": "bad_field",
    "timestamp": "bad_timestamp",
}
SAMPLES: dict[str, Any] = {
    "string": "text",
    "integer": 3,
    "number": 1.5,
    "boolean": True,
    "array": [1],
    "object": {"a": 1},
    "null": None,
}


class Field(NamedTuple):
    type: str
    name: str
    presence: str
    accepted: frozenset[str]

    def __str__(self) -> str:
        return f"{self.type}.{self.name}"

    @property
    def words(self) -> frozenset[str]:
        """The accepted words of a field that accepts only these."""
        return self.accepted - SAMPLES.keys()


def fields() -> list[Field]:
    rows = [row.split() for row in SPEC.split("\n") if row]
    return [
        Field(row[0], row[1], row[2], frozenset(row[3:] + ["null"] * (row[2] == "optional"))) for row in rows if row
    ]


FIELDS = fields()
TYPES = sorted({field.type for field in FIELDS} | TYPES_WITHOUT_FIELDS)


def rejection_of(envelope: Any) -> tuple[str, str] | None:
    """Return the reason and the path of a rejection; None if the envelope is accepted."""
    rejected = parse_body(envelope).rejected
    return (rejected[0].reason, rejected[0].detail.partition(": ")[0]) if rejected else None


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_a_field_accepts_only_the_values_of_the_spec(field: Field) -> None:
    values = SAMPLES | {word: word for word in field.words}

    rejections = {
        name: rejection_of(event_or_action(field.type, {field.name: value})) for name, value in values.items()
    }
    assert {name for name, rejection in rejections.items() if rejection is None} == field.accepted
    assert set(rejections.values()) <= {None, ("bad_field", f"payload.{field.name}")}


def test_an_event_has_at_most_100_filters() -> None:
    filters = {f"filter {number}": 1 for number in range(100)}
    payloads = [{"filters": filters}, {"filters": filters | {"another": 1}}]
    rejections = [rejection_of(event_or_action("event:x-filter", payload)) for payload in payloads]
    assert rejections == [None, ("bad_field", "payload.filters")]


@pytest.mark.parametrize("field", [field for field in FIELDS if len(field.words) > 1], ids=str)
def test_a_field_with_a_list_of_words_accepts_no_other_word(field: Field) -> None:
    payload = catalog_for("svc").types[f"svc:{field.type}"].payload
    assert set(get_args(get_type_hints(payload)[field.name])) == field.words


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_only_an_optional_field_may_be_absent(field: Field) -> None:
    envelope = event_or_action(field.type)
    envelope["payload"].pop(field.name, None)

    assert rejection_of(envelope) == (None if field.presence == "optional" else ("bad_field", f"payload.{field.name}"))


@pytest.mark.parametrize("type_", TYPES)
def test_a_type_is_accepted_only_on_the_surfaces_of_the_spec(type_: str) -> None:
    envelope = event_or_action(type_)
    surfaces = {"dashboard", "app", "chat", None}
    allowed = {None} if type_.startswith("action:") else {"dashboard"} if type_ in DASHBOARD_ONLY else surfaces - {None}

    rejections = {surface: rejection_of(envelope | {"surface": surface}) for surface in surfaces}
    assert {surface for surface, rejection in rejections.items() if rejection is None} == allowed
    assert {rejections[surface] for surface in surfaces - {None}} <= {None, ("wrong_surface", "surface")}


@pytest.mark.parametrize("type_", TYPES)
def test_events_require_a_surface_and_actions_have_none(type_: str) -> None:
    envelope = event_or_action(type_)
    envelope.pop("surface", None)

    assert rejection_of(envelope) == (None if type_.startswith("action:") else ("bad_field", "surface"))


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize(("field", "reason"), REASONS.items())
def test_all_other_envelope_fields_are_required_and_not_null(type_: str, field: str, reason: str) -> None:
    envelope = event_or_action(type_)
    absent = {name: value for name, value in envelope.items() if name != field}

    assert rejection_of(absent) == rejection_of(absent | {field: None}) == (reason, field)


def test_the_catalog_has_exactly_the_types_of_the_spec() -> None:
    assert sorted(catalog_for("svc").types) == [f"svc:{type_}" for type_ in TYPES]


def test_the_catalog_has_exactly_the_payload_fields_of_the_spec() -> None:
    catalog_fields = {
        (type_.removeprefix("svc:"), name) for type_, names in catalog_for("svc").known_fields.items() for name in names
    }

    # A theme is open, so all its fields are stored as extra.
    assert catalog_fields == {(field.type, field.name) for field in FIELDS if field.type != "action:set-theme"}


def test_every_identifier_contains_the_service_name() -> None:
    catalog = catalog_for("acme")

    assert catalog.source == "acme-embed"
    assert all(name.startswith(("acme:event:", "acme:action:")) for name in catalog.types)


def test_reports_accept_the_surfaces_of_the_protocol() -> None:
    assert get_args(Surface) == SURFACES
