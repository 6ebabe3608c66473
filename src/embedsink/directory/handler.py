"""The service and the handler of scim2-server, with limits and with fast changes of large groups.

scim2-server would build an object of each member of a group, several times: with 30,000 members, adding one would take
seconds. Here, a PATCH changes the ids of the members (RFC 7644, section 3.5.2).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from scim2_models import (
    InvalidPathException,
    InvalidValueException,
    PatchOp,
    PatchOperation,
    Path,
    Resource,
    ResourceType,
    SCIMException,
    SearchRequest,
)
from scim2_models.path import CompareOperator, Comparison
from scim2_server.conditions import Conditions
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.service import ScimService

from embedsink.directory.limits import NO_MEMBER_ID, check_value_count
from embedsink.directory.resources import GROUP
from embedsink.directory.storage import DirectoryStorage

# A larger `startIndex` can't be written as JSON.
START_INDEX_MAX = 2**53
_MEMBERS = "members"
_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:group"


class DirectoryService(ScimService):
    """The protocol of scim2-server, with limits for the parameters of a request."""

    def read_search(self, resource_types: list[ResourceType], payload: Any) -> "tuple[SearchRequest[Any], Any]":
        """Return a search, and None: the directory has no cursors."""
        request, position = super().read_search(resource_types, payload)
        if request.start_index is not None:
            request.start_index = min(request.start_index, START_INDEX_MAX)
        return request, position

    def bulk_failure(self, outcome: dict[str, Any], exception: Exception) -> dict[str, Any]:
        """Return the outcome of a refused operation. Raise a bug, so that it is logged and the request is undone."""
        if not isinstance(exception, SCIMException):
            raise exception
        return super().bulk_failure(outcome, exception)


class DirectoryHandler(ScimHandler):
    """The handler of scim2-server, with fast changes of a group's members."""

    def __init__(self, service: ScimService, storage: DirectoryStorage) -> None:
        super().__init__(service, storage)
        self._directory = storage

    def patch(self, request: ScimRequest) -> ScimResponse:
        """Modify a resource. If attributes are requested, the response is that of a query."""
        response = super().patch(request)
        if response.body is None:
            return response
        return self.query(replace(request, method="GET", body=b"", headers={}))

    def patch_resource(
        self, resource_type: ResourceType, resource_id: str, patch_op: "PatchOp[Any]", conditions: Conditions
    ) -> Resource[Any]:
        """Apply a PATCH to a stored resource, and return it as stored; a group without its members."""
        self._directory.check_time()
        is_group = resource_type.name == GROUP
        on_members, others = _split_operations(patch_op.operations or [], is_group=is_group)
        current = self._directory.read_without_members(resource_type, resource_id)
        self.service.check_preconditions(current, "PATCH", conditions)
        former_members = self._directory.members_of(resource_id)
        members = set(former_members)
        for operation in on_members:
            _apply(operation, members)
        is_changed = members != former_members
        for operation in others:
            check_value_count({str(operation.path or ""): operation.value})
            self._directory.check_time()
            is_changed |= patch_op.model_copy(update={"operations": [operation]}).patch(current)
        if not is_changed:
            return current
        self._directory.replace(resource_type, current, members)
        return self._directory.read_without_members(resource_type, resource_id)

    def delete_resource(self, resource_type: ResourceType, resource_id: str, conditions: Conditions) -> None:
        """Delete a stored resource once its conditions are met. The members of a group are not read."""
        self._directory.check_time()
        current = self._directory.read_without_members(resource_type, resource_id)
        self.service.check_deletion(current, conditions)
        self._directory.delete(resource_type, resource_id)


