"""Searches of the directory in memory (RFC 7644, section 3.4.2), with limits for the references that they read.

A reference is a member of a group, or a group of a user. The library builds an object of each one.
"""

from collections.abc import Callable, Iterator
from typing import Any

from scim2_models import Resource, ResponseParameters, SearchRequest, TooManyException
from scim2_models.path import CompareOperator, Comparison, FilterNode, LogicalExpr, Not, Present, ValuePath
from scim2_server.storage import SearchPage

from embedsink.directory.resources import GROUP, INDEXED_ATTRIBUTES, USER, Resources

_REFERENCE_ATTRIBUTES = {USER: "groups", GROUP: "members"}
# The library takes 2 s and 100 MiB for a page of this size.
PAGE_BYTES_MAX = 1_048_576
# The size of a reference in a response.
_REFERENCE_BYTES = 512
# A response with this number of references takes 2.5 s.
RESPONSE_REFERENCES_MAX = 50_000
# The maximum number of references that a filter or an order reads, times its comparisons of them. They take 5 s.
REFERENCE_COMPARISONS_MAX = 150_000

_Candidate = tuple[str, str]  # the resource type and the id


class Search:
    """Reads resources for responses, and finds those that a request searches.

    Args:
        resources: the resources.
        check_time: raises an exception if the current request takes too long.
    """

    def __init__(self, resources: Resources, check_time: Callable[[], None]) -> None:
        self._resources = resources
        self._check_time = check_time

    def page(self, names: list[str], request: SearchRequest[Any]) -> SearchPage:
        """Return a page of the matching resources, ordered by the requested attribute and then by id.

        Args:
            names: the names of the resource types.
            request: the filter, the order and the page.
        """
        candidates = [
            (name, resource_id) for name in dict.fromkeys(names) for resource_id in self._candidate_ids(name, request)
        ]
        if request.filter is None and request.sort_by is None:
            found = sorted(candidates, key=lambda candidate: candidate[1])
        else:
            found = self._match_and_sort(candidates, request)
        start = request.start_index_0 or 0
        end = None if request.count is None else start + request.count
        return SearchPage(len(found), list(self._read_page(found[start:end], request)))

    def read(self, name: str, resource_id: str, parameters: ResponseParameters[Any] | None = None) -> Resource[Any]:
        """Return a resource for a response, with its members or groups if the parameters request them.

        Raises:
            TooManyException: the resource has too many references for a response.
        """
        with_references = _wants_references(name, parameters)
        if with_references and self._resources.reference_count(name, resource_id) > RESPONSE_REFERENCES_MAX:
            attribute = _REFERENCE_ATTRIBUTES[name]
            detail = (
                f"{name}s/{resource_id}: has more than {RESPONSE_REFERENCES_MAX:,} {attribute}. "
                f"Add excludedAttributes={attribute}. To change the resource, send a PATCH."
            )
            raise TooManyException(detail=detail)
        return self._resources.read(name, resource_id, with_references=with_references)

    def _candidate_ids(self, name: str, request: SearchRequest[Any]) -> set[str] | list[str]:
        """Return the ids of the resources that may match a filter: all, or those that an index finds."""
        comparison = None if request.filter is None else request.filter.ast
        if isinstance(comparison, Comparison) and comparison.op == CompareOperator.eq:
            attribute = str(comparison.attr_path).rpartition(":")[2].lower()
            for indexed in INDEXED_ATTRIBUTES[name]:
                if attribute == indexed.lower() and isinstance(comparison.value, str):
                    return self._resources.ids_with(name, indexed, comparison.value)
        return self._resources.ids(name)

    def _match_and_sort(self, candidates: list[_Candidate], request: SearchRequest[Any]) -> list[_Candidate]:
        """Return the candidates that match the filter, in the requested order.

        Raises:
            TooManyException: the filter or the order compares too many references.
        """
        compared = [] if request.filter is None else list(_compared_attributes(request.filter.ast))
        compared += [] if request.sort_by is None else [request.sort_by.parts[0].lower()]
        counts = {
            (name, resource_id): self._resources.reference_count(name, resource_id)
            for name, resource_id in candidates
            if _REFERENCE_ATTRIBUTES[name] in compared
        }
        comparisons = sum(
            count * compared.count(_REFERENCE_ATTRIBUTES[name]) for (name, _), count in counts.items() if count
        )
        if comparisons > REFERENCE_COMPARISONS_MAX:
            detail = (
                "The filter or the order compares too many members or groups. "
                "Compare only userName, externalId or displayName."
            )
            raise TooManyException(detail=detail)
        found = []
        # The time is checked between resources, so those that take the most time are read first.
        for name, resource_id in sorted(candidates, key=lambda candidate: -counts.get(candidate, 0)):
            self._check_time()
            resource = self._resources.read(name, resource_id, with_references=(name, resource_id) in counts)
            if request.filter is None or request.filter.match(resource):
                value = None if request.sort_by is None else request.sort_value(resource)
                # Resources without the value come last.
                found.append(((value is None, "" if value is None else value, resource_id), (name, resource_id)))
        is_descending = request.sort_order == SearchRequest.SortOrder.descending
        return [one for _, one in sorted(found, reverse=is_descending and request.sort_by is not None)]

    def _read_page(self, found: list[_Candidate], request: SearchRequest[Any]) -> Iterator[Resource[Any]]:
        """Yield resources until these have about `PAGE_BYTES_MAX` bytes, but at least one.

        A page may have fewer resources than requested (RFC 7644, section 3.4.2.4).
        """
        byte_count = 0
        for name, resource_id in found:
            if byte_count > PAGE_BYTES_MAX:
                return
            self._check_time()
            byte_count += self._resources.document_bytes(name, resource_id)
            if _wants_references(name, request):
                byte_count += _REFERENCE_BYTES * self._resources.reference_count(name, resource_id)
            yield self.read(name, resource_id, request)


def _compared_attributes(node: FilterNode) -> Iterator[str]:
    """Yield the name of the attribute of each comparison in a filter, in lower case."""
    match node:
        case Comparison() | Present():
            yield node.attr_path.attr.lower()
        case Not():
            yield from _compared_attributes(node.expr)
        case LogicalExpr():
            for term in node.terms:
                yield from _compared_attributes(term)
        case ValuePath():
            for _ in _compared_attributes(node.val_filter):
                yield node.attr_path.attr.lower()


def _wants_references(name: str, parameters: ResponseParameters[Any] | None) -> bool:
    """Return whether a response has the members of a group or the groups of a user (RFC 7644, section 3.9)."""
    attribute = _REFERENCE_ATTRIBUTES[name]
    if parameters is None:
        return True
    if parameters.attributes:
        # The URN of a schema stands for all of its attributes.
        schema = f"urn:ietf:params:scim:schemas:core:2.0:{name}".lower()
        return any(
            path.parts[0].lower() == attribute or str(path).lower() == schema
            for path in parameters.attributes
            if path.parts
        )
    # Excluding a part of the references, such as members.type, leaves the others.
    return not any(
        [part.lower() for part in path.parts] == [attribute] for path in parameters.excluded_attributes or ()
    )
