"""`/api/v1/erasures`: request the erasure of a person, and read the certificate (docs/privacy.md)."""

from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embedsink.audit.entry import Action
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import DEPLOYMENT_MAX
from embedsink.engine import Engine
from embedsink.erasure.dry_run import count_removable
from embedsink.erasure.erasures import DELAY_IN_LOG
from embedsink.erasure.request import Erasure
from embedsink.errors import Refused, preview
from embedsink.http.audit_entries import entry_of
from embedsink.http.authentication import require_key
from embedsink.http.client_address import client_address
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.ingest_admission import Admission
from embedsink.http.media_type import parse_media_type
from embedsink.http.openapi.errors import AUDIT_REASONS, BODY_REASONS, SCOPE_REASONS, SPOOL_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import content_encoding, parameter
from embedsink.http.openapi.parts import TEXT, array, ref
from embedsink.http.problems import invalid_body_response
from embedsink.http.query_params import check_parameters
from embedsink.http.rate_limiter import Sender
from embedsink.http.security_headers import NO_STORE
from embedsink.privacy.person import Person
from embedsink.protocol.error_messages import describe_error, field_path
from embedsink.protocol.strict_json import decode, has_bad_text
from embedsink.reasons import Reason
from embedsink.settings import Settings

PATH = "/api/v1/erasures"
DRY_RUN_PATH = f"{PATH}/dry-run"
ERASURE_PATH = f"{PATH}/{{erasureId}}"
# The maximum number of requests in a list.
LISTED_MAX = 1_000
# The errors of fields that `describe_error` explains for deliveries only, by the type of pydantic's error.
_ADVICE = {
    "missing": "is missing. Send the id of the person, as the host page sends it.",
    "extra_forbidden": "is not a field of an erasure. Use viewer, tenant and deployment (docs/wire.md).",
}
_Text = Annotated[str, Field(min_length=1, max_length=8_192)]


class ErasureBody(BaseModel):
    """The person to erase, everywhere or in one tenant or deployment."""

    model_config = ConfigDict(strict=True, extra="forbid")

    viewer: _Text
    tenant: _Text | None = None
    deployment: Annotated[int, Field(ge=-DEPLOYMENT_MAX, le=DEPLOYMENT_MAX)] | None = None


async def erasures(request: Request) -> Response:
    """Dispatch by method: GET lists the requests, POST adds one."""
    if request.method == "POST":
        return await _request_erasure(request)
    return await _list_erasures(request)


async def _list_erasures(request: Request) -> Response:
    """Answer with the newest requests that the key may see."""
    key = require_key(request, KeyKind.ADMIN)
    check_parameters(request.query_params, allowed=())
    engine: Engine = request.state.engine
    visible = [erasure for erasure in engine.erasures.register.all() if _is_visible(key, erasure.key_id)]
    certificates = [_certificate(engine, key, erasure) for erasure in visible[:LISTED_MAX]]
    return JSONResponse(certificates, headers=NO_STORE)


async def show_erasure(request: Request) -> Response:
    """Answer with a request, and its certificate when it is finished."""
    key = require_key(request, KeyKind.ADMIN)
    check_parameters(request.query_params, allowed=())
    engine: Engine = request.state.engine
    erasure_id = request.path_params["erasureId"]
    erasure = engine.erasures.register.find(erasure_id)
    if erasure is None or not _is_visible(key, erasure.key_id):
        raise Refused(Reason.NOT_FOUND, f"erasureId: {preview(erasure_id)} does not exist. Correct the URL.")
    # The names of files, such as dashboards, are not in the scope of a limited key.
    with_files = not key.scope.is_limited
    if with_files:
        erasure = await engine.erasures.register.with_files(erasure)
    return JSONResponse(_certificate(engine, key, erasure, with_files=with_files), headers=NO_STORE)


def _certificate(engine: Engine, key: Key, erasure: Erasure, *, with_files: bool = False) -> dict[str, Any]:
    """Return a request and its result as JSON, and why it is delayed. The cause may name files."""
    certificate = erasure.certificate(with_files=with_files)
    delay = engine.erasures.delay
    if erasure.result is None and delay is not None:
        certificate["delay"] = DELAY_IN_LOG if key.scope.is_limited else delay
    return certificate


async def _request_erasure(request: Request) -> Response:
    """Store a request durably."""
    key = require_key(request, KeyKind.ADMIN)
    engine: Engine = request.state.engine
    person = await _read_person(request, key)
    if isinstance(person, Response):
        return person
    detail: dict[str, Any] = {}
    if person.is_limited:
        detail = {
            "deployments": None if person.deployments is None else sorted(person.deployments),
            "tenant_count": None if person.tenants is None else len(person.tenants),
        }
    # The entry does not say who is erased.
    await engine.audit.record(entry_of(request, key, Action.ERASURE, target="erasures", detail=detail))
    erasure = await engine.erasures.request(person, key_id=key.key_id)
    headers = {**NO_STORE, "Location": f"{PATH}/{erasure.id}"}
    return JSONResponse(erasure.certificate(), status_code=202, headers=headers)


