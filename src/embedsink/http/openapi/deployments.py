"""Deployments, and the results of their dbt syncs (spec 4.1 and 4.2)."""

from collections.abc import Sequence

from embedsink.auth.keys import KeyKind
from embedsink.http.api import dbt_syncs, deployments
from embedsink.http.openapi.failures import ACCESS, BODY, JOURNAL
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import DEPLOYMENT, content_encoding, limit_parameter, parameter
from embedsink.http.openapi.parts import Schema, ref
from embedsink.reasons import Reason

_SYNC = (*ACCESS, Reason.BAD_PARAMETER, Reason.OUT_OF_SCOPE)
_RECORD = (*_SYNC, *BODY, Reason.CONFLICT, Reason.INVALID_BODY, Reason.RATE_LIMITED, *JOURNAL)


def operations() -> Sequence[Operation]:
    """The list of deployments, and one sync of one of them."""
    return [_list_deployments(), _read_sync(), _record_sync()]


def _list_deployments() -> Operation:
    limit = limit_parameter("Most deployments in the answer.", deployments.LIMIT_DEFAULT, deployments.LIMIT_MAX)
    before = "`nextCursor` of the page before; the first page has none."
    return Operation(
        "get",
        "/api/v1/deployments",
        "listDeployments",
        "The deployments that keys, events, actions and dbt syncs name, in the reader's scope",
        (200, "A page of them.", {"application/json": ref("Deployments")}),
        (*_SYNC, Reason.OVERLOADED),
        (KeyKind.READ, KeyKind.ADMIN),
        parameters=[limit, parameter("cursor", {"type": "string"}, before)],
    )


def _read_sync() -> Operation:
    return Operation(
        "get",
        dbt_syncs.PATH,
        "readSyncResult",
        "The result of a completed dbt sync",
        (200, "The result.", {"application/json": ref("DbtSyncResult")}),
        (*_SYNC, Reason.NOT_FOUND, Reason.OVERLOADED),
        (KeyKind.READ, KeyKind.SYNC, KeyKind.ADMIN),
        parameters=_sync_parameters(),
    )


def _record_sync() -> Operation:
    return Operation(
        "put",
        dbt_syncs.PATH,
        "recordSyncResult",
        "Make the result of a completed dbt sync durable; the same again changes nothing",
        (200, "Durable, and readable at once.", {"application/json": ref("DbtSyncResult")}),
        _RECORD,
        (KeyKind.SYNC, KeyKind.ADMIN),
        parameters=[*_sync_parameters(), content_encoding()],
        body={"application/json": ref("DbtSyncResult")},
    )


def _sync_parameters() -> Sequence[Schema]:
    job = {"type": "string", "minLength": 1, "maxLength": dbt_syncs.JOB_ID_CHARACTERS_MAX}
    return [
        parameter("deploymentId", DEPLOYMENT, "The deployment that was synced.", place="path"),
        parameter("syncJobId", job, "The job; as in the body.", place="path"),
    ]
