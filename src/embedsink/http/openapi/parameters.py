"""The parameters that several operations share."""

from collections.abc import Sequence

from embedsink.auth.parsing import DEPLOYMENT_MAX
from embedsink.http.openapi.parts import Schema, array
from embedsink.http.query_params import OUTCOMES
from embedsink.reports.pagination import LIMIT_MAX
from embedsink.reports.scope import INTERVALS, SURFACES

DEPLOYMENT: Schema = {"type": "integer", "minimum": -DEPLOYMENT_MAX, "maximum": DEPLOYMENT_MAX}

SWITCH: Schema = {"enum": ["on", "off"]}


def parameter(name: str, schema: Schema, description: str = "", *, place: str = "query") -> Schema:
    """A Parameter Object (OpenAPI 3.1.0, section 4.8.12); those of the path are required."""
    described = {"name": name, "in": place, "schema": schema, "required": place == "path"}
    return described | ({"description": description} if description else {})


def limit_parameter(description: str, default: int, most: int) -> Schema:
    """How many rows."""
    return parameter("limit", {"type": "integer", "minimum": 1, "maximum": most, "default": default}, description)


def known_tag() -> Schema:
    """The tag of what the reader has."""
    tag = {"type": "string", "pattern": '^(W/)?"[!#-~]*"$'}
    return parameter("If-None-Match", tag, "The ETag of the answer that you have.", place="header")


def content_encoding() -> Schema:
    """How a body is compressed."""
    return parameter("Content-Encoding", {"enum": ["gzip", "identity"]}, place="header")


def scope_parameters() -> Sequence[Schema]:
    """What is looked at."""
    instant = "A date, an instant (ISO 8601) or a span back from now such as 7d."
    return [
        parameter("since", {"type": "string"}, f"Only what happened then or later. {instant}"),
        parameter("until", {"type": "string"}, f"Only what happened before. {instant}"),
        parameter("deployment", array(DEPLOYMENT), "Only these; repeat it for several."),
        parameter("tenant", {"type": "string"}, "Only this one."),
    ]


def arrival_parameters() -> Sequence[Schema]:
    """Which of what arrived."""
    return [
        parameter("session", {"type": "string"}, "Only of this session."),
        parameter("type", {"type": "string", "examples": ["view"]}, "Only of this type, with or without its prefix."),
        parameter("key", {"type": "string"}, "Only what was sent with the key of this id."),
        parameter("outcome", {"enum": list(OUTCOMES)}, "Only what became this."),
    ]


def report_parameters() -> Sequence[Schema]:
    """The scope of a report, and how its rows are written."""
    zone = "Where days begin at midnight, and by whose clocks times without a zone are (IANA). Default: UTC."
    return [
        *scope_parameters(),
        parameter("surface", {"enum": list(SURFACES)}, "Only this one."),
        parameter("interval", {"enum": list(INTERVALS)}, "The length of a period. Default: day."),
        parameter("timezone", {"type": "string", "examples": ["Europe/Berlin"]}, zone),
        parameter("guard", SWITCH, "CSV: whether text that looks like a formula is disarmed. Default: on."),
        parameter("bom", SWITCH, "CSV: whether it begins with a byte-order mark, as Excel needs it. Default: off."),
    ]


def rows_parameters() -> Sequence[Schema]:
    """Which of its columns and rows."""
    bounds = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}
    return [
        parameter("columns", {"type": "string", "examples": ["surface,view_count"]}, "Only these, with commas."),
        parameter("limit", bounds, "Most rows in the answer. Rows with an arrival then come in its order."),
        parameter("cursor", {"type": "string"}, "The next page, where rows have an arrival: from X-Next-Cursor."),
    ]
