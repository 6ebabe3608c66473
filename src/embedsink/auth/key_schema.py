"""The format of `keys.json`. The parser is strict: a typing error in an edited file must not grant access.

Importing this module loads pydantic, so `key_store` imports it only where it reads or writes the file.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from embedsink.auth.keys import Key, KeyKind, format_time
from embedsink.auth.parsing import (
    DEPLOYMENT_MAX,
    LABEL_CHARACTERS_MAX,
    TENANT_CHARACTERS_MAX,
    normalize_origin,
    parse_tenant,
)
from embedsink.errors import Misconfigured, preview
from embedsink.key_scope import KeyScope


def _parse_time(text: object) -> float:
    """Return an ISO 8601 time with a zone in epoch seconds. Raise ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError("not a string")  # Pydantic doesn't catch a TypeError.
    parsed_time = datetime.fromisoformat(text)
    if parsed_time.tzinfo is None:
        raise ValueError("no time zone")
    try:
        # `timestamp` alone accepts a time outside the years 1 to 9999 in UTC, which `format_time` can't write.
        return parsed_time.astimezone(UTC).timestamp()
    except OverflowError as error:
        raise ValueError("outside the years 1 to 9999") from error


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not printable")
    return text


def _validator(parse: Callable[[str], str]) -> AfterValidator:
    """Return a pydantic validator that calls a parser. Pydantic catches only a ValueError."""

    def validate(text: str) -> str:
        try:
            return parse(text)
        except Misconfigured as error:
            raise ValueError(str(error)) from None

    return AfterValidator(validate)


_PrintableLine = Annotated[str, Field(max_length=LABEL_CHARACTERS_MAX), AfterValidator(_check_printable)]
_Deployment = Annotated[int, Field(ge=-DEPLOYMENT_MAX, le=DEPLOYMENT_MAX)]
_Tenant = Annotated[str, _validator(parse_tenant)]
Origin = Annotated[str, _validator(normalize_origin)]
_Time = Annotated[float, BeforeValidator(_parse_time)]

_LINE_DESCRIPTION = f"one line of at most {LABEL_CHARACTERS_MAX} characters"
_TIME_DESCRIPTION = "a time with a zone, such as 2026-11-21T09:30:00Z"
_TENANTS_DESCRIPTION = f"a list of tenants of at most {TENANT_CHARACTERS_MAX} characters, or null for all of them"
_DEPLOYMENTS_DESCRIPTION = f"a list of deployments up to {DEPLOYMENT_MAX:,}, or null for all of them"


