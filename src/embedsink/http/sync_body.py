"""The body of a dbt sync result: its JSON type (spec 2.1 to 2.3), validation, and conversion to a stored record."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config
from pydantic_core import PydanticCustomError, ValidationError

# Pydantic accepts TypedDict with a config from this module on Python below 3.12.
from typing_extensions import TypedDict

from embedsink.engine import now_ms
from embedsink.errors import preview, redact_keys
from embedsink.protocol.dbt_sync import CUBE_COUNT_FIELD, Sync, digest_of
from embedsink.protocol.error_messages import describe_error, field_path
from embedsink.protocol.strict_json import check_depth, decode, encode, has_bad_text, is_shallow, may_contain_bad_text
from embedsink.settings import Settings

JOB_ID_CHARACTERS_MAX = 256
# The longest path of common file systems.
PATH_CHARACTERS_MAX = 4_096
# The store keeps all unspecified fields in one column, which must not become large.
EXTRA_BYTES_MAX = 16_384
# `completedAt` may be ahead by the difference of two clocks. The first result of a job is final, so a result of the
# year 9999 would otherwise stay the latest forever.
AHEAD_US_MAX = 5 * 60 * 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# As in envelopes, fields that the vendor adds are not errors.
_open = with_config(ConfigDict(strict=True, extra="ignore"))

Errors = list[tuple[str, str]]


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
    """Return the type of spec 2.1. The name of the field that counts cubes contains the service name."""
    fields: dict[str, Any] = {
        "syncJobId": Annotated[str, Field(min_length=1, max_length=JOB_ID_CHARACTERS_MAX)],
        # Reports the first wrong file only.
        "generatedFiles": Annotated[list[GeneratedFile], Field(fail_fast=True)],
        "manifestStats": ManifestStats,
        count_field(service_name): Count,
        "completedAt": Instant,
        "durationMs": Count,
    }
    # Any, because mypy requires the literal fields of a TypedDict.
    make: Any = TypedDict
    result = make("DbtSyncResult", fields)
    result.__doc__ = "Spec 2.1: the result of a completed dbt sync."
    return _open(result)


@lru_cache(maxsize=8)
def _adapter(service_name: str) -> TypeAdapter[Any]:
    return TypeAdapter(result_type(service_name))


def count_field(service_name: str) -> str:
    """Return the vendor's name of `svcCount`."""
    return f"{service_name}Count"


def parse_sync(body: bytes, deployment: int, job_id: str, settings: Settings) -> Sync | Errors:
    """Return the record of a body, or its errors: each field with a sentence.

    Raises:
        Refused: the body is not strict JSON.
    """
    value = decode(body, depth_max=settings.depth_max).value
    if not is_shallow(body, flat_brackets=_sibling_count(value), depth_max=settings.depth_max):
        check_depth(value, depth_max=settings.depth_max)
    if may_contain_bad_text(body) and (errors := _bad_texts(value)):
        return errors
    if errors := _field_errors(value, job_id, settings.service_name):
        return errors
    sync = _sync_of(value, deployment, settings.service_name)
    if sync.completed_at > sync.received_at * 1_000 + AHEAD_US_MAX:
        ahead = f"{preview(value['completedAt'])} is more than five minutes later than the server's clock"
        return [("completedAt", f"{ahead}. Send the result when the sync has finished.")]
    extra_bytes = len(encode(sync.extra))
    if extra_bytes > EXTRA_BYTES_MAX:
        excess = f"{extra_bytes:,} bytes are in fields that are not in the specification"
        return [("body", f"{excess}. The limit is {EXTRA_BYTES_MAX:,}. Remove some of these fields.")]
    return sync


def _sibling_count(value: Any) -> int:
    """Return the number of objects outside the deepest chain, which contains at most one of the files."""
    files = value.get("generatedFiles") if isinstance(value, dict) else None
    return max(0, sum(type(file) is dict for file in files) - 1) if isinstance(files, list) else 0


def _bad_texts(value: Any) -> Errors:
    members = value.items() if isinstance(value, dict) else [("body", value)]
    names = [name for name, part in members if has_bad_text({name: part})]
    return [(field_path((name,)), "a string contains a NUL or a lone surrogate. Remove it.") for name in names]


def _field_errors(value: Any, job_id: str, service_name: str) -> Errors:
    """Return each field that violates the spec, with a sentence."""
    if not isinstance(value, dict):
        return [("body", f"{preview(value)} is not an object. Send the result unchanged, as the platform returned it.")]
    try:
        _adapter(service_name).validate_python(value)
    except ValidationError as error:
        return [(field_path(one["loc"]), describe_error(one)) for one in error.errors(include_url=False)]
    if redact_keys(value["syncJobId"]) != job_id:
        detail = f"{preview(value['syncJobId'])} is not {preview(job_id)}, the job in the URL. Correct one of them."
        return [("syncJobId", detail)]
    return []


def _sync_of(value: dict[str, Any], deployment: int, service_name: str) -> Sync:
    # Without the service name, so that a renamed service gets the same digest for the same body.
    result = {
        "syncJobId": value["syncJobId"],
        "generatedFiles": [{"path": file["path"]} for file in value["generatedFiles"]],
        "manifestStats": {name: value["manifestStats"][name] for name in ManifestStats.__annotations__},
        CUBE_COUNT_FIELD: value[count_field(service_name)],
        "completedAt": value["completedAt"],
        "durationMs": value["durationMs"],
    }
    extra = _extra_of(value, service_name) or None
    digest = digest_of({"result": result, "extra": extra})
    # Readers must never get a key that was sent in a field by mistake.
    result = orjson.loads(redact_keys(encode(result).decode()))
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
    """Return the fields outside the spec by their path; files by their index, and only those with such fields."""
    extra = _unspecified(value, result_type(service_name))
    if stats := _unspecified(value["manifestStats"], ManifestStats):
        extra["manifestStats"] = stats
    # A file of the spec has one member. Inspecting each of tens of thousands would take longer than all other steps.
    larger = [(index, file) for index, file in enumerate(value["generatedFiles"]) if len(file) > 1]
    if larger:
        extra["generatedFiles"] = {str(index): _unspecified(file, GeneratedFile) for index, file in larger}
    return extra


def _unspecified(value: dict[str, Any], type_: Any) -> dict[str, Any]:
    specified = type_.__annotations__
    return {name: part for name, part in value.items() if name not in specified}


def instant_us(text: str) -> int:
    """Return an ISO 8601 timestamp as epoch microseconds. Without a zone it is UTC.

    Raises:
        PydanticCustomError: the text is not a timestamp of the years 1 to 9999.
    """
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        instant = aware.astimezone(UTC)
    except (ValueError, OverflowError):
        raise PydanticCustomError("not_an_instant", "not an ISO 8601 timestamp") from None
    if text[10:11] not in ("T", "t") and text[8:9] not in ("T", "t"):  # A date without a time.
        raise PydanticCustomError("not_an_instant", "not an ISO 8601 timestamp")
    return (instant - _EPOCH) // timedelta(microseconds=1)