def _split_operations(
    operations: Iterable[PatchOperation[Any]], *, is_group: bool
) -> tuple[list[PatchOperation[Any]], list[PatchOperation[Any]]]:
    """Return the operations on the members of a group, and the others.

    An operation on members and other attributes becomes two operations.
    """
    on_members: list[PatchOperation[Any]] = []
    others: list[PatchOperation[Any]] = []
    for operation in operations:
        path = str(operation.path or "").strip()
        if not is_group:
            others.append(operation)
        elif path.lower() not in ("", _SCHEMA):
            (on_members if _names_members(operation.path) else others).append(operation)
        elif not isinstance(operation.value, dict):
            others.append(operation)
        else:
            attributes = _flattened(operation.value)
            by_name = {name: one for name, one in attributes if not _is_members(name)}
            if by_name or not attributes:
                others.append(operation.model_copy(update={"path": None, "value": by_name}))
            on_members += [
                operation.model_copy(update={"path": None, "value": one})
                for name, one in attributes
                if _is_members(name)
            ]
    return on_members, others


def _names_members(path: Path[Any] | None) -> bool:
    """Return whether a path begins with the attribute `members` of the schema of groups."""
    if path is None or [part.lower() for part in path.parts[:1]] != [_MEMBERS]:
        return False
    return path.schema is None or path.schema.lower() == _SCHEMA


def _flattened(value: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the attributes in a value, also those in an object with the URN of the schema as its name."""
    attributes: list[tuple[str, Any]] = []
    for name, one in value.items():
        attributes += one.items() if name.lower() == _SCHEMA and isinstance(one, dict) else [(name, one)]
    return attributes


def _is_members(name: str) -> bool:
    """Return whether a name in a value is that of the attribute `members`.

    Raises:
        InvalidPathException: the name is a path into the members.
    """
    try:
        path = Path[Any](name)
    except InvalidPathException:
        return False  # The library ignores or refuses the name.
    if not _names_members(path):
        return False
    if len(path.parts) > 1 or path.value_filter is not None:
        raise _unsupported(name)
    return True


def _apply(operation: PatchOperation[Any], members: set[str]) -> None:
    """Apply an operation on `members` to the ids of a group's members.

    Raises:
        InvalidPathException: the path is neither `members` nor `members[value eq "<id>"]`.
        InvalidValueException: the value is not a list of members.
    """
    selected = _selected_member(operation)
    match operation.op:
        case PatchOperation.Op.remove if selected is not None:
            members.discard(selected.lower())
        case PatchOperation.Op.remove if operation.value is not None:  # Microsoft Entra ID lists the members to remove.
            members -= _member_ids(operation.value)
        case PatchOperation.Op.remove:
            members.clear()
        case PatchOperation.Op.add:
            members |= _member_ids(operation.value)
        case _:
            members.clear()
            members |= _member_ids(operation.value)


def _selected_member(operation: PatchOperation[Any]) -> str | None:
    """Return the id in the path `members[value eq "<id>"]` of a removal; None for the path `members`."""
    path = operation.path
    if path is None or (path.value_filter is None and len(path.parts) == 1):
        return None
    selection = path.value_filter
    if (
        operation.op == PatchOperation.Op.remove
        and len(path.parts) == 1
        and isinstance(selection, Comparison)
        and selection.op == CompareOperator.eq
        and str(selection.attr_path).lower() == "value"
        and isinstance(selection.value, str)
    ):
        return selection.value
    raise _unsupported(path)


def _unsupported(path: object) -> InvalidPathException:
    """Return the error of a path into the members."""
    detail = f'{path}: is not supported. Use the path members, or remove members[value eq "<id>"].'
    return InvalidPathException(detail=detail)


def _member_ids(value: Any) -> set[str]:
    """Return the ids in a list of members such as `{"value": "12"}`; a single member is a list of one.

    Ids are in lower case. The protocol ignores the case of a member's `value` (RFC 7643, section 8.7.1).

    Raises:
        InvalidValueException: an entry has no id.
    """
    entries = value if isinstance(value, list) else [] if value is None else [value]
    ids = set()
    for entry in entries:
        names = {name.lower(): one for name, one in entry.items()} if isinstance(entry, dict) else {}
        if not isinstance(names.get("value"), str):
            raise InvalidValueException(detail=NO_MEMBER_ID)
        ids.add(names["value"].lower())
    return ids
