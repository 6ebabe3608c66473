"""`/api/v1/deployments/{deploymentId}/dbt-sync/{syncJobId}/result`: the result of a completed dbt sync (spec 4.1)."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config
from pydantic_core import PydanticCustomError, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

# Pydantic takes TypedDict with config from here on Python below 3.12.
from typing_extensions import TypedDict

from embedsink.auth.key import Key, KeyKind
from embedsink.auth.parsing import parse_deployment
from embedsink.engine import Engine, now_ms
from embedsink.errors import Misconfigured, Refused, quote, without_keys
from embedsink.http.api.events import parse_media_type
from embedsink.http.authentication import require_key
from embedsink.http.client_address import client_address
from embedsink.http.problems import invalid_body_response
from embedsink.http.query_params import check_parameters
from embedsink.http.rate_limiter import REJECTED_FACTOR, Sender
from embedsink.http.security_headers import NO_STORE
from embedsink.protocol.dbt_sync import COUNT_FIELD, Sync, digest_of
from embedsink.protocol.error_messages import place, sentence
from embedsink.protocol.strict_json import check_depth, decode, encode, has_bad_text, may_hold_bad_text, shallow
from embedsink.reasons import Reason
from embedsink.settings import Settings

PATH = "/api/v1/deployments/{deploymentId}/dbt-sync/{syncJobId}/result"
# A job may have any name, so neither a slash nor a line feed in it is an end.
ROUTE = PATH.replace("{syncJobId}", "{syncJobId:any_text}")
JOB_ID_CHARACTERS_MAX = 256
# As long as file systems take them.
PATH_CHARACTERS_MAX = 4_096
# What the spec does not name is one field in the store, whose rows must not be wide.
EXTRA_BYTES_MAX = 16_384
# What has finished is over, but for the difference of two clocks. The first result stays for ever: one of the year 9999
# would lead every list of the latest.
AHEAD_US_MAX = 5 * 60 * 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# As in the envelope: what the vendor adds to its protocol is no fault.
_open = with_config(ConfigDict(strict=True, extra="ignore"))

Errors = list[tuple[str, str]]


class _AnyText(PathConvertor):
    regex = "(?s:.*)"


register_url_convertor("any_text", _AnyText())


def _check_instant(text: str) -> str:
    instant_us(text)
    return text


Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Instant = Annotated[
    str, Field(max_length=64, json_schema_extra={"format": "date-time"}), AfterValidator(_check_instant)
]


@_open
class GeneratedFile(TypedDict):
    """Spec 2.2: a file that the sync generated and committed."""

    path: Annotated[str, Field(max_length=PATH_CHARACTERS_MAX)]


@_open
class ManifestStats(TypedDict):
    """Spec 2.3: counts read from the dbt manifest."""

    models: Count
    sources: Count
    macros: Count


@lru_cache(maxsize=8)
def result_type(service_name: str) -> Any:
    """Spec 2.1 as the vendor speaks it: the name of the count of cubes carries the service's name."""
    fields: dict[str, Any] = {
        "syncJobId": Annotated[str, Field(min_length=1, max_length=JOB_ID_CHARACTERS_MAX)],
        # One wrong file is enough: a long list of them says nothing more.
        "generatedFiles": Annotated[list[GeneratedFile], Field(fail_fast=True)],
        "manifestStats": ManifestStats,
        count_field(service_name): Count,
        "completedAt": Instant,
        "durationMs": Count,
    }
    # Called through Any, because mypy wants the fields of a TypedDict written out.
    make: Any = TypedDict
    result = make("DbtSyncResult", fields)
    result.__doc__ = "Spec 2.1: the result of a completed dbt sync."
    return _open(result)


@lru_cache(maxsize=8)
def _adapter(service_name: str) -> TypeAdapter[Any]:
    return TypeAdapter(result_type(service_name))


def count_field(service_name: str) -> str:
    """How the vendor writes `svcCount`."""
    return f"{service_name}Count"


async def sync_result(request: Request) -> Response:
    """GET answers the result of a job, PUT records it."""
    return await (_record if request.method == "PUT" else _show)(request)


