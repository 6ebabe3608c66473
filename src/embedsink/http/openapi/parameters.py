"""The parameters that several operations share."""

from collections.abc import Sequence

from embedsink.auth.parsing import DEPLOYMENT_MAX
from embedsink.http.openapi.parts import TEXT, Schema, array
from embedsink.http.query_params import OUTCOMES
from embedsink.reports.catalog import reports_with_dimensions
from embedsink.reports.pagination import LIMIT_MAX
from embedsink.reports.scope import DIMENSIONS, INTERNAL, INTERVALS, SURFACES

DEPLOYMENT: Schema = {"type": "integer", "minimum": -DEPLOYMENT_MAX, "maximum": DEPLOYMENT_MAX}
SWITCH: Schema = {"enum": ["on", "off"]}


def parameter(name: str, schema: Schema, description: str = "", *, location: str = "query") -> Schema:
    """Return a Parameter Object (OpenAPI 3.1.0, section 4.8.12). Path parameters are required."""
    parameter_object: Schema = {"name": name, "in": location, "schema": schema, "required": location == "path"}
    if description:
        parameter_object["description"] = description
    return parameter_object


def limit_parameter(description: str, default: int, maximum: int) -> Schema:
    """Return the parameter `limit`."""
    return parameter("limit", {"type": "integer", "minimum": 1, "maximum": maximum, "default": default}, description)


def if_none_match() -> Schema:
    """Return the parameter `If-None-Match`."""
    tag = {"type": "string", "pattern": '^(W/)?"[!#-~]*"$'}  # An `entity-tag` (RFC 9110, section 8.8.3) in ASCII.
    return parameter("If-None-Match", tag, "The ETag of the response that the client has stored.", location="header")


def content_encoding() -> Schema:
    """Return the parameter `Content-Encoding`."""
    return parameter("Content-Encoding", {"enum": ["gzip", "identity"]}, location="header")


def timezone_parameter() -> Schema:
    """Return the parameter `timezone`."""
    meaning = (
        "The IANA time zone in which days begin at midnight. It also applies to times without a zone. Default: UTC."
    )
    return parameter("timezone", {"type": "string", "examples": ["Europe/Berlin"]}, meaning)


def surface_parameter() -> Schema:
    """Return the parameter `surface`."""
    return parameter("surface", {"enum": list(SURFACES)}, "Only this surface.")


def vendor_parameter() -> Schema:
    """Return the parameter `vendor`."""
    return parameter("vendor", {"type": "string", "examples": ["looker"]}, "Only embeds of this vendor.")


def internal_parameter() -> Schema:
    """Return the parameter `internal`."""
    meaning = "Whether events of internal people count. Default: exclude."
    return parameter("internal", {"enum": list(INTERNAL)}, meaning)


def scope_parameters() -> Sequence[Schema]:
    """Return the parameters of a period, deployments and a tenant."""
    instant = "A date, an ISO 8601 time, or a time span before now such as 7d."
    return [
        parameter("since", TEXT, f"The start of the period, inclusive. {instant}"),
        parameter("until", TEXT, f"The end of the period, exclusive. {instant}"),
        *deployment_parameters(),
    ]


def deployment_parameters() -> Sequence[Schema]:
    """Return the parameters of deployments and a tenant."""
    return [
        parameter("deployment", array(DEPLOYMENT), "Only this deployment. Repeat the parameter for several."),
        parameter("tenant", TEXT, "Only this tenant."),
    ]


def event_filter_parameters() -> Sequence[Schema]:
    """Return the parameters that filter received events."""
    return [
        parameter("session", TEXT, "Only this session."),
        parameter("type", {"type": "string", "examples": ["view"]}, "Only this type, with or without its prefix."),
        parameter("key", TEXT, "Only events that were sent with the key that has this id."),
        parameter("outcome", {"enum": list(OUTCOMES)}, "Only events with this outcome."),
    ]


def report_parameters() -> Sequence[Schema]:
    """Return the parameters of a report's scope and of its CSV format."""
    guard = "CSV: whether to escape text that looks like a formula. Default: on."
    bom = "CSV: whether to begin with a byte-order mark, which Excel needs. Default: off."
    return [
        *scope_parameters(),
        surface_parameter(),
        vendor_parameter(),
        internal_parameter(),
        parameter("interval", {"enum": list(INTERVALS)}, "The length of each period in the report. Default: day."),
        timezone_parameter(),
        parameter("guard", SWITCH, guard),
        parameter("bom", SWITCH, bom),
    ]


def directory_parameters() -> Sequence[Schema]:
    """Return the parameters that relate events to the directory."""
    reports = f"Only for {', '.join(reports_with_dimensions())}."
    by = {"type": "string", "pattern": f"^({'|'.join(DIMENSIONS)})(,({'|'.join(DIMENSIONS)}))?$"}
    rows = f"Rows per department, per group, or both, separated by a comma. {reports}"
    return [parameter("by", by, rows), *directory_filter_parameters()]


def directory_filter_parameters() -> Sequence[Schema]:
    """Return the parameters of a department and a group."""
    reports = f"Only for {', '.join(reports_with_dimensions())}."
    return [
        parameter("department", TEXT, f"Only viewers in this department. {reports}"),
        parameter("group", TEXT, f"Only viewers in this group. {reports}"),
    ]


def page_parameters() -> Sequence[Schema]:
    """Return the parameters that select columns and a page of rows."""
    limit = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}
    limit_description = (
        "The maximum number of rows. With a limit, a report that has the column `ingest_seq` is sorted by it."
    )
    columns = {"type": "string", "examples": ["surface,view_count"]}
    cursor = (
        "The position of the next page, from X-Next-Cursor. Allowed only for reports that have the column `ingest_seq`."
    )
    return [
        parameter("columns", columns, "Only these columns, separated by commas."),
        parameter("limit", limit, limit_description),
        parameter("cursor", TEXT, cursor),
    ]
