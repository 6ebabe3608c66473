"""The body of a dbt sync result: its JSON type (spec 2.1 to 2.3), validation, and conversion to a stored record."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config
from pydantic_core import PydanticCustomError, ValidationError

# On Python below 3.12, pydantic accepts only this module's TypedDict.
from typing_extensions import TypedDict

from embedsink.engine import now_ms
from embedsink.errors import preview, redact_keys
from embedsink.privacy.redaction import Redactor
from embedsink.protocol.dbt_sync import CUBE_COUNT_FIELD, Sync, digest_of
from embedsink.protocol.error_messages import describe_error, field_path
from embedsink.protocol.messages import SAFE_INTEGER_MAX
from embedsink.protocol.strict_json import check_depth, decode, encode, has_bad_text, is_shallow, may_contain_bad_text
from embedsink.settings import Settings

JOB_ID_CHARACTERS_MAX = 256
# The longest path of common file systems.
PATH_CHARACTERS_MAX = 4_096
# The store keeps all unspecified fields in one column, which must not become large.
EXTRA_BYTES_MAX = 16_384
# `completedAt` may be this much later than the server's clock, because clocks differ. The first result of a job is
# final, so without this limit a result dated in the year 9999 would stay the latest forever.
CLOCK_DIFFERENCE_US_MAX = 5 * 60 * 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_AN_INSTANT = "not an ISO 8601 timestamp"
# As in envelopes, fields that the vendor adds are not errors.
_ignore_extra_fields = with_config(ConfigDict(strict=True, extra="ignore"))

FieldErrors = list[tuple[str, str]]
"""The path of each invalid field, with a sentence about its error."""


def _check_instant(text: str) -> str:
    """Return the text. Raise PydanticCustomError if it is not a timestamp."""
    parse_instant_us(text)
    return text


Count = Annotated[int, Field(ge=0, le=SAFE_INTEGER_MAX)]
Instant = Annotated[
    str, Field(max_length=64, json_schema_extra={"format": "date-time"}), AfterValidator(_check_instant)
]


@_ignore_extra_fields
class GeneratedFile(TypedDict):
    """Spec 2.2: a file that the sync generated and committed."""

    path: Annotated[str, Field(max_length=PATH_CHARACTERS_MAX)]


@_ignore_extra_fields
class ManifestStats(TypedDict):
    """Spec 2.3: counts read from the dbt manifest."""

    models: Count
    sources: Count
    macros: Count


@lru_cache(maxsize=8)
def result_type(service_name: str) -> Any:
    """Return the type of a sync result (spec 2.1). One field name depends on the service name: the count of cubes."""
    fields: dict[str, Any] = {
        "syncJobId": Annotated[str, Field(min_length=1, max_length=JOB_ID_CHARACTERS_MAX)],
        # With `fail_fast`, pydantic reports the first invalid file only.
        "generatedFiles": Annotated[list[GeneratedFile], Field(fail_fast=True)],
        "manifestStats": ManifestStats,
        count_field(service_name): Count,
        "completedAt": Instant,
        "durationMs": Count,
    }
    # Any, because mypy requires the literal fields of a TypedDict.
    make_typed_dict: Any = TypedDict
    dbt_sync_result = make_typed_dict("DbtSyncResult", fields)
    dbt_sync_result.__doc__ = "Spec 2.1: the result of a completed dbt sync."
    return _ignore_extra_fields(dbt_sync_result)


@lru_cache(maxsize=8)
def _adapter(service_name: str) -> TypeAdapter[Any]:
    return TypeAdapter(result_type(service_name))


def count_field(service_name: str) -> str:
    """Return the name of the field that counts cubes, such as `svcCount` for the service name `svc`."""
    return f"{service_name}Count"


def parse_sync(body: bytes, deployment: int, job_id: str, settings: Settings, redactor: Redactor) -> Sync | FieldErrors:
    """Return the sync result in a body as it may be stored, or the errors in its fields.

    `deployment` and `job_id` are those of the URL.

    Raises:
        Refused: the body is not strict JSON.
    """
    value = decode(body, depth_max=settings.depth_max).value
    # Checking the depth of tens of thousands of files is slow. Most bodies have too few brackets to be too deep.
    if not is_shallow(body, flat_brackets=_flat_brackets(value), depth_max=settings.depth_max):
        check_depth(value, depth_max=settings.depth_max)
    if may_contain_bad_text(body) and (errors := _text_errors(value)):
        return errors
    if errors := _field_errors(value, job_id, settings.service_name):
        return errors
    sync = _to_sync(value, deployment, settings.service_name, redactor)
    if errors := _limit_errors(sync, completed_at_text=value["completedAt"]):
        return errors
    return sync


def _flat_brackets(value: Any) -> int:
    """Return the number of opening brackets that add no depth: one for each file except the first."""
    files = value.get("generatedFiles") if isinstance(value, dict) else None
    if not isinstance(files, list):
        return 0
    file_count = sum(type(file) is dict for file in files)
    return max(0, file_count - 1)


def _text_errors(value: Any) -> FieldErrors:
    """Return an error for each top-level field with text that the store can't contain."""
    members = value.items() if isinstance(value, dict) else [("body", value)]
    # The name of a field is text too.
    bad_names = [name for name, child in members if has_bad_text({name: child})]
    return [(field_path((name,)), "a string contains a NUL or a lone surrogate. Remove it.") for name in bad_names]