async def _show(request: Request) -> Response:
    key = require_key(request, KeyKind.READ, KeyKind.SYNC)
    deployment, job_id = _named(request, key)
    engine: Engine = request.state.engine
    found = None if has_bad_text(job_id) else await engine.syncs.find(deployment, job_id, key_id=key.key_id)
    if found is None:
        missing = f"syncJobId: {quote(job_id)} has no result in deployment {deployment}. Correct the address."
        raise Refused(Reason.NOT_FOUND, missing)
    return _answer(found.result, engine)


async def _record(request: Request) -> Response:
    """Check the key, read the body within its limits, validate it, make it durable, answer."""
    key = require_key(request, KeyKind.SYNC)
    deployment, job_id = _named(request, key)
    engine: Engine = request.state.engine
    sender, bodies = Sender(client_address(request.scope), key.key_id), request.state.bodies
    body, encoding = await _body_of(request, sender)
    try:
        # In one thread: a body may name tens of thousands of files, and senders of events must not wait for it.
        async with engine.sync_parsing.place(key.key_id):
            sync = await run_in_threadpool(
                lambda: _parse(bodies.decode(body, encoding=encoding), deployment, job_id, engine.settings)
            )
    except Refused:
        byte_count = engine.settings.body_bytes_max if encoding else len(body)
        request.state.rates.charge_work(sender, REJECTED_FACTOR * byte_count)
        raise
    if isinstance(sync, list):
        return invalid_body_response(request, sync)
    # Answered only after the fsync, as an event is.
    if await engine.syncs.keep(sync, key_id=key.key_id):
        engine.counters["syncs"] += 1
    return _answer(sync.result, engine)


def _named(request: Request, key: Key) -> tuple[int, str]:
    """The deployment and the job of the address, the deployment within the key's scope."""
    check_parameters(request.query_params, ())
    try:
        deployment = parse_deployment(request.path_params["deploymentId"], name="deploymentId")
    except Misconfigured as error:
        raise Refused(Reason.BAD_PARAMETER, str(error)) from None
    if key.deployments is not None and deployment not in key.deployments:
        raise Refused(Reason.OUT_OF_SCOPE, f"deploymentId: {deployment} is outside the key's scope. Use its own key.")
    # What is kept holds no usable key, so a job is not found by one either.
    return deployment, without_keys(request.path_params["syncJobId"])


async def _body_of(request: Request, sender: Sender) -> tuple[bytes, str]:
    """The body as it was sent, and its `Content-Encoding`."""
    headers, bodies, rates = request.headers, request.state.bodies, request.state.rates
    parse_media_type(headers.get("content-type", ""), ("application/json",))
    encoding = ", ".join(coding.strip().lower() for coding in headers.getlist("content-encoding"))
    length = int(headers.get("content-length", 0))
    bodies.check_head(length=length, encoding=encoding)
    rates.check_work(sender)
    rates.admit(sender, length)
    body: bytes = await bodies.read(request.receive, sender)
    rates.charge_bytes(sender, max(0, len(body) - length))
    return body, encoding


def _parse(body: bytes, deployment: int, job_id: str, settings: Settings) -> Sync | Errors:
    """The result that a body is, or what is wrong with it."""
    value = decode(body, depth_max=settings.depth_max).value
    if not shallow(body, explained=_beside_each_other(value), depth_max=settings.depth_max):
        check_depth(value, depth_max=settings.depth_max)
    if may_hold_bad_text(body) and (wrong := _bad_texts(value)):
        return wrong
    wrong = _wrong_fields(value, job_id, settings.service_name)
    if wrong:
        return wrong
    sync = _sync_of(value, deployment, settings.service_name)
    if sync.completed_at > sync.received_at * 1_000 + AHEAD_US_MAX:
        later = f"{quote(value['completedAt'])} is more than five minutes later than the server's clock"
        return [("completedAt", f"{later}. Send the result when the sync has finished.")]
    extra_bytes = len(encode(sync.extra))
    if extra_bytes > EXTRA_BYTES_MAX:
        beyond = f"{extra_bytes:,} bytes are in fields that the specification does not have"
        return [("body", f"{beyond}; the limit is {EXTRA_BYTES_MAX:,}. Leave them out.")]
    return sync


