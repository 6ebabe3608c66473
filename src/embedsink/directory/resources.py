"""The users and groups of the directory in memory.

Users are kept as JSON, and so are groups without their members, because objects take ten times the memory. Members are
kept as ids.
"""

from collections.abc import Iterator
from typing import Any, cast

import orjson
from scim2_models import Path, Resource, ScimProvider
from scim2_models.path import AttributeBinding

from embedsink.ingest.records import DirectoryChange

USER, GROUP = "User", "Group"
# Attributes that a filter with `eq` finds without reading all resources. Identity providers look up users and groups by
# them before each change.
INDEXED_ATTRIBUTES = {USER: ("userName", "externalId"), GROUP: ("displayName", "externalId")}
# The size of a member in memory: its id, and the entries of the group and of the user.
_MEMBER_BYTES = 256


class Resources:
    """The newest version of each user and group.

    Attributes:
        models: the models of scim2-models, by the name of the resource type.
        byte_count: the size of the directory, in bytes.
        last_version: the largest number of a version.

    Args:
        provider: the resource types and their models.
    """

    def __init__(self, provider: ScimProvider) -> None:
        self.models: dict[str, type[Resource[Any]]] = {
            str(one.name): cast(type[Resource[Any]], provider.model_for(one)) for one in provider.resource_types
        }
        self.byte_count = 0
        self.last_version = 0
        self._bindings = {  # the rules of equality of the indexed attributes
            (name, attribute): cast(AttributeBinding, Path(attribute).resolve(self.models[name]))
            for name, attributes in INDEXED_ATTRIBUTES.items()
            for attribute in attributes
        }
        self._documents: dict[str, dict[str, bytes]] = {USER: {}, GROUP: {}}
        self._deactivated_at: dict[str, int] = {}  # by the id of an inactive user, in epoch milliseconds
        self._members: dict[str, set[str]] = {}  # by the id of the group
        self._groups: dict[str, set[str]] = {}  # by the id of the member
        self._index: dict[tuple[str, str, str], set[str]] = {}  # ids by type, attribute and compared value

    def apply(self, change: DirectoryChange) -> None:
        """Apply a change."""
        documents = self._documents[change.resource_type]
        former = documents.pop(change.resource_id, None)
        if former is not None:
            self.byte_count -= len(former)
            for key in self._index_keys(change.resource_type, orjson.loads(former)):
                self._index[key].remove(change.resource_id)
                if not self._index[key]:
                    del self._index[key]
        self._deactivated_at.pop(change.resource_id, None)
        if change.resource is not None:
            document = orjson.dumps(change.resource)
            documents[change.resource_id] = document
            self.byte_count += len(document)
            for key in self._index_keys(change.resource_type, change.resource):
                self._index.setdefault(key, set()).add(change.resource_id)
            self.last_version = max(self.last_version, _version_number(change.resource))
        if change.deactivated_at is not None:
            self._deactivated_at[change.resource_id] = change.deactivated_at
        self._change_members(change)

    def inverse_of(self, change: DirectoryChange) -> DirectoryChange:
        """Return the change that undoes a change which is not applied yet."""
        return DirectoryChange(
            change.resource_type,
            change.resource_id,
            self.document(change.resource_type, change.resource_id),
            self._deactivated_at.get(change.resource_id),
            members_added=change.members_removed,
            members_removed=change.members_added,
        )

    def contains(self, name: str, resource_id: str) -> bool:
        """Return whether a resource exists."""
        return resource_id in self._documents[name]

    def ids(self, name: str) -> list[str]:
        """Return the ids of all resources of a type."""
        return list(self._documents[name])

    def ids_with(self, name: str, attribute: str, value: str) -> set[str]:
        """Return the ids of the resources whose indexed attribute equals a value, as in a filter with `eq`."""
        return set(self._index.get((name, attribute, self._bindings[name, attribute].comparable(value)), ()))

    def document(self, name: str, resource_id: str) -> dict[str, Any] | None:
        """Return a resource as it is stored, without members and groups; None if it does not exist."""
        document = self._documents[name].get(resource_id)
        return None if document is None else cast(dict[str, Any], orjson.loads(document))

    def document_bytes(self, name: str, resource_id: str) -> int:
        """Return the size of a stored resource, in bytes."""
        return len(self._documents[name][resource_id])

    def deactivated_at(self, resource_id: str) -> int | None:
        """Return when a user was deactivated, in epoch milliseconds; None for an active user."""
        return self._deactivated_at.get(resource_id)

    def members_of(self, resource_id: str) -> frozenset[str]:
        """Return the ids of a group's members; none for a user."""
        return frozenset(self._members.get(resource_id, ()))

    def groups_of(self, resource_id: str) -> list[str]:
        """Return the ids of the groups that have a user or a group as a member, in their order."""
        return sorted(self._groups.get(resource_id, ()))

    def reference_count(self, name: str, resource_id: str) -> int:
        """Return the number of references in a resource: the groups of a user, or the members of a group."""
        return len((self._groups if name == USER else self._members).get(resource_id, ()))

    def read(self, name: str, resource_id: str, *, with_references: bool) -> Resource[Any]:
        """Return a resource as an object of its model, with or without the groups of a user or members of a group."""
        document = orjson.loads(self._documents[name][resource_id])
        if with_references and name == USER:
            groups = [self._group_reference(group_id) for group_id in self.groups_of(resource_id)]
            document |= {"groups": groups} if groups else {}
        elif with_references:
            members = [self._member_reference(member) for member in sorted(self._members[resource_id])]
            document |= {"members": members} if members else {}
        return self.models[name].model_validate(document)

    def _change_members(self, change: DirectoryChange) -> None:
        """Apply the changes of a group's members."""
        members = self._members.setdefault(change.resource_id, set()) if change.resource_type == GROUP else set()
        for member in change.members_removed:
            if member in members:
                members.remove(member)
                self._groups[member].remove(change.resource_id)
                if not self._groups[member]:
                    del self._groups[member]
                self.byte_count -= _MEMBER_BYTES
        for member in change.members_added:
            if member not in members:
                members.add(member)
                self._groups.setdefault(member, set()).add(change.resource_id)
                self.byte_count += _MEMBER_BYTES
        if change.resource is None:
            self._members.pop(change.resource_id, None)

    def _member_reference(self, member: str) -> dict[str, str]:
        """Return a member of a group. A member that is not in the directory counts as a user."""
        name = GROUP if member in self._documents[GROUP] else USER
        return {"value": member, "$ref": f"{name}s/{member}", "type": name}  # The library completes the URL.

    def _group_reference(self, group_id: str) -> dict[str, str]:
        """Return a group of a user."""
        display = orjson.loads(self._documents[GROUP][group_id])["displayName"]
        return {"value": group_id, "$ref": f"Groups/{group_id}", "display": display, "type": "direct"}

    def _index_keys(self, name: str, document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Yield the keys of a resource in the index."""
        for attribute in INDEXED_ATTRIBUTES[name]:
            if document.get(attribute):
                yield name, attribute, self._bindings[name, attribute].comparable(document[attribute])


def _version_number(document: dict[str, Any]) -> int:
    """Return the number in the version of a resource, such as 12 in `W/"12"`."""
    return int(document["meta"]["version"][3:-1])
