"""The `components` of the description: message types, responses, and the kinds of keys."""

from typing import Any

from pydantic import TypeAdapter

from embedsink.audit.entry import Action, Outcome, Via
from embedsink.auth.keys import KeyKind
from embedsink.http.openapi.parts import TEXT, Schema, array, object_of, reason_schema, ref
from embedsink.http.sync_body import result_type
from embedsink.protocol.delivery import REJECTIONS_LISTED_MAX
from embedsink.protocol.messages import Catalog, Delivery, catalog_for
from embedsink.reasons import Reason
from embedsink.reports.recent_events import REJECTIONS_MAX
from embedsink.settings import Settings

_INTEGER: Schema = {"type": "integer"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_BOOLEAN: Schema = {"type": "boolean"}


def schemas(settings: Settings) -> dict[str, Schema]:
    """Return, by name, all schemas to which operations refer."""
    catalog = catalog_for(settings.service_name)
    request_schemas = _request_schemas(catalog, result_type(settings.service_name))
    # The Python type of a delivery does not restrict the events, because each event is validated separately.
    request_schemas["Delivery"]["properties"]["events"] |= {"items": ref("Envelope"), "maxItems": settings.events_max}
    schema_by_type = {type_name: ref(envelope.__name__) for type_name, envelope in catalog.envelope_types.items()}
    mapping = {type_name: schema["$ref"] for type_name, schema in schema_by_type.items()}
    request_schemas["Envelope"] = {
        "description": f"One protocol message. Its JSON is at most {settings.envelope_bytes_max:,} bytes long.",
        "oneOf": list(schema_by_type.values()),
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    all_schemas = (
        request_schemas
        | _problem_schemas()
        | _receipt_schemas()
        | _read_schemas()
        | _erasure_schemas()
        | _scim_schemas()
    )
    return dict(sorted(all_schemas.items()))


def security_schemes() -> dict[str, Schema]:
    """Return the permissions of keys and access tokens as security schemes."""
    return {
        f"{kind}Key": {
            "type": "http",
            "scheme": "bearer",
            "description": f"A key of the kind {kind}: es_{kind}_…; or an access token with the scope embedsink:{kind}",
        }
        for kind in KeyKind
    }


def _request_schemas(catalog: Catalog, sync_result_type: Any) -> dict[str, Schema]:
    """Return the schemas of request bodies, which pydantic derives from the types that validate them."""
    python_types = [*catalog.envelope_types.values(), Delivery, sync_result_type]
    adapters = [(type_.__name__, "validation", TypeAdapter(type_)) for type_ in python_types]
    _, document = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    definitions: dict[str, Schema] = document["$defs"]
    return definitions


def _problem_schemas() -> dict[str, Schema]:
    """Return the schemas of error responses, and of the explanation of a reason."""
    problem = {"type": TEXT, "title": TEXT, "status": _INTEGER, "reason": reason_schema(Reason), "detail": TEXT}
    wrong_field = object_of({"field": TEXT, "detail": TEXT})
    explanation = {
        "reason": reason_schema(Reason),
        "title": TEXT,
        "status": {"type": ["integer", "null"]},
        "advice": TEXT,
    }
    return {
        "Problem": object_of(problem) | {"description": "RFC 9457 problem details."},
        "NothingAccepted": {"allOf": [ref("Problem"), _receipt_schema()]},
        "InvalidBody": {"allOf": [ref("Problem"), object_of({"errors": array(wrong_field)})]},
        "Explanation": object_of(explanation),
    }


def _receipt_schemas() -> dict[str, Schema]:
    """Return the schemas of responses to deliveries, purges and replays."""
    rejection = {"index": _COUNT, "id": _TEXT_OR_NULL, "reason": reason_schema(Reason), "detail": TEXT}
    return {
        "Receipt": _receipt_schema(),
        "Rejection": object_of(rejection),
        "Purge": object_of({"purged": _COUNT}),
        "Replay": object_of({"replayed": _COUNT, "rejected": _COUNT, "untried": _COUNT}),
    }


def _receipt_schema() -> Schema:
    """Return the schema of the response to a delivery: the accepted count, and the first rejections."""
    rejections = array(ref("Rejection")) | {"maxItems": REJECTIONS_LISTED_MAX}
    receipt = {"accepted": _COUNT, "rejected": rejections, "rejectedCount": _COUNT}
    return object_of(receipt, optional=("rejectedCount",))  # It is sent only if `rejected` is incomplete.


def _inspection_schema() -> Schema:
    """Return the schema of the response to an inspection: counts, and the first rejections."""
    count_by_type = {"type": "object", "additionalProperties": _COUNT}
    rejection = {
        "id": TEXT,
        "receivedAt": TEXT | {"format": "date-time"},
        "reason": reason_schema(Reason),
        "path": _TEXT_OR_NULL,
        "detail": TEXT,
        "direction": {"enum": ["event", "action"]},
        "type": _TEXT_OR_NULL,
        "session": _TEXT_OR_NULL,
        "deployment": {"type": ["integer", "null"]},
        "isReplayed": _BOOLEAN,
    }
    return object_of(
        {
            "isComplete": _BOOLEAN,
            **dict.fromkeys(("acceptedCount", "quarantinedCount", "lostCount"), _COUNT),
            "events": count_by_type,
            "actions": count_by_type,
            "rejected": array(object_of(rejection)) | {"maxItems": REJECTIONS_MAX},
        }
    )


def _erasure_schemas() -> dict[str, Schema]:
    """Return the schemas of the requests to erase people."""
    time = TEXT | {"format": "date-time"}
    counts = {"type": "object", "additionalProperties": _COUNT}
    body = {"viewer": TEXT, "tenant": _TEXT_OR_NULL, "deployment": {"type": ["integer", "null"]}}
    request = {
        "id": TEXT | {"format": "uuid"},
        "status": {"enum": ["pending", "finished"]},
        "requestedAt": time,
        "deployments": {"type": ["array", "null"], "items": _INTEGER},
        "tenantCount": {"type": ["integer", "null"]},
        "blockedUntil": time,
    }
    result = {
        "finishedAt": time,
        "removed": counts,
        **dict.fromkeys(("searchedTextCount", "searchedFileCount", "foundFileCount"), _COUNT),
        "remainingRows": {"type": ["integer", "null"]},
        "remainingRejections": {"type": ["integer", "null"]},
        "searchedFiles": array(object_of({"path": TEXT, "bytes": _COUNT})),
        "foundIn": array(object_of({"path": TEXT, "textCount": _COUNT})),
    }
    return {
        "ErasureRequest": object_of(body, optional=("tenant", "deployment")),
        "Erasure": object_of(request | {"delay": TEXT} | result, optional=("delay", *result)),
        "ErasureDryRun": object_of({"wouldRemove": counts}),
    }


def _scim_schemas() -> dict[str, Schema]:
    """Return the schemas of the SCIM API. `/Schemas` describes users and groups completely."""
    # A schema is an absolute URI, so each object names at least one.
    scim_object = object_of({"schemas": array(TEXT) | {"minItems": 1}})
    values = array(object_of({"value": TEXT}))
    user = {"id": TEXT, "externalId": TEXT, "userName": TEXT, "displayName": TEXT, "active": _BOOLEAN, "emails": values}
    group = {"id": TEXT, "externalId": TEXT, "displayName": TEXT, "members": values}
    search = {"filter": TEXT, "startIndex": _INTEGER, "count": _INTEGER, "sortBy": TEXT}
    operation = object_of({"op": TEXT, "path": TEXT, "value": {}}, optional=("path", "value"))
    page = {"totalResults": _COUNT, "Resources": array({"type": "object"})}
    error = {"schemas": array(TEXT), "status": TEXT, "detail": TEXT, "scimType": TEXT}

    def extended(properties: dict[str, Schema], *required: str) -> Schema:
        optional = [name for name in properties if name not in required]
        return {"allOf": [ref("ScimObject"), object_of(properties, optional=optional)]}

    return {
        "ScimObject": scim_object | {"description": "An object of RFC 7643 or RFC 7644."},
        "ScimUser": extended(user),
        "ScimGroup": extended(group),
        "ScimList": extended(page, "totalResults"),
        "ScimSearch": extended(search),
        "ScimPatch": extended({"Operations": array(operation)}, "Operations"),
        "ScimBulk": extended({"Operations": array({"type": "object"})}, "Operations"),
        "ScimError": object_of(error, optional=("scimType", "detail")),
    }


def _read_schemas() -> dict[str, Schema]:
    """Return the schemas of responses to readers and to health checks."""
    column = dict.fromkeys(("name", "type", "unit", "description"), TEXT)
    message = {"event": {"enum": ["connected", "recent", "loaded"]}, "id": TEXT, "data": TEXT, "retry": _COUNT}
    report = dict.fromkeys(("name", "title", "question", "grain"), TEXT)
    return {
        "AuditEntries": object_of({"entries": array(ref("AuditEntry")), "nextCursor": _TEXT_OR_NULL}),
        "AuditEntry": object_of(
            {
                "number": _COUNT,
                "recordedAt": TEXT | {"format": "date-time"},
                "action": {"enum": list(Action)},
                "actor": TEXT,
                "actorLabel": _TEXT_OR_NULL,
                "via": {"enum": list(Via)},
                "clientAddress": _TEXT_OR_NULL,
                "target": _TEXT_OR_NULL,
                "outcome": {"enum": list(Outcome)},
                "count": _COUNT,
                "detail": {"type": "object"},
            }
        ),
        "Deployments": object_of({"deployments": array(ref("Deployment")), "nextCursor": _TEXT_OR_NULL}),
        "Deployment": object_of(
            {
                "deploymentId": _INTEGER,
                **dict.fromkeys(("firstSeenAt", "lastSeenAt"), _TEXT_OR_NULL | {"format": "date-time"}),
                **dict.fromkeys(("eventCount", "actionCount", "syncCount", "keyCount"), _COUNT),
            }
        ),
        "Inspection": _inspection_schema(),
        "LiveMessage": object_of(message, optional=("retry",)),
        "Report": object_of(report | {"columns": array(object_of(column)), "dimensions": array(object_of(column))}),
        "ReportSchema": {"allOf": [ref("Report"), object_of({"row": {"type": "object"}})]},
        "Readiness": object_of({"ready": _BOOLEAN, "problems": array(TEXT), "delays": array(TEXT)}),
    }
