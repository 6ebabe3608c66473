"""Requests of Microsoft Entra ID that differ from RFC 7644, changed to the form of the RFC."""

from contextlib import suppress
from typing import Any

import orjson

_OPERATIONS = "operations"
_MANAGER = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:user:manager"


def normalize_patch(body: bytes) -> bytes:
    """Return the body of a PATCH request in the form of RFC 7644, section 3.5.2. An invalid body is unchanged.

    - A manager may be the id as a text instead of an object with `value`.
    - If an operation has no path, a name in its value may be a path with a filter. It becomes a separate operation,
      because the library ignores such names.
    - An entry of a list may have members that are null, such as `{"$ref": null, "value": "12"}`.
    """
    try:
        return orjson.dumps(_normalize_operations(orjson.loads(body)))
    except _INVALID:
        return body


def normalize_bulk(body: bytes) -> bytes:
    """Return the body of a bulk request, in which each PATCH has the form of `normalize_patch`."""
    try:
        request = orjson.loads(body)
        for operation in request[_operations_name(request)]:
            if str(operation.get("method")).upper() == "PATCH":
                with suppress(*_INVALID):
                    operation["data"] = _normalize_operations(operation["data"])
        return orjson.dumps(request)
    except _INVALID:
        return body


# The errors of a body in another form. The library answers with the error of the protocol.
_INVALID = (ValueError, TypeError, KeyError, AttributeError, StopIteration)


def _operations_name(request: dict[str, Any]) -> str:
    """Return the name `Operations` as it is spelt in a request. Raise StopIteration without it."""
    return next(name for name in request if name.lower() == _OPERATIONS)


def _normalize_operations(patch: dict[str, Any]) -> dict[str, Any]:
    """Return a PATCH in the form of the RFC."""
    name = _operations_name(patch)
    operations = [{key.lower(): value for key, value in operation.items()} for operation in patch[name]]
    return patch | {name: [one for operation in operations for one in _split(_normalize(operation))]}


def _normalize(operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation in the form of the RFC."""
    value = operation.get("value")
    path = operation.get("path")
    if isinstance(path, str) and path.lower() == _MANAGER and isinstance(value, str):
        return operation | {"value": {"value": value}}
    if isinstance(value, dict) and path is None:
        managers = {
            name: {"value": one} for name, one in value.items() if name.lower() == _MANAGER and isinstance(one, str)
        }
        return operation | {"value": value | managers}
    if isinstance(value, list):
        return operation | {"value": [_without_nulls(entry) for entry in value]}
    return operation


def _split(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an operation without a path as one for its names, and one for each of its paths with a filter."""
    value = operation.get("value")
    if operation.get("path") is not None or not isinstance(value, dict):
        return [operation]
    by_path = {name: one for name, one in value.items() if "[" in name}
    by_name = {name: one for name, one in value.items() if name not in by_path}
    unfiltered = [operation | {"value": by_name}] if by_name or not by_path else []
    return unfiltered + [operation | {"path": path, "value": one} for path, one in by_path.items()]


def _without_nulls(entry: Any) -> Any:
    """Return an entry of a list without members that are null."""
    if not isinstance(entry, dict):
        return entry
    return {name: value for name, value in entry.items() if value is not None}
