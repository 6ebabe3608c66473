"""The storage of scim2-server: it checks changes, applies them in memory, and records them for the journal.

A change of a group records only the members that it adds or removes.
"""

import math
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import orjson
from scim2_models import (
    InvalidValueException,
    Meta,
    NotFoundException,
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
from scim2_server.storage import ScimStorage, SearchPage

from embedsink.directory.limits import check_value_count
from embedsink.directory.resources import GROUP, USER, Resources
from embedsink.directory.search import Search
from embedsink.errors import preview, redact_keys
from embedsink.ingest.records import DirectoryChange
from embedsink.protocol.strict_json import has_bad_text

# The maximum size of the JSON of a resource, without the members of a group. Each operation of a PATCH copies it.
RESOURCE_BYTES_MAX = 65_536
# The maximum duration of a request. Other requests wait meanwhile.
REQUEST_S_MAX = 5.0
# The JSON of a user has the names of the user's groups.
GROUP_NAME_CHARACTERS_MAX = 256
# What is not stored: a password, attributes that are computed from the members of groups, and a `meta` that was sent.
_TRANSIENT_ATTRIBUTES = ("password", "groups", "members", "meta")


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
        self._schemas = {str(one.name): _schemas_of(one) for one in provider.resource_types}
        self._bytes_max = bytes_max
        self._clock = clock
        self._resources = Resources(provider)
        self._search = Search(self._resources, self.check_time)
        self._deadline = math.inf  # the deadline of the current request, in monotonic seconds
        self.changes: list[DirectoryChange] = []
        self._inverse_changes: list[DirectoryChange] = []

    def begin(self) -> None:
        """Begin a request, which may take `REQUEST_S_MAX` seconds."""
        self._deadline = time.monotonic() + REQUEST_S_MAX

    def check_time(self) -> None:
        """Raise TooManyException if the current request takes too long (RFC 7644, section 3.12)."""
        if time.monotonic() > self._deadline:
            detail = (
                f"The request takes longer than {REQUEST_S_MAX:g} s. In a filter, compare only userName, externalId or "
                "displayName with eq. Request fewer resources, exclude members and groups, or send fewer operations."
            )
            raise TooManyException(detail=detail)

    def apply(self, change: DirectoryChange) -> None:
        """Apply a change that is already durable."""
        self._resources.apply(change)

    def deleted_users(self) -> list[dict[str, Any]]:
        """Return the users that were deleted since the last `commit`, as they were then."""
        deleted = {one.resource_id for one in self.changes if one.resource_type == USER and one.resource is None}
        # Of several changes of a user, the inverse of the first one has the committed user.
        former = {one.resource_id: one.resource for one in reversed(self._inverse_changes)}
        return [user for user_id in sorted(deleted) if (user := former[user_id]) is not None]

    def commit(self) -> None:
        """Keep the changes since the last call: they are durable."""
        self.changes.clear()
        self._inverse_changes.clear()

    def roll_back(self) -> None:
        """Undo the changes since the last call of `commit`."""
        for inverse in reversed(self._inverse_changes):
            self._resources.apply(inverse)
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
        return self._search.read(name, resource_id, response_parameters)

    def read_without_members(self, resource_type: ResourceType, resource_id: str) -> Resource[Any]:
        """Return a resource as it is stored: a group without its members, a user without groups."""
        name = _name_of(resource_type)
        self._check_exists(name, resource_id)
        return self._resources.read(name, resource_id, with_references=False)

    def members_of(self, resource_id: str) -> frozenset[str]:
        """Return the ids of a group's members; none for a user."""
        return self._resources.members_of(resource_id)

    def search(
        self, resource_types: list[ResourceType], search_request: SearchRequest[Any], *, position: Any = None
    ) -> SearchPage:
        """Return a page of the matching resources, ordered by the requested attribute and then by id."""
        return self._search.page([_name_of(one) for one in resource_types], search_request)

    def create(self, resource_type: ResourceType, resource: Resource[Any]) -> Resource[Any]:
        """Store a new resource under a new id."""
        self.check_time()
        name, resource_id = _name_of(resource_type), str(uuid4())
        now = self._clock()
        self._write(name, resource_id, resource, _member_ids(resource), created_at=now, now=now)
        return self._search.read(name, resource_id)

    def update(
        self, resource_type: ResourceType, resource: Resource[Any], *, expected_version: str | None = None
    ) -> Resource[Any]:
        """Replace a resource."""
        name, resource_id = _name_of(resource_type), str(resource.id)
        created_at = self._check_version(name, resource_id, expected_version)
        self._write(name, resource_id, resource, _member_ids(resource), created_at=created_at, now=self._clock())
        return self._search.read(name, resource_id)

    def replace(self, resource_type: ResourceType, resource: Resource[Any], members: set[str]) -> None:
        """Replace a resource. The ids of a group's members replace those in the resource."""
        name, resource_id = _name_of(resource_type), str(resource.id)
        created_at = self._check_version(name, resource_id, None)
        self._write(name, resource_id, resource, members, created_at=created_at, now=self._clock())

    def delete(self, resource_type: ResourceType, resource_id: str, *, expected_version: str | None = None) -> None:
        """Delete a resource, and its memberships: each of its groups gets a new version."""
        self._check_version(_name_of(resource_type), resource_id, expected_version)
        now = self._clock()
        for group_id in self._resources.groups_of(resource_id):
            group = self._stored(GROUP, group_id)
            self._stamp(group, created_at=group["meta"]["created"], now=now)
            self._record(DirectoryChange(GROUP, group_id, group, members_removed=(resource_id,)))
        members = tuple(sorted(self._resources.members_of(resource_id)))
        self._record(DirectoryChange(_name_of(resource_type), resource_id, None, members_removed=members))

    def _check_exists(self, name: str, resource_id: str) -> None:
        if not self._resources.contains(name, resource_id):
            raise NotFoundException(detail=f"{name} {resource_id!r} not found")

    def _check_version(self, name: str, resource_id: str, expected_version: str | None) -> str:
        """Return the time of creation of a resource.

        Raise PreconditionFailedException if it has another version than the expected one; None expects any version.
        """
        self._check_exists(name, resource_id)
        meta = self._stored(name, resource_id)["meta"]
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
        document = self._checked_document(name, resource_id, resource)
        self._check_unique(name, document)
        former_members = self._resources.members_of(resource_id)
        added, removed = tuple(sorted(members - former_members)), tuple(sorted(former_members - members))
        self._check_members(added)
        if not added and not removed and self._equals_stored(name, document):
            return  # The version and the time of the last change stay the same (RFC 7644, section 3.5.2.1).
        document["meta"] = {"resourceType": name}
        self._stamp(document, created_at=created_at, now=now)
        deactivated_at = self._deactivation_time(document, now)
        self._record(DirectoryChange(name, resource_id, document, deactivated_at, added, removed))

    def _checked_document(self, name: str, resource_id: str, resource: Resource[Any]) -> dict[str, Any]:
        """Return the JSON of a resource as it is stored, without `meta`.

        Raises:
            InvalidValueException: a value is not permitted.
            PayloadTooLargeException: the JSON is too large.
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
            raise InvalidValueException(detail="A text contains a NUL. Remove it.")
        # The journal redacts keys too, and memory must have the same texts.
        text = redact_keys(orjson.dumps(document).decode())
        if len(text.encode()) > RESOURCE_BYTES_MAX:
            detail = f"A resource can have at most {RESOURCE_BYTES_MAX:,} bytes of JSON. Remove attributes."
            raise PayloadTooLargeException(detail=detail)
        document = cast(dict[str, Any], orjson.loads(text))
        required = "userName" if name == USER else "displayName"
        if name == GROUP and len(document["displayName"]) > GROUP_NAME_CHARACTERS_MAX:
            detail = f"displayName: has more than {GROUP_NAME_CHARACTERS_MAX} characters. Shorten it."
            raise InvalidValueException(detail=detail)
        if not document[required].strip():
            raise InvalidValueException(detail=f"{required}: is empty. Send a name.")
        return document

    def _stored(self, name: str, resource_id: str) -> dict[str, Any]:
        """Return the JSON of a resource that exists."""
        return cast(dict[str, Any], self._resources.document(name, resource_id))

    def _equals_stored(self, name: str, document: dict[str, Any]) -> bool:
        """Return whether a resource without `meta` is the same as the stored one."""
        stored = self._resources.document(name, document["id"])
        return stored is not None and document == {key: value for key, value in stored.items() if key != "meta"}

    def _stamp(self, document: dict[str, Any], *, created_at: datetime | str, now: datetime) -> None:
        """Set the times and the version of a new version of a resource."""
        version = f'W/"{self._resources.last_version + 1}"'
        meta = Meta.model_validate({"created": created_at, "lastModified": now, "version": version})
        document["meta"] |= meta.model_dump(mode="json")

    def _record(self, change: DirectoryChange) -> None:
        """Apply a change that is not durable yet. `roll_back` undoes it.

        Raises:
            DirectoryFull: the directory would become larger than its maximum size.
        """
        inverse = self._resources.inverse_of(change)
        byte_count = self._resources.byte_count
        self._resources.apply(change)
        is_too_large = byte_count < self._resources.byte_count > self._bytes_max
        # A person who leaves must be deactivated even in a full directory.
        if is_too_large and not _only_deactivates(inverse, change):
            self._resources.apply(inverse)
            raise DirectoryFull
        self.changes.append(change)
        self._inverse_changes.append(inverse)

    def _deactivation_time(self, document: dict[str, Any], now: datetime) -> int | None:
        """Return when a user was deactivated, in epoch milliseconds; None for an active user or a group."""
        if document.get("active", True):
            return None
        deactivated_at = self._resources.deactivated_at(document["id"])
        return round(now.timestamp() * 1_000) if deactivated_at is None else deactivated_at

    def _check_unique(self, name: str, document: dict[str, Any]) -> None:
        """Raise UniquenessException if another user has the same `userName` (RFC 7643, section 4.1.1)."""
        if name == USER and self._resources.ids_with(USER, "userName", document["userName"]) - {document["id"]}:
            raise UniquenessException(detail="Another user has this userName.")

    def _check_members(self, ids: Iterable[str]) -> None:
        """Raise InvalidValueException if an id is not that of a user or a group."""
        for member in ids:
            if not any(self._resources.contains(name, member) for name in (USER, GROUP)):
                detail = f"members: no user and no group has the id {preview(member)}. Create it first."
                raise InvalidValueException(detail=detail)


def _name_of(resource_type: ResourceType) -> str:
    """Return the name of a resource type: `User` or `Group`."""
    return str(resource_type.name)


def _schemas_of(resource_type: ResourceType) -> set[str]:
    """Return the URNs of the schemas that resources of a type may have."""
    extensions = resource_type.schema_extensions or ()
    return {str(resource_type.schema_), *(str(extension.schema_) for extension in extensions)}


def _member_ids(group: Resource[Any]) -> set[str]:
    """Return the ids of a group's members, in lower case (RFC 7643, section 8.7.1)."""
    return {str(member.value).lower() for member in getattr(group, "members", None) or ()}


def _only_deactivates(inverse: DirectoryChange, change: DirectoryChange) -> bool:
    """Return whether a change deactivates a user and changes nothing else."""
    if inverse.resource is None or change.resource is None or change.deactivated_at is None:
        return False
    return all(
        inverse.resource.get(attribute) == change.resource.get(attribute)
        for attribute in (inverse.resource.keys() | change.resource.keys()) - {"active", "meta"}
    )
