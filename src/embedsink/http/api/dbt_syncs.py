"""`/api/v1/deployments/{deploymentId}/dbt-sync/{syncJobId}/result`: the result of a completed dbt sync (spec 4.1)."""

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import parse_deployment
from embedsink.engine import Engine
from embedsink.errors import Misconfigured, Refused, preview, redact_keys
from embedsink.http.authentication import require_key
from embedsink.http.client_address import client_address
from embedsink.http.ingest_admission import Admission
from embedsink.http.media_type import parse_media_type
from embedsink.http.openapi.errors import BODY_REASONS, JOURNAL_REASONS, SCOPE_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import DEPLOYMENT, content_encoding, parameter
from embedsink.http.openapi.parts import Schema, ref
from embedsink.http.problems import invalid_body_response
from embedsink.http.query_params import check_parameters
from embedsink.http.rate_limiter import REJECTED_FACTOR, Sender
from embedsink.http.security_headers import NO_STORE
from embedsink.http.sync_body import JOB_ID_CHARACTERS_MAX, FieldErrors, count_field, parse_sync
from embedsink.protocol.dbt_sync import CUBE_COUNT_FIELD, Sync
from embedsink.protocol.strict_json import has_bad_text
from embedsink.reasons import Reason
from embedsink.settings import Settings

PATH = "/api/v1/deployments/{deploymentId}/dbt-sync/{syncJobId}/result"


class _AnyTextConvertor(PathConvertor):
    """Matches any text: a job id may contain slashes and line feeds."""

    regex = "(?s:.*)"


register_url_convertor("any_text", _AnyTextConvertor())


async def sync_result(request: Request) -> Response:
    """Dispatch by method: GET reads the result of a job, PUT records it."""
    if request.method == "PUT":
        return await _record_result(request)
    return await _show_result(request)


async def _show_result(request: Request) -> Response:
    """Answer with the stored result of a job."""
    key = require_key(request, KeyKind.READ, KeyKind.SYNC)
    deployment, job_id = _parse_path(request, key)
    engine: Engine = request.state.engine
    # No stored job id contains a NUL or a lone surrogate, and the store can't search for one.
    sync = None if has_bad_text(job_id) else await engine.syncs.find(deployment, job_id, key_id=key.key_id)
    if sync is None:
        detail = f"syncJobId: {preview(job_id)} has no result in deployment {deployment}. Correct the URL."
        raise Refused(Reason.NOT_FOUND, detail)
    return _result_response(sync.result, engine)


async def _record_result(request: Request) -> Response:
    """Authenticate the request, read and validate the body, store the result durably, and answer with the result."""
    key = require_key(request, KeyKind.SYNC)
    deployment, job_id = _parse_path(request, key)
    engine: Engine = request.state.engine
    admission: Admission = request.state.admission
    sender = Sender(client_address(request.scope), key.key_id)
    parse_media_type(request.headers.get("content-type", ""), ("application/json",))
    body, encoding = await admission.read_body(request, sender)

    def decode_and_parse() -> tuple[Sync | FieldErrors, int]:
        """Return the result or the errors of its fields, and the size of the body after decompression."""
        content = admission.bodies.decode(body, encoding=encoding)
        return parse_sync(content, deployment, job_id, engine.settings, engine.privacy.redactor), len(content)

    try:
        # In a thread: a body may contain tens of thousands of files, and ingest must not wait for the parser.
        async with engine.limiters.sync_parsing.slot(key.key_id):
            parsed, content_bytes = await run_in_threadpool(decode_and_parse)
    except Refused:
        # The error does not tell how much was decompressed, so charge the maximum.
        content_bytes = engine.settings.body_bytes_max if encoding == "gzip" else len(body)
        admission.rates.charge_work(sender, REJECTED_FACTOR * content_bytes)
        raise
    if not isinstance(parsed, Sync):
        admission.rates.charge_work(sender, REJECTED_FACTOR * content_bytes)
        return invalid_body_response(request, parsed)
    # Answer only after the fsync, as for events.
    is_new = await engine.syncs.record(parsed, key_id=key.key_id)
    if is_new:
        engine.counters["syncs"] += 1
    return _result_response(parsed.result, engine)


def _parse_path(request: Request, key: Key) -> tuple[int, str]:
    """Return the deployment and the job id in the path.

    Raises:
        Refused: the URL has parameters, or the deployment is not an integer (`bad_parameter`), or is outside the key's
            scope, or the key is limited to tenants (`out_of_scope`).
    """
    check_parameters(request.query_params, allowed=())
    try:
        deployment = parse_deployment(request.path_params["deploymentId"], name="deploymentId")
    except Misconfigured as error:
        raise Refused(Reason.BAD_PARAMETER, str(error)) from None
    if key.scope.tenants is not None:
        detail = (
            "deploymentId: a dbt sync belongs to all tenants of a deployment. Use a key that is not limited to tenants."
        )
        raise Refused(Reason.OUT_OF_SCOPE, detail)
    if not key.scope.allows_deployment(deployment):
        raise Refused(Reason.OUT_OF_SCOPE, f"deploymentId: {deployment} is outside the key's scope. Use a key for it.")
    # A key in a job id is redacted before the id is stored, so redact it here, too.
    return deployment, redact_keys(request.path_params["syncJobId"])


def _result_response(result: dict[str, Any], engine: Engine) -> Response:
    """Return the response with a stored result. The count of cubes has the vendor's field name, such as `svcCount`."""
    vendor_field = count_field(engine.settings.service_name)
    body = {vendor_field if field == CUBE_COUNT_FIELD else field: value for field, value in result.items()}
    return Response(orjson.dumps(body), media_type="application/json", headers=NO_STORE)


ROUTES = [Route(PATH.replace("{syncJobId}", "{syncJobId:any_text}"), sync_result, methods=["GET", "PUT"])]
_RECORD_REASONS = (*SCOPE_REASONS, *BODY_REASONS, Reason.CONFLICT, Reason.INVALID_BODY, *JOURNAL_REASONS)


def operations(_: Settings) -> list[Operation]:
    """Describe the route."""
    return [
        Operation(
            method="get",
            path=PATH,
            id="readSyncResult",
            summary="Read the result of a completed dbt sync",
            success=Success(200, "The result.", {"application/json": ref("DbtSyncResult")}),
            error_reasons=(*SCOPE_REASONS, Reason.NOT_FOUND, Reason.OVERLOADED),
            key_kinds=(KeyKind.READ, KeyKind.SYNC, KeyKind.ADMIN),
            parameters=_path_parameters(),
        ),
        Operation(
            method="put",
            path=PATH,
            id="recordSyncResult",
            summary="Store the result of a completed dbt sync durably. Sending the same result again changes nothing",
            success=Success(
                200, "The result is durable and can be read immediately.", {"application/json": ref("DbtSyncResult")}
            ),
            error_reasons=_RECORD_REASONS,
            key_kinds=(KeyKind.SYNC, KeyKind.ADMIN),
            parameters=[*_path_parameters(), content_encoding()],
            request_body={"application/json": ref("DbtSyncResult")},
        ),
    ]


def _path_parameters() -> Sequence[Schema]:
    """Return the Parameter Objects of the path."""
    job_id = {"type": "string", "minLength": 1, "maxLength": JOB_ID_CHARACTERS_MAX}
    return [
        parameter("deploymentId", DEPLOYMENT, "The deployment of the sync.", location="path"),
        parameter("syncJobId", job_id, "The job id, as in the body.", location="path"),
    ]
