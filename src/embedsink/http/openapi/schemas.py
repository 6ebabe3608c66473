"""`components`: the types of the wire, the answers, and the kinds of keys."""

from typing import Any

from pydantic import TypeAdapter

from embedsink.auth.keys import KeyKind
from embedsink.http.api import dbt_syncs
from embedsink.http.openapi.parts import Schema, array, object_of, one_of, ref
from embedsink.protocol.delivery import REJECTIONS_LISTED_MAX
from embedsink.protocol.messages import Catalog, Delivery, catalog_for
from embedsink.reasons import Reason
from embedsink.reports.recent_events import REJECTED_MAX
from embedsink.settings import Settings

_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_YES_OR_NO: Schema = {"type": "boolean"}


def schemas(settings: Settings) -> dict[str, Schema]:
    """Every schema that operations refer to, by name."""
    catalog = catalog_for(settings.service_name)
    found = _wire_types(catalog, dbt_syncs.result_type(settings.service_name))
    found["Delivery"]["properties"]["events"] |= {"items": ref("Envelope"), "maxItems": settings.events_max}
    mapping = {name: ref(envelope.__name__)["$ref"] for name, envelope in catalog.envelope_types.items()}
    found["Envelope"] = {
        "description": f"One protocol message, as JSON at most {settings.envelope_bytes_max:,} bytes long.",
        "oneOf": [{"$ref": address} for address in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    return dict(sorted((found | _problems() | _receipts() | _readings()).items()))


def security_schemes() -> dict[str, Schema]:
    """The kinds of keys."""
    return {
        f"{kind}Key": {"type": "http", "scheme": "bearer", "description": f"A key of the kind {kind}: es_{kind}_…"}
        for kind in KeyKind
    }


def _wire_types(catalog: Catalog, sync_result: Any) -> dict[str, Schema]:
    types = [*catalog.envelope_types.values(), Delivery, sync_result]
    adapters = [(type_.__name__, "validation", TypeAdapter(type_)) for type_ in types]
    _, together = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    found: dict[str, Schema] = together["$defs"]
    return found


def _problems() -> dict[str, Schema]:
    problem = {"type": _TEXT, "title": _TEXT, "status": _INTEGER, "reason": one_of(Reason), "detail": _TEXT}
    wrong_field = object_of({"field": _TEXT, "detail": _TEXT})
    explanation = {"reason": one_of(Reason), "title": _TEXT, "status": {"type": ["integer", "null"]}, "advice": _TEXT}
    return {
        "Problem": object_of(problem) | {"description": "RFC 9457 problem details."},
        "NothingAccepted": {"allOf": [ref("Problem"), _listing()]},
        "InvalidBody": {"allOf": [ref("Problem"), object_of({"errors": array(wrong_field)})]},
        "Explanation": object_of(explanation),
    }


def _receipts() -> dict[str, Schema]:
    rejection = {"index": _COUNT, "id": _TEXT_OR_NULL, "reason": one_of(Reason), "detail": _TEXT}
    return {
        "Receipt": _listing(),
        "Rejection": object_of(rejection),
        "Purge": object_of({"purged": _COUNT}),
        "Replay": object_of({"replayed": _COUNT, "rejected": _COUNT, "untried": _COUNT}),
    }


def _listing() -> Schema:
    rejections = array(ref("Rejection")) | {"maxItems": REJECTIONS_LISTED_MAX}
    listing = {"accepted": _COUNT, "rejected": rejections, "rejectedCount": _COUNT}
    return object_of(listing, optional=("rejectedCount",))


def _inspection() -> Schema:
    by_type = {"type": "object", "additionalProperties": _COUNT}
    rejected = {
        "id": _TEXT,
        "receivedAt": _TEXT | {"format": "date-time"},
        "reason": one_of(Reason),
        "path": _TEXT_OR_NULL,
        "detail": _TEXT,
        "direction": {"enum": ["event", "action"]},
        "type": _TEXT_OR_NULL,
        "session": _TEXT_OR_NULL,
        "deployment": {"type": ["integer", "null"]},
        "isReplayed": _YES_OR_NO,
    }
    return object_of(
        {"isComplete": _YES_OR_NO}
        | dict.fromkeys(("acceptedCount", "quarantinedCount", "lostCount"), _COUNT)
        | {"events": by_type, "actions": by_type}
        | {"rejected": array(object_of(rejected)) | {"maxItems": REJECTED_MAX}}
    )


def _readings() -> dict[str, Schema]:
    column = dict.fromkeys(("name", "type", "unit", "description"), _TEXT)
    message = {"event": {"enum": ["connected", "recent", "loaded"]}, "id": _TEXT, "data": _TEXT, "retry": _COUNT}
    report = dict.fromkeys(("name", "title", "question", "grain"), _TEXT)
    return {
        "Deployments": object_of({"deployments": array(ref("Deployment")), "nextCursor": _TEXT_OR_NULL}),
        "Deployment": object_of(
            {"deploymentId": _INTEGER}
            | {name: _TEXT_OR_NULL | {"format": "date-time"} for name in ("firstSeenAt", "lastSeenAt")}
            | dict.fromkeys(("eventCount", "actionCount", "syncCount", "keyCount"), _COUNT)
        ),
        "Inspection": _inspection(),
        "LiveMessage": object_of(message, optional=("retry",)),
        "Report": object_of(report | {"columns": array(object_of(column))}),
        "ReportSchema": {"allOf": [ref("Report"), object_of({"row": {"type": "object"}})]},
        "Readiness": object_of({"ready": {"type": "boolean"}, "troubles": array(_TEXT)}),
    }
