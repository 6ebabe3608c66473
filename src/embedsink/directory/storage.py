"""The users and groups of the directory in memory, as scim2-server reads and changes them (RFC 7643, RFC 7644).

Users are kept as JSON, and so are groups without their members, because objects take ten times the memory. Members are
kept as ids, and a change of a group records only the members that it adds or removes.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import orjson
from scim2_models import (
    InvalidValueException,
    Meta,
    NotFoundException,
    Path,
    PayloadTooLargeException,
    PreconditionFailedException,
    Resource,
    ResourceType,
    ResponseParameters,
    SCIMException,
    ScimProvider,
    SearchRequest,
    TooManyException,
    UniquenessException,
)
from scim2_models.path import AttributeBinding, CompareOperator, Comparison
from scim2_server.storage import ScimStorage, SearchPage

from embedsink.directory.limits import check_value_count
from embedsink.errors import preview, redact_keys
from embedsink.ingest.records import DirectoryChange
from embedsink.protocol.strict_json import has_bad_text

USER, GROUP = "User", "Group"
# Attributes that a filter with `eq` finds without reading all resources. Identity providers look up users and groups by
# them before each change.
_INDEXED_ATTRIBUTES = {USER: ("userName", "externalId"), GROUP: ("displayName", "externalId")}
_MEMBERS = "members"
# The maximum size of the JSON of a resource, without the members of a group. Each operation of a PATCH copies it.
RESOURCE_BYTES_MAX = 65_536
# The maximum duration of a request. Other requests wait meanwhile.
REQUEST_S_MAX = 5.0
# The library takes 2 s and 100 MiB for a page of this size.
PAGE_BYTES_MAX = 1_048_576
# The JSON of a user has the names of the user's groups.
GROUP_NAME_CHARACTERS_MAX = 256
# The maximum number of comparisons of a filter, times the references of the largest resource. They take 5 s.
_REFERENCE_COMPARISONS_MAX = 400_000
_LOGICAL_OPERATOR = re.compile(r"\b(?:and|or)\b")
# The size of a member of a group, or of a group of a user, in a response.
_REFERENCE_BYTES = 512
# What is not stored: a password, and attributes that are computed from the members of groups.
_TRANSIENT_ATTRIBUTES = ("password", "groups", "members")
# The size of a member in memory: its id, and the entries of the group and of the user.
_MEMBER_BYTES = 256


class DirectoryFull(SCIMException):
    """The directory has its maximum size (status 507)."""

    status = 507
    _default_detail = (
        "The directory has its maximum size. Deprovision users or groups that are not needed, or ask the operator to "
        "raise EMBEDSINK_DIRECTORY_BYTES_MAX."
    )


class DirectoryStorage(ScimStorage):
    """The newest version of each user and group. One thread at a time may use it.

    Attributes:
        changes: the changes since the last `commit`, in their order.

    Args:
        provider: the resource types and their models.
        bytes_max: the maximum size, in bytes.
        clock: returns the time in UTC.
    """

    def __init__(
        self,
        provider: ScimProvider,
        *,
        bytes_max: int,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._models: dict[str, type[Resource[Any]]] = {
            str(one.name): cast(type[Resource[Any]], provider.model_for(one)) for one in provider.resource_types
        }
        self._bindings = {  # the rules of equality of the indexed attributes
            (name, attribute): cast(AttributeBinding, Path(attribute).resolve(self._models[name]))
            for name, attributes in _INDEXED_ATTRIBUTES.items()
            for attribute in attributes
        }
        self._schemas = {str(one.name): _schemas_of(one) for one in provider.resource_types}
        self._bytes_max = bytes_max
        self._clock = clock
        self._documents: dict[str, dict[str, bytes]] = {USER: {}, GROUP: {}}
        self._deactivated_at: dict[str, int] = {}  # by the id of an inactive user, in epoch milliseconds
        self._members: dict[str, set[str]] = {}  # by the id of the group
        self._groups: dict[str, set[str]] = {}  # by the id of the member
        self._index: dict[tuple[str, str, str], set[str]] = {}  # ids by type, attribute and compared value
        self._byte_count = 0
        self._last_version = 0
        self._ends_at = math.inf  # the deadline of the current request, in monotonic seconds
        self.changes: list[DirectoryChange] = []
        self._inverse_changes: list[DirectoryChange] = []

    def begin(self) -> None:
        """Begin a request, which may take `REQUEST_S_MAX` seconds."""
        self._ends_at = time.monotonic() + REQUEST_S_MAX

    def check_time(self) -> None:
        """Raise TooManyException if the current request takes too long (RFC 7644, section 3.12)."""
        if time.monotonic() > self._ends_at:
            detail = (
                f"The request takes longer than {REQUEST_S_MAX:g} s. In a filter, compare only userName, externalId or "
                "displayName with eq. Request fewer resources, exclude members, or send fewer operations."
            )
            raise TooManyException(detail=detail)

    def apply(self, change: DirectoryChange) -> None:
        """Apply a change that is already durable."""
        documents = self._documents[change.resource_type]
        former = documents.pop(change.resource_id, None)
        if former is not None:
            self._byte_count -= len(former)
            for key in self._index_keys(change.resource_type, orjson.loads(former)):
                self._index[key].remove(change.resource_id)
                if not self._index[key]:
                    del self._index[key]
        self._deactivated_at.pop(change.resource_id, None)
        if change.resource is not None:
            document = orjson.dumps(change.resource)
            documents[change.resource_id] = document
            self._byte_count += len(document)
            for key in self._index_keys(change.resource_type, change.resource):
                self._index.setdefault(key, set()).add(change.resource_id)
            self._last_version = max(self._last_version, _version_number(change.resource))
        if change.deactivated_at is not None:
            self._deactivated_at[change.resource_id] = change.deactivated_at
        self._change_members(change)

    def deleted_users(self) -> list[dict[str, Any]]:
        """Return the users that were deleted since the last `commit`, as they were before."""
        deleted = {one.resource_id for one in self.changes if one.resource_type == USER and one.resource is None}
        former = {one.resource_id: one.resource for one in self._inverse_changes if one.resource is not None}
        return [former[user_id] for user_id in sorted(deleted & former.keys())]

    def commit(self) -> None:
        """Keep the changes since the last call: they are durable."""
        self.changes.clear()
        self._inverse_changes.clear()

    def roll_back(self) -> None:
        """Undo the changes since the last call of `commit`."""
        for inverse in reversed(self._inverse_changes):
            self.apply(inverse)
        self.commit()

    def get(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        response_parameters: ResponseParameters[Any] | None = None,
    ) -> Resource[Any]:
        """Return a resource, with the members of a group or the groups of a user."""
        self.check_time()  # A bulk request has many operations.
        name = _name_of(resource_type)
        self._check_exists(name, resource_id)
        return self._read(name, resource_id, with_members=_wants_members(response_parameters))

    def read_without_members(self, resource_type: ResourceType, resource_id: str) -> Resource[Any]:
        """Return a resource as it is stored: a group without its members, a user without groups."""
        name = _name_of(resource_type)
        self._check_exists(name, resource_id)
        return self._models[name].model_validate(orjson.loads(self._documents[name][resource_id]))

    def members_of(self, resource_id: str) -> frozenset[str]:
        """Return the ids of a group's members; none for a user."""
        return frozenset(self._members.get(resource_id, ()))

    def search(
        self, resource_types: list[ResourceType], search_request: SearchRequest[Any], *, position: Any = None
    ) -> SearchPage:
        """Return a page of the matching resources, ordered by the requested attribute and then by id."""
        candidates = [
            (name, resource_id)
            for name in dict.fromkeys(map(_name_of, resource_types))
            for resource_id in self._candidate_ids(name, search_request)
        ]
        if search_request.filter is None and search_request.sort_by is None:
            found = sorted(candidates, key=lambda candidate: candidate[1])
        else:
            found = self._match_and_sort(candidates, search_request)
        start = search_request.start_index_0 or 0
        end = None if search_request.count is None else start + search_request.count
        with_members = _wants_members(search_request)
        page = self._shorten(found[start:end], with_members=with_members)
        return SearchPage(len(found), list(self._read_all(page, with_members=with_members)))

    def create(self, resource_type: ResourceType, resource: Resource[Any]) -> Resource[Any]:
        """Store a new resource under a new id."""
        self.check_time()
        name, resource_id = _name_of(resource_type), str(uuid4())
        now = self._clock()
        self._write(name, resource_id, resource, _member_ids(resource), created_at=now, now=now)
        return self._read(name, resource_id)

    def update(
        self, resource_type: ResourceType, resource: Resource[Any], *, expected_version: str | None = None
    ) -> Resource[Any]:
        """Replace a resource."""
        name, resource_id = _name_of(resource_type), str(resource.id)
        created_at = self._check_version(name, resource_id, expected_version)
        self._write(name, resource_id, resource, _member_ids(resource), created_at=created_at, now=self._clock())
        return self._read(name, resource_id)

    def replace(self, resource_type: ResourceType, resource: Resource[Any], members: set[str]) -> None:
        """Replace a resource. The ids of a group's members replace those in the resource."""
        name, resource_id = _name_of(resource_type), str(resource.id)
        created_at = self._check_version(name, resource_id, None)
        self._write(name, resource_id, resource, members, created_at=created_at, now=self._clock())

    def delete(self, resource_type: ResourceType, resource_id: str, *, expected_version: str | None = None) -> None:
        """Delete a resource, and its memberships: each of its groups gets a new version."""
        self._check_version(_name_of(resource_type), resource_id, expected_version)
        now = self._clock()
        for group_id in sorted(self._groups.get(resource_id, ())):
            group = orjson.loads(self._documents[GROUP][group_id])
            self._stamp(group, created_at=group["meta"]["created"], now=now)
            self._record(DirectoryChange(GROUP, group_id, group, members_removed=(resource_id,)))
        members = tuple(sorted(self._members.get(resource_id, ())))
        self._record(DirectoryChange(_name_of(resource_type), resource_id, None, members_removed=members))

    def _check_exists(self, name: str, resource_id: str) -> None:
        if resource_id not in self._documents[name]:
            raise NotFoundException(detail=f"{name} {resource_id!r} not found")

    def _check_version(self, name: str, resource_id: str, expected_version: str | None) -> str:
        """Return the time of creation of a resource.

        Raise PreconditionFailedException if it has another version than the expected one; None expects any version.
        """
        self._check_exists(name, resource_id)
        meta = orjson.loads(self._documents[name][resource_id])["meta"]
        if expected_version is not None and meta["version"] != expected_version:
            raise PreconditionFailedException
        return str(meta["created"])

    def _write(
        self,
        name: str,
        resource_id: str,
        resource: Resource[Any],
        members: set[str],
        *,
        created_at: datetime | str,
        now: datetime,
    ) -> None:
        """Store a version of a resource.

        Args:
            name: the name of the resource type.
            resource_id: the id.
            resource: the resource. Its members are not used.
            members: the ids of the members of a group.
            created_at: the time of creation.
            now: the time of the version.
        """
        document = {
            attribute: value
            for attribute, value in resource.model_dump(mode="json").items()
            if attribute not in _TRANSIENT_ATTRIBUTES
        }
        document["id"] = resource_id
        # A PATCH can add any text to the schemas.
        document["schemas"] = [schema for schema in document["schemas"] if schema in self._schemas[name]]
        check_value_count(document)
        if has_bad_text(document):
            raise InvalidValueException(detail="A text contains a NUL or a lone surrogate. Remove it.")
        # The journal redacts keys too, and memory must have the same texts.
        text = redact_keys(orjson.dumps(document).decode())
        if len(text.encode()) > RESOURCE_BYTES_MAX:
            detail = f"A resource can have at most {RESOURCE_BYTES_MAX:,} bytes of JSON. Remove attributes."
            raise PayloadTooLargeException(detail=detail)
        document = orjson.loads(text)
        required = "userName" if name == USER else "displayName"
        if name == GROUP and len(document["displayName"]) > GROUP_NAME_CHARACTERS_MAX:
            detail = f"displayName: has more than {GROUP_NAME_CHARACTERS_MAX} characters. Shorten it."
            raise InvalidValueException(detail=detail)
        if not document[required].strip():
            raise InvalidValueException(detail=f"{required}: is empty. Send a name.")
        self._check_unique(name, document)
        document["meta"] = {"resourceType": name}
        self._stamp(document, created_at=created_at, now=now)
        change = DirectoryChange(name, resource_id, document)
        if name == USER:
            self._record(replace(change, deactivated_at=self._deactivation_time(document, now)))
        else:
            former = self._members.get(resource_id, set())
            added, removed = tuple(sorted(members - former)), tuple(sorted(former - members))
            self._check_members(added)
            self._record(replace(change, members_added=added, members_removed=removed))

    def _stamp(self, document: dict[str, Any], *, created_at: datetime | str, now: datetime) -> None:
        """Set the times and the version of a new version of a resource."""
        version = f'W/"{self._last_version + 1}"'
        meta = Meta.model_validate({"created": created_at, "lastModified": now, "version": version})
        document["meta"] |= meta.model_dump(mode="json")

    def _record(self, change: DirectoryChange) -> None:
        """Apply a change that is not durable yet. `roll_back` undoes it.

        Raises:
            DirectoryFull: the directory would become larger than its maximum size.
        """
        former = self._documents[change.resource_type].get(change.resource_id)
        inverse = DirectoryChange(
            change.resource_type,
            change.resource_id,
            None if former is None else orjson.loads(former),
            self._deactivated_at.get(change.resource_id),
            members_added=change.members_removed,
            members_removed=change.members_added,
        )
        byte_count = self._byte_count
        self.apply(change)
        is_too_large = byte_count < self._byte_count > self._bytes_max
        # A person who leaves must be deactivated even in a full directory.
        if is_too_large and not _only_deactivates(inverse, change):
            self.apply(inverse)
            raise DirectoryFull
        self.changes.append(change)
        self._inverse_changes.append(inverse)

    def _change_members(self, change: DirectoryChange) -> None:
        """Apply the changes of a group's members."""
        members = self._members.setdefault(change.resource_id, set()) if change.resource_type == GROUP else set()
        for member in change.members_removed:
            if member in members:
                members.remove(member)
                self._groups[member].remove(change.resource_id)
                if not self._groups[member]:
                    del self._groups[member]
                self._byte_count -= _MEMBER_BYTES
        for member in change.members_added:
            if member not in members:
                members.add(member)
                self._groups.setdefault(member, set()).add(change.resource_id)
                self._byte_count += _MEMBER_BYTES
        if change.resource is None:
            self._members.pop(change.resource_id, None)

    def _deactivation_time(self, document: dict[str, Any], now: datetime) -> int | None:
        """Return when a user was deactivated, in epoch milliseconds; None for an active user."""
        if document.get("active", True):
            return None
        return self._deactivated_at.get(document["id"], round(now.timestamp() * 1_000))

    def _check_unique(self, name: str, document: dict[str, Any]) -> None:
        """Raise UniquenessException if another user has the same `userName` (RFC 7643, section 4.1.1)."""
        if name == USER:
            owners = self._ids_with(USER, "userName", document["userName"])
            if owners - {document["id"]}:
                raise UniquenessException(detail="Another user has this userName.")

    def _check_members(self, ids: Iterable[str]) -> None:
        """Raise InvalidValueException if an id is not that of a user or a group."""
        for member in ids:
            if member not in self._documents[USER] and member not in self._documents[GROUP]:
                detail = f"members: no user and no group has the id {preview(member)}. Create it first."
                raise InvalidValueException(detail=detail)

    def _read(self, name: str, resource_id: str, *, with_members: bool = True) -> Resource[Any]:
        """Return a stored resource as an object of its model. `with_members` applies to groups."""
        document = orjson.loads(self._documents[name][resource_id])
        if name == USER:
            groups = [self._group_reference(group_id) for group_id in sorted(self._groups.get(resource_id, ()))]
            document |= {"groups": groups} if groups else {}
        elif with_members:
            members = [self._member_reference(member) for member in sorted(self._members[resource_id])]
            document |= {"members": members} if members else {}
        return self._models[name].model_validate(document)

    def _member_reference(self, member: str) -> dict[str, str]:
        """Return a member of a group. A member that is not in the directory counts as a user."""
        name = GROUP if member in self._documents[GROUP] else USER
        return {"value": member, "$ref": f"{name}s/{member}", "type": name}  # The library completes the URL.

    def _group_reference(self, group_id: str) -> dict[str, str]:
        """Return a group of a user."""
        display = orjson.loads(self._documents[GROUP][group_id])["displayName"]
        return {"value": group_id, "$ref": f"Groups/{group_id}", "display": display, "type": "direct"}

    def _candidate_ids(self, name: str, search_request: SearchRequest[Any]) -> Iterable[str]:
        """Return the ids of the resources that may match a filter: all, or those that an index finds."""
        comparison = None if search_request.filter is None else search_request.filter.ast
        if isinstance(comparison, Comparison) and comparison.op == CompareOperator.eq:
            attribute = str(comparison.attr_path).rpartition(":")[2].lower()
            for indexed in _INDEXED_ATTRIBUTES[name]:
                if attribute == indexed.lower() and isinstance(comparison.value, str):
                    return self._ids_with(name, indexed, comparison.value)
        return self._documents[name]

    def _ids_with(self, name: str, attribute: str, value: str) -> set[str]:
        """Return the ids of the resources whose indexed attribute equals a value, as in a filter with `eq`."""
        return self._index.get((name, attribute, self._bindings[name, attribute].comparable(value)), set())

    def _read_all(self, found: Iterable[tuple[str, str]], *, with_members: bool) -> Iterator[Resource[Any]]:
        """Yield the resources with these types and ids. Raise TooManyException if that takes too long."""
        for name, resource_id in found:
            self.check_time()
            yield self._read(name, resource_id, with_members=with_members)

    def _shorten(self, found: Iterable[tuple[str, str]], *, with_members: bool) -> Iterator[tuple[str, str]]:
        """Yield the types and ids of resources until these have about `PAGE_BYTES_MAX` bytes, but at least one.

        A page may have fewer resources than requested (RFC 7644, section 3.4.2.4).
        """
        byte_count = 0
        for name, resource_id in found:
            if byte_count > PAGE_BYTES_MAX:
                return
            reference_count = self._reference_count(name, resource_id, with_members=with_members)
            byte_count += len(self._documents[name][resource_id]) + _REFERENCE_BYTES * reference_count
            yield name, resource_id

    def _match_and_sort(
        self, candidates: Sequence[tuple[str, str]], search_request: SearchRequest[Any]
    ) -> list[tuple[str, str]]:
        """Return the types and ids of the candidates that match the filter, in the requested order."""
        found = []
        text = f"{search_request.filter} {search_request.sort_by}".lower()
        with_members = _MEMBERS in text
        comparison_count = len(_LOGICAL_OPERATOR.findall(text)) + 1
        compares_groups = "groups" in text
        reference_counts = (
            self._reference_count(name, resource_id, with_members=with_members)
            for name, resource_id in candidates
            if name == GROUP or compares_groups
        )
        reference_count = max(reference_counts, default=0)
        if comparison_count * reference_count > _REFERENCE_COMPARISONS_MAX:
            detail = "The filter compares too many members or groups. Compare only userName, externalId or displayName."
            raise TooManyException(detail=detail)
        resources = self._read_all(candidates, with_members=with_members)
        for (name, resource_id), resource in zip(candidates, resources, strict=True):
            if search_request.filter is None or search_request.filter.match(resource):
                value = None if search_request.sort_by is None else search_request.sort_value(resource)
                # Resources without the value come last.
                found.append(((value is None, "" if value is None else value, resource_id), (name, resource_id)))
        is_descending = search_request.sort_order == SearchRequest.SortOrder.descending
        return [one for _, one in sorted(found, reverse=is_descending and search_request.sort_by is not None)]

    def _reference_count(self, name: str, resource_id: str, *, with_members: bool) -> int:
        """Return the number of references in a resource: the groups of a user, or the members of a group."""
        if name == USER:
            return len(self._groups.get(resource_id, ()))
        return len(self._members[resource_id]) if with_members else 0

    def _index_keys(self, name: str, document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Yield the keys of a resource in the index."""
        for attribute in _INDEXED_ATTRIBUTES[name]:
            if document.get(attribute):
                yield name, attribute, self._bindings[name, attribute].comparable(document[attribute])


def _name_of(resource_type: ResourceType) -> str:
    """Return the name of a resource type: `User` or `Group`."""
    return str(resource_type.name)


def _schemas_of(resource_type: ResourceType) -> set[str]:
    """Return the URNs of the schemas that resources of a type may have."""
    extensions = resource_type.schema_extensions or ()
    return {str(resource_type.schema_), *(str(extension.schema_) for extension in extensions)}


def _member_ids(group: Resource[Any]) -> set[str]:
    """Return the ids of a group's members, in lower case (RFC 7643, section 8.7.1)."""
    return {str(member.value).lower() for member in getattr(group, "members", None) or () if member.value}


def _version_number(document: dict[str, Any]) -> int:
    """Return the number in the version of a resource, such as 12 in `W/"12"`."""
    return int(document["meta"]["version"][3:-1])


def _only_deactivates(inverse: DirectoryChange, change: DirectoryChange) -> bool:
    """Return whether a change deactivates a user and changes nothing else."""
    if inverse.resource is None or change.resource is None or change.deactivated_at is None:
        return False
    return all(
        inverse.resource.get(attribute) == change.resource.get(attribute)
        for attribute in (inverse.resource.keys() | change.resource.keys()) - {"active", "meta"}
    )


def _wants_members(parameters: ResponseParameters[Any] | None) -> bool:
    """Return whether a response has the members of groups (RFC 7644, section 3.9)."""
    if parameters is None:
        return True
    if parameters.attributes:
        return any(path.parts[:1] and path.parts[0].lower() == _MEMBERS for path in parameters.attributes)
    # Excluding a part of the members, such as members.type, leaves the others.
    return not any([part.lower() for part in path.parts] == [_MEMBERS] for path in parameters.excluded_attributes or ())