async def count_erasure(request: Request) -> Response:
    """Answer with the numbers of rows and damaged lines that an erasure would remove now."""
    key = require_key(request, KeyKind.ADMIN)
    engine: Engine = request.state.engine
    person = await _read_person(request, key)
    if isinstance(person, Response):
        return person
    await cancel_on_disconnect(request, engine.erasures.wait_until_loaded())  # as the erasure does
    open_reader = partial(engine.store.reader, person.variables(engine.privacy))
    slot = engine.limiters.reports.slot(key.key_id)
    count = partial(count_removable, damaged=engine.folder.damaged, person=person, privacy=engine.privacy)
    counts = await cancel_on_disconnect(request, run_query(engine, slot, open_reader, count))
    return JSONResponse({"wouldRemove": counts}, headers=NO_STORE)


async def _read_person(request: Request, key: Key) -> Person | Response:
    """Return the person in the body of a request within the scope of the key, or the response to an invalid body."""
    check_parameters(request.query_params, allowed=())
    engine: Engine = request.state.engine
    admission: Admission = request.state.admission
    parse_media_type(request.headers.get("content-type", ""), ("application/json",))
    body, encoding = await admission.read_body(request, Sender(client_address(request.scope), key.key_id))
    content = await run_in_threadpool(partial(admission.bodies.decode, body, encoding=encoding))
    parsed = _parse(decode(content, depth_max=engine.settings.depth_max).value)
    return _person_in_scope(parsed, key) if isinstance(parsed, ErasureBody) else invalid_body_response(request, parsed)


def _parse(value: Any) -> ErasureBody | list[tuple[str, str]]:
    """Return the person in a body, or the path of each invalid field with a sentence about its error."""
    if not isinstance(value, dict):
        return [("body", f'{preview(value)} is not an object. Send {{"viewer": "u_42"}}.')]
    if has_bad_text(value):
        return [("body", "a string contains a NUL or a lone surrogate. Remove it.")]
    try:
        return ErasureBody.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False)
        return [
            (field_path(detail["loc"]), _ADVICE.get(detail["type"]) or describe_error(detail)) for detail in details
        ]


def _person_in_scope(body: ErasureBody, key: Key) -> Person:
    """Return the person within the scope of the key.

    Raises:
        Refused: the deployment or the tenant is outside the scope (`out_of_scope`).
    """
    scope = key.scope
    if body.deployment is not None and not scope.allows_deployment(body.deployment):
        raise Refused(
            Reason.OUT_OF_SCOPE, f"deployment: {body.deployment} is outside the key's scope. Use another key."
        )
    if body.tenant is not None and not scope.allows_tenant(body.tenant):
        raise Refused(
            Reason.OUT_OF_SCOPE, f"tenant: {preview(body.tenant)} is outside the key's scope. Use another key."
        )
    return Person(
        body.viewer,
        deployments=scope.deployments if body.deployment is None else frozenset({body.deployment}),
        tenants=scope.tenants if body.tenant is None else frozenset({body.tenant}),
    )


def _is_visible(key: Key, requested_by: str | None) -> bool:
    """Return whether a key may see a request. A limited key sees only its own."""
    return not key.scope.is_limited or key.key_id == requested_by


ROUTES = [
    # One route for both methods: the `Allow` header of a 405 lists the methods of one route.
    Route(PATH, erasures, methods=["GET", "POST"]),
    Route(DRY_RUN_PATH, count_erasure, methods=["POST"]),
    Route(ERASURE_PATH, show_erasure, methods=["GET"]),
]


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    return [*_list_operations(), *_body_operations()]


def _list_operations() -> list[Operation]:
    """Describe the routes that read requests."""
    return [
        Operation(
            method="get",
            path=PATH,
            id="listErasures",
            summary="List the newest requests to erase people, without naming them",
            success=Success(200, "The requests.", {"application/json": array(ref("Erasure"))}),
            error_reasons=SCOPE_REASONS,
            key_kinds=(KeyKind.ADMIN,),
        ),
        Operation(
            method="get",
            path=ERASURE_PATH,
            id="readErasure",
            summary="Read a request to erase a person, with its certificate when it is finished",
            success=Success(200, "The request.", {"application/json": ref("Erasure")}),
            error_reasons=(*SCOPE_REASONS, Reason.NOT_FOUND),
            key_kinds=(KeyKind.ADMIN,),
            parameters=[parameter("erasureId", TEXT, location="path")],
        ),
    ]


def _body_operations() -> list[Operation]:
    """Describe the routes whose body names a person."""
    return [
        Operation(
            method="post",
            path=PATH,
            id="requestErasure",
            summary="Erase a person within the key's scope",
            success=Success(
                202, "The request is durable. Read its certificate later.", {"application/json": ref("Erasure")}
            ),
            error_reasons=(*SCOPE_REASONS, *BODY_REASONS, *AUDIT_REASONS, Reason.INVALID_BODY, Reason.OVERLOADED),
            key_kinds=(KeyKind.ADMIN,),
            parameters=[content_encoding()],
            request_body={"application/json": ref("ErasureRequest")},
        ),
        Operation(
            method="post",
            path=DRY_RUN_PATH,
            id="countErasure",
            summary="Count the rows that an erasure would remove now",
            success=Success(
                200, "The numbers of rows and damaged lines by kind.", {"application/json": ref("ErasureDryRun")}
            ),
            error_reasons=(*SPOOL_REASONS, *BODY_REASONS, Reason.INVALID_BODY, Reason.STORAGE_FAILED),
            key_kinds=(KeyKind.ADMIN,),
            parameters=[content_encoding()],
            request_body={"application/json": ref("ErasureRequest")},
        ),
    ]