def _beside_each_other(value: Any) -> int:
    """How many objects the deepest chain can't have: of all files it goes through one at most."""
    files = value.get("generatedFiles") if isinstance(value, dict) else None
    return max(0, sum(type(file) is dict for file in files) - 1) if isinstance(files, list) else 0


def _bad_texts(value: Any) -> Errors:
    members = value.items() if isinstance(value, dict) else [("body", value)]
    wrong = [name for name, part in members if has_bad_text({name: part})]
    return [(place((name,)), "a string holds a NUL or a lone surrogate. Remove it.") for name in wrong]


def _wrong_fields(value: Any, job_id: str, service_name: str) -> Errors:
    """Each field that breaks the spec, with a sentence; none when the body is a result of this job."""
    if not isinstance(value, dict):
        return [("body", f"{quote(value)} is not an object. Send the result as it came from the platform.")]
    try:
        _adapter(service_name).validate_python(value)
    except ValidationError as error:
        return [(place(one["loc"]), sentence(one)) for one in error.errors(include_url=False)]
    if without_keys(value["syncJobId"]) != job_id:
        seen = f"{quote(value['syncJobId'])} is not {quote(job_id)}, the job of the address. Send each to its own."
        return [("syncJobId", seen)]
    return []


def _sync_of(value: dict[str, Any], deployment: int, service_name: str) -> Sync:
    # The service's name is left out, so that a change of it does not make the same body another.
    result = {
        "syncJobId": value["syncJobId"],
        "generatedFiles": [{"path": file["path"]} for file in value["generatedFiles"]],
        "manifestStats": {name: value["manifestStats"][name] for name in ManifestStats.__annotations__},
        COUNT_FIELD: value[count_field(service_name)],
        "completedAt": value["completedAt"],
        "durationMs": value["durationMs"],
    }
    extra = _extra_of(value, service_name) or None
    digest = digest_of({"result": result, "extra": extra})
    # Whatever field a key strayed into, a reader must not get it, now or from the store.
    result = orjson.loads(without_keys(encode(result).decode()))
    return Sync(
        deployment=deployment,
        job_id=result["syncJobId"],
        received_at=now_ms(),
        completed_at=instant_us(value["completedAt"]),
        digest=digest,
        result=result,
        extra=extra,
    )


def _extra_of(value: dict[str, Any], service_name: str) -> dict[str, Any]:
    """What was sent beyond the spec, where it stood; of the files only those that had anything, by their place."""
    extra = _beyond(value, result_type(service_name))
    if stats := _beyond(value["manifestStats"], ManifestStats):
        extra["manifestStats"] = stats
    # A file of the spec has one member; looking into each of ten thousands would take longer than all the rest.
    grown = [(place, file) for place, file in enumerate(value["generatedFiles"]) if len(file) > 1]
    if grown:
        extra["generatedFiles"] = {str(place): _beyond(file, GeneratedFile) for place, file in grown}
    return extra


def _beyond(value: dict[str, Any], type_: Any) -> dict[str, Any]:
    known = type_.__annotations__
    return {name: part for name, part in value.items() if name not in known}


def instant_us(text: str) -> int:
    """An ISO 8601 timestamp as epoch microseconds; one without a zone is UTC.

    Raises:
        PydanticCustomError: it is none, or not of the years 1 to 9999.
    """
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        instant = aware.astimezone(UTC)
    except (ValueError, OverflowError):
        raise PydanticCustomError("not_an_instant", "no ISO 8601 timestamp") from None
    if text[10:11] not in ("T", "t") and text[8:9] not in ("T", "t"):  # A date alone is no instant.
        raise PydanticCustomError("not_an_instant", "no ISO 8601 timestamp")
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _answer(result: dict[str, Any], engine: Engine) -> Response:
    """The result in the vendor's words, in the order of the spec."""
    name = count_field(engine.settings.service_name)
    body = {name if field == COUNT_FIELD else field: part for field, part in result.items()}
    return Response(orjson.dumps(body), media_type="application/json", headers=NO_STORE)