def _limit_errors(sync: Sync, *, completed_at_text: str) -> FieldErrors:
    """Return an error if the completion time is in the future, or if the unspecified fields are too large."""
    if sync.completed_at > sync.received_at * 1_000 + CLOCK_DIFFERENCE_US_MAX:  # in microseconds
        detail = f"{preview(completed_at_text)} is more than five minutes later than the server's clock"
        return [("completedAt", f"{detail}. Send the result when the sync has finished.")]
    extra_bytes = len(encode(sync.extra))
    if extra_bytes > EXTRA_BYTES_MAX:
        detail = f"{extra_bytes:,} bytes are in fields that are not in the specification"
        return [("body", f"{detail}. The limit is {EXTRA_BYTES_MAX:,}. Remove some of these fields.")]
    return []


def _field_errors(value: Any, job_id: str, service_name: str) -> FieldErrors:
    """Return the errors of fields that violate the spec. If there are none, compare the job id with the URL."""
    if not isinstance(value, dict):
        return [("body", f"{preview(value)} is not an object. Send the result unchanged, as the platform returned it.")]
    try:
        _adapter(service_name).validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False)
        return [(field_path(detail["loc"]), describe_error(detail)) for detail in details]
    # Stored job ids contain no API keys, so the caller has redacted `job_id` too.
    if redact_keys(value["syncJobId"]) != job_id:
        detail = f"{preview(value['syncJobId'])} is not {preview(job_id)}, the job in the URL. Correct one of them."
        return [("syncJobId", detail)]
    return []


def _to_sync(value: dict[str, Any], deployment: int, service_name: str, redactor: Redactor) -> Sync:
    """Return the record of a valid body."""
    # CUBE_COUNT_FIELD replaces the vendor's field name, so that the digest of a result does not depend on that name.
    result = {
        "syncJobId": value["syncJobId"],
        "generatedFiles": [{"path": file["path"]} for file in value["generatedFiles"]],
        "manifestStats": {name: value["manifestStats"][name] for name in ManifestStats.__annotations__},
        CUBE_COUNT_FIELD: value[count_field(service_name)],
        "completedAt": value["completedAt"],
        "durationMs": value["durationMs"],
    }
    result, extra = redactor.redact_sync(result, _extra_fields(value, service_name))
    digest = digest_of({"result": result, "extra": extra})
    # Responses contain the result, so it must not contain an API key. The journal redacts the extra fields too.
    redacted_result = orjson.loads(redact_keys(encode(result).decode()))
    return Sync(
        deployment=deployment,
        job_id=redacted_result["syncJobId"],
        received_at=now_ms(),
        completed_at=parse_instant_us(value["completedAt"]),
        digest=digest,
        result=redacted_result,
        extra=extra,
    )


def _extra_fields(value: dict[str, Any], service_name: str) -> dict[str, Any] | None:
    """Return the fields that are not in the spec, nested as in the body; None if the spec contains all fields.

    Files are listed by their index.
    """
    extra = _unspecified_fields(value, result_type(service_name))
    if extra_stats := _unspecified_fields(value["manifestStats"], ManifestStats):
        extra["manifestStats"] = extra_stats
    # A file of the spec has one field, its path. Comparing the fields of tens of thousands of files would be slow.
    extended_files = [(index, file) for index, file in enumerate(value["generatedFiles"]) if len(file) > 1]
    if extended_files:
        extra["generatedFiles"] = {
            str(index): _unspecified_fields(file, GeneratedFile) for index, file in extended_files
        }
    return extra or None


def _unspecified_fields(value: dict[str, Any], specified_type: Any) -> dict[str, Any]:
    """Return the fields of an object that its type does not specify."""
    return {name: child for name, child in value.items() if name not in specified_type.__annotations__}


def parse_instant_us(text: str) -> int:
    """Return an ISO 8601 timestamp as epoch microseconds. A timestamp without a zone is in UTC.

    Raises:
        PydanticCustomError: the text is not a timestamp of the years 1 to 9999.
    """
    # The T follows a date such as 2026-11-01 or 20261101. Python also accepts a date without a time.
    has_time = text[10:11] in ("T", "t") or text[8:9] in ("T", "t")
    if not has_time:
        raise PydanticCustomError("not_an_instant", _NOT_AN_INSTANT)
    try:
        local_time = datetime.fromisoformat(text)
        if local_time.tzinfo is None:
            local_time = local_time.replace(tzinfo=UTC)
        instant = local_time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise PydanticCustomError("not_an_instant", _NOT_AN_INSTANT) from None
    return (instant - _EPOCH) // timedelta(microseconds=1)