class KeyEntry(BaseModel):
    """One entry of `keys.json`. Error messages end with the `description` of the field.

    All fields are required, except `tenants` and `names`, which files of earlier versions lack.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    key_id: _PrintableLine = Field(description=_LINE_DESCRIPTION)
    kind: KeyKind = Field(strict=False, description=f"one of {', '.join(KeyKind)}")
    label: _PrintableLine = Field(description=_LINE_DESCRIPTION)
    # An empty list is refused: a reader could take it for all deployments or for none.
    deployments: list[_Deployment] | None = Field(min_length=1, description=_DEPLOYMENTS_DESCRIPTION)
    tenants: list[_Tenant] | None = Field(None, min_length=1, description=_TENANTS_DESCRIPTION)
    names: bool = Field(False, description="true or false")
    origins: list[Origin] = Field(description="a list of origins")
    created_at: _Time = Field(description=_TIME_DESCRIPTION)
    expires_at: _Time | None = Field(description=f"{_TIME_DESCRIPTION}, or null")
    revoked_at: _Time | None = Field(description=f"{_TIME_DESCRIPTION}, or null")
    digest: _PrintableLine = Field(description=_LINE_DESCRIPTION)


def to_entry(key: Key) -> dict[str, Any]:
    """Return a key as an entry of `keys.json`."""
    # Without a limit to tenants and without names, earlier versions can read the entry.
    tenants = {} if key.scope.tenants is None else {"tenants": sorted(key.scope.tenants)}
    names = {"names": True} if key.kind is KeyKind.READ and key.shows_names else {}
    return {
        "key_id": key.key_id,
        "kind": key.kind.value,
        "label": key.label,
        "deployments": None if key.scope.deployments is None else sorted(key.scope.deployments),
        **tenants,
        **names,
        "origins": sorted(key.origins or ()),
        "created_at": format_time(key.created_at),
        "expires_at": None if key.expires_at is None else format_time(key.expires_at),
        "revoked_at": None if key.revoked_at is None else format_time(key.revoked_at),
        "digest": key.digest,
    }


def to_document(keys: list[Key]) -> dict[str, Any]:
    """Return the JSON object of `keys.json`: an entry for each key, and a checksum of the entries."""
    entries = [to_entry(key) for key in keys]
    return {"checksum": _checksum(entries), "keys": entries}


def parse_file(content: bytes) -> list[Key]:
    """Return all keys of a `keys.json`. The checksum is optional: an edited file has none.

    Raises:
        Misconfigured: the content is not JSON in the form that `to_document` returns, an entry is invalid, two entries
            have the same id or digest, or the checksum is wrong.
    """
    try:
        document = json.loads(content, object_pairs_hook=_reject_duplicate_fields)
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"is not JSON ({error}).") from None
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise Misconfigured('is not {"keys": […]}.')
    keys = [parse_entry(entry, path=f"keys[{index}]") for index, entry in enumerate(document["keys"])]
    _check_unique(keys)
    if "checksum" in document and document["checksum"] != _checksum(document["keys"]):
        raise Misconfigured(
            "has a checksum that does not match its keys: it is damaged, or was edited by hand. After an edit, check "
            'every key and delete the member "checksum"; the next change writes a new one.'
        )
    return keys


def parse_entry(entry: object, *, path: str = "") -> Key:
    """Return the key of an entry, with all fields validated.

    Args:
        entry: the decoded JSON of the entry.
        path: the path of the entry in the file, for error messages; empty outside a file.

    Raises:
        Misconfigured: a field is missing, unknown or invalid, a sync or scim key has limits that do not apply to it, or
            a key of another kind than read has names.
    """
    try:
        valid_entry = KeyEntry.model_validate(entry)
    except ValidationError as error:
        raise Misconfigured(_error_message(error, entry, path)) from None
    if valid_entry.kind is KeyKind.SYNC and valid_entry.origins:
        # A key in a page is public. With a public sync key, anyone could record a false result, which is final.
        field = _field_path(path, "origins")
        raise Misconfigured(f"{field}: a sync key can't have origins. Use an empty list.")
    if valid_entry.kind is KeyKind.SYNC and valid_entry.tenants:
        field = _field_path(path, "tenants")
        raise Misconfigured(
            f"{field}: a sync key can't have tenants, because results of dbt syncs have none. Leave them out."
        )
    if valid_entry.kind is KeyKind.SCIM:
        _check_without_limits(valid_entry, path)
    if valid_entry.kind is not KeyKind.READ and valid_entry.names:
        field = _field_path(path, "names")
        raise Misconfigured(f"{field}: applies to read keys only; admin keys always show names. Leave it out.")
    return _to_key(valid_entry)


def _check_without_limits(entry: KeyEntry, path: str) -> None:
    """Raise Misconfigured if a scim key has limits: the directory belongs to all deployments and tenants."""
    for name, value, correction in (
        ("origins", entry.origins, "Use an empty list"),
        ("deployments", entry.deployments, "Use null"),
        ("tenants", entry.tenants, "Leave them out"),
    ):
        if value:
            field = _field_path(path, name)
            raise Misconfigured(f"{field}: a scim key can't have {name}, because the directory has none. {correction}.")


def _to_key(entry: KeyEntry) -> Key:
    return Key(
        key_id=entry.key_id,
        kinds=frozenset({entry.kind}),
        label=entry.label,
        scope=KeyScope(
            deployments=None if entry.deployments is None else frozenset(entry.deployments),
            tenants=None if entry.tenants is None else frozenset(entry.tenants),
            shows_names=entry.names or entry.kind is KeyKind.ADMIN,
        ),
        origins=frozenset(entry.origins) or None,
        created_at=entry.created_at,
        expires_at=entry.expires_at,
        revoked_at=entry.revoked_at,
        digest=entry.digest,
    )


def _error_message(error: ValidationError, entry: object, path: str) -> str:
    """Return a sentence about one error: an unknown field, which may be misspelt, or else the first invalid field."""
    field_names = ", ".join(KeyEntry.model_fields)
    if not isinstance(entry, dict):
        return f"{path}: {preview(entry)} is not an object with the fields {field_names}."
    errors = error.errors(include_url=False)
    for detail in errors:
        if detail["type"] == "extra_forbidden":
            return f"{path}: {preview(detail['loc'][0])} is not a field of a key. The fields are {field_names}."
    first_error = errors[0]
    name = str(first_error["loc"][0])
    field = _field_path(path, name)
    if first_error["type"] == "missing":
        return f"{field}: is missing. The fields are {field_names}."
    if first_error["type"] == "value_error" and name == "origins":
        # The message of `normalize_origin` begins with `origin:`, so only the path of the entry is missing.
        return _field_path(path, str(first_error["ctx"]["error"]))
    return f"{field}: {preview(entry[name])} is not {KeyEntry.model_fields[name].description}."


def _field_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _check_unique(keys: list[Key]) -> None:
    """Raise Misconfigured if two entries have the same id or digest: one may be revoked, and the other still valid."""
    key_ids: set[str] = set()
    digests: set[str] = set()
    for index, key in enumerate(keys):
        if key.key_id in key_ids or key.digest in digests:
            raise Misconfigured(f"keys[{index}]: has the key_id or digest of an earlier entry. Delete one of the two.")
        key_ids.add(key.key_id)
        digests.add(key.digest)


def _checksum(entries: list[Any]) -> str:
    """Return the SHA-256 of all entries, in hex. The indentation of the file doesn't change the checksum."""
    return sha256(json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _reject_duplicate_fields(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a JSON object as a dict. Raise ValueError if two fields have the same name."""
    # JSON parsers use the last of two equal names. If an operator revoked a key by adding a `revoked_at` above
    # `"revoked_at": null`, the key would stay valid.
    unique_fields = dict(fields)
    if len(unique_fields) < len(fields):
        raise ValueError("an object has the same field twice")
    return unique_fields
