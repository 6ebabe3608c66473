"""The limits of SCIM requests. Each one bounds the time that the library takes for a request."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from scim2_models import (
    InvalidFilterException,
    InvalidPathException,
    InvalidSyntaxException,
    InvalidValueException,
    PayloadTooLargeException,
)
from scim2_server.requests import ScimRequest

from embedsink.errors import preview

# The maximum size of a PATCH, a bulk request and a search. Each of their operations and filters takes time.
SHORT_BODY_BYTES_MAX = 262_144
# A request with many operations delays ingest, because its body is parsed at once.
BULK_OPERATIONS_MAX = 100
# The library takes time for each URN of a schema.
URNS_MAX = 1_000
# A response takes time for each requested attribute of each resource.
ATTRIBUTES_MAX = 100
# A comparison of a filter or a path takes time for each value.
TEXT_CHARACTERS_MAX = 1_000
# The library builds an object of each value, and a PATCH compares each value that it adds or removes with each stored
# value of the attribute. Members are not compared.
VALUES_MAX = 200
PATCH_OPERATIONS_MAX = 1_000
NO_MEMBER_ID = 'members: an entry has no id. Send a list such as [{"value": "<id>"}].'
_URN = "urn:"
_FILTER = "filter"
_OPERATIONS = "operations"
_LIMITED_TEXTS = (_FILTER, "path", "sortby")
_ATTRIBUTE_LISTS = ("attributes", "excludedattributes")


def check_request(request: ScimRequest) -> None:
    """Check a request before the library reads it.

    Raises:
        InvalidSyntaxException: the body is not JSON (RFC 8259). The library would accept numbers such as NaN.
        PayloadTooLargeException: the body has too many bytes, operations or URNs.
        InvalidFilterException: a filter is too long.
        InvalidPathException: a path or the name of an attribute is too long.
        InvalidValueException: too many attributes are requested or excluded, an attribute has too many values, or a
            member has no id.
    """
    endpoint = request.path.rpartition("/")[2].lower()
    is_short = request.method == "PATCH" or endpoint in ("bulk", ".search")
    if is_short and len(request.body) > SHORT_BODY_BYTES_MAX:
        detail = f"The body has more than {SHORT_BODY_BYTES_MAX:,} bytes. Send it in parts."
        raise PayloadTooLargeException(detail=detail)
    for name, value in request.query.items():
        _check_member(name, value)
    if not request.body:
        return
    try:
        body = orjson.loads(request.body)
    except ValueError:
        detail = "The body is not JSON, or has a number or a text that is out of range. Send JSON (RFC 8259)."
        raise InvalidSyntaxException(detail=detail) from None
    if endpoint == "bulk" and isinstance(body, dict):
        _check_bulk_operations(body)
    urn_count = 0
    for name, value in _members(body):
        _check_member(name, value)
        if isinstance(value, list):
            _check_list(name, value)
        urn_count += (_URN in name) + (isinstance(value, str) and _URN in value)
    if urn_count > URNS_MAX:
        raise PayloadTooLargeException(detail=f"The body has more than {URNS_MAX:,} URNs. Send fewer.")


def check_value_count(attributes: Mapping[str, Any]) -> None:
    """Check the number of values of each attribute, except members.

    Raises:
        InvalidValueException: an attribute has too many values.
    """
    for name, value in attributes.items():
        if isinstance(value, list) and len(value) > VALUES_MAX:
            raise InvalidValueException(detail=f"{preview(name)}: has more than {VALUES_MAX} values. Send fewer.")
        if isinstance(value, dict):  # an extension of the schema
            check_value_count(value)


def _members(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of all objects in a JSON value. The items of an array have an empty name."""
    containers = [body]
    while containers:
        container = containers.pop()
        if isinstance(container, dict):
            members = list(container.items())
        else:
            members = [("", item) for item in container] if isinstance(container, list) else []
        yield from members
        containers += [value for _, value in members if isinstance(value, dict | list)]


def _check_member(name: str, value: Any) -> None:
    """Check a parameter of a query, or a member of a body."""
    # The library accepts the names of its Python attributes too, such as excluded_attributes.
    lower_name = name.lower().replace("_", "")
    if len(name) > TEXT_CHARACTERS_MAX:
        raise _too_long_error("path")
    if lower_name in _LIMITED_TEXTS and isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
        raise _too_long_error(lower_name)
    if lower_name in _ATTRIBUTE_LISTS:
        # The library splits texts at commas.
        texts = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]
        paths = [path for text in texts for path in text.split(",")]
        if len(paths) > ATTRIBUTES_MAX:
            raise InvalidValueException(detail=f"A request can name at most {ATTRIBUTES_MAX} attributes. Name fewer.")
        if any(len(path) > TEXT_CHARACTERS_MAX for path in paths):
            raise _too_long_error("path")


def _check_bulk_operations(body: dict[str, Any]) -> None:
    """Check the number of operations of a bulk request. A PATCH among them has operations of its own."""
    for name, value in body.items():
        if name.lower() == _OPERATIONS and isinstance(value, list) and len(value) > BULK_OPERATIONS_MAX:
            raise _too_many_operations_error(BULK_OPERATIONS_MAX)


def _check_list(name: str, items: list[Any]) -> None:
    """Check the number of items of an array in a body."""
    lower_name = name.lower()
    if lower_name == _OPERATIONS and len(items) > PATCH_OPERATIONS_MAX:
        raise _too_many_operations_error(PATCH_OPERATIONS_MAX)
    if lower_name == "members" and not all(map(_has_id, items)):
        raise InvalidValueException(detail=NO_MEMBER_ID)
    # In a PATCH, the members are in `value`.
    is_unlimited = lower_name in (_OPERATIONS, "members") or (lower_name == "value" and all(map(_has_id, items)))
    if not is_unlimited and len(items) > VALUES_MAX:
        raise InvalidValueException(detail=f"{preview(name)}: has more than {VALUES_MAX} values. Send fewer.")


def _has_id(member: Any) -> bool:
    """Return whether a member of a group has an id. Names ignore case (RFC 7643, section 2.1)."""
    return isinstance(member, dict) and any(
        isinstance(value, str) and name.lower() == "value" for name, value in member.items()
    )


def _too_long_error(noun: str) -> InvalidFilterException | InvalidPathException:
    """Return the error of a text that is too long."""
    error = InvalidFilterException if noun == _FILTER else InvalidPathException
    return error(detail=f"A {noun} can have at most {TEXT_CHARACTERS_MAX:,} characters. Send several requests.")


def _too_many_operations_error(count_max: int) -> PayloadTooLargeException:
    """Return the error of a request with too many operations."""
    return PayloadTooLargeException(detail=f"The request has more than {count_max:,} operations. Split it.")
