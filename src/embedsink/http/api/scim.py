"""`/api/scim/v2`: the viewers' directory, which an identity provider provisions (RFC 7644, spec 5.4).

scim2-server implements the protocol. This module authenticates, reads bodies within the server's limits, and converts
requests and responses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.auth.keys import KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused
from embedsink.http.authentication import check_unlimited, require_scim_key
from embedsink.http.base_url import base_url_of
from embedsink.http.client_address import client_address
from embedsink.http.ingest_admission import Admission
from embedsink.http.openapi.errors import BODY_REASONS, JOURNAL_REASONS, SCOPE_REASONS
from embedsink.http.openapi.operation import NOT_MODIFIED, WEAK_ETAG, Operation, OperationResponse, Success
from embedsink.http.openapi.parameters import content_encoding, if_none_match, parameter
from embedsink.http.openapi.parts import TEXT, Schema, ref
from embedsink.http.problems import SCIM_MEDIA_TYPE, SCIM_PREFIX
from embedsink.http.rate_limiter import Sender
from embedsink.http.security_headers import NO_STORE
from embedsink.reasons import Reason
from embedsink.settings import Settings

if TYPE_CHECKING:
    from embedsink.auth.login_provider import LoginProvider

_SPACE = 0x20
_MEDIA_TYPES = (SCIM_MEDIA_TYPE, "application/json")


async def scim(request: Request) -> Response:
    """Answer a request to the directory. A change is durable before the response."""
    key = require_scim_key(request)
    check_unlimited(key, "directory: belongs to all deployments and tenants")
    if any(ord(character) < _SPACE for character in request.scope["path"]):
        # The library would ignore a line break after an id.
        raise Refused(Reason.NOT_FOUND, "path: contains a control character. Correct the URL.")
    admission: Admission = request.state.admission
    body, encoding = await admission.read_body(request, Sender(client_address(request.scope), key.key_id))
    decode = partial(admission.bodies.decode, body, encoding=encoding)
    engine: Engine = request.state.engine
    async with engine.limiters.directory.slot(key.key_id):
        require_scim_key(request)  # The key may have been revoked during the wait.
        content = await run_in_threadpool(decode)
        from scim2_server.requests import ScimRequest

        response = await engine.directory.answer(
            ScimRequest(
                method="GET" if request.method == "HEAD" else request.method,
                base_url=_base_url(request),
                path=request.url.path.removeprefix(SCIM_PREFIX),
                query=dict(request.query_params),
                headers=list(request.headers.items()),
                body=content,
            )
        )
    encoded = b"" if response.body is None else orjson.dumps(response.body)
    return Response(encoded, response.status, {**response.headers, **NO_STORE})


def _base_url(request: Request) -> str:
    """Return the URL of the SCIM API for locations: that of `server_url` in `identity.toml`, or else of the request."""
    provider: LoginProvider | None = request.state.login_provider
    origin = base_url_of(request) if provider is None else provider.login.server_url
    return f"{origin}{SCIM_PREFIX}"


class _Method(NamedTuple):
    """A method of an endpoint: its operation id, its summary, and the status and schema of its success."""

    id: str
    summary: str
    status: int = 200
    schema: str = ""
    body: str = ""


def _resource_endpoints(name: str) -> dict[str, dict[str, _Method]]:
    """Return the methods of the endpoints for users or groups."""
    plural, noun = f"{name}s", name.lower()
    return {
        f"/{plural}": {
            "get": _Method(f"list{plural}", f"List and search {noun}s", schema="ScimList"),
            "post": _Method(f"create{name}", f"Create a {noun}", 201, schema=f"Scim{name}", body=f"Scim{name}"),
        },
        f"/{plural}/.search": {
            "post": _Method(f"search{plural}", f"Search {noun}s", schema="ScimList", body="ScimSearch"),
        },
        f"/{plural}/{{id}}": {
            "get": _Method(f"read{name}", f"Read a {noun}", schema=f"Scim{name}"),
            "put": _Method(f"replace{name}", f"Replace a {noun}", schema=f"Scim{name}", body=f"Scim{name}"),
            "patch": _Method(f"change{name}", f"Change a {noun}", 204, body="ScimPatch"),
            "delete": _Method(f"delete{name}", f"Delete a {noun}", 204),
        },
    }


_DIRECTORY_ENDPOINTS: dict[str, dict[str, _Method]] = {
    "/.search": {"post": _Method("searchDirectory", "Search users and groups", schema="ScimList", body="ScimSearch")},
    "/Bulk": {"post": _Method("bulkChange", "Make several changes", schema="ScimBulk", body="ScimBulk")},
    "/ServiceProviderConfig": {
        "get": _Method("readScimConfig", "Read what the SCIM API supports", schema="ScimObject")
    },
    "/ResourceTypes": {"get": _Method("listResourceTypes", "List the types of resources", schema="ScimList")},
    "/ResourceTypes/{id}": {"get": _Method("readResourceType", "Read a type of resources", schema="ScimObject")},
    "/Schemas": {"get": _Method("listSchemas", "List the schemas", schema="ScimList")},
    "/Schemas/{id}": {"get": _Method("readSchema", "Read a schema", schema="ScimObject")},
}
# What the protocol's own errors mean (RFC 7644, section 3.12), by status.
_PROTOCOL_ERRORS = {
    400: "The request is invalid or takes too long; `scimType` and `detail` say why.",
    404: "The resource does not exist.",
    409: "Another user has this `userName`, or an operation of a bulk request refers to one that failed.",
    412: "The resource has another version than `If-Match` requires.",
    413: "The body is too large, has too many URNs, or has too many operations.",
    415: "The body is not JSON.",
    501: "The API does not support this request.",
    507: "The directory has its maximum size.",
}
_REASONS = (*SCOPE_REASONS, *JOURNAL_REASONS)
_BODY_REASONS = tuple(reason for reason in BODY_REASONS if reason.status in (408, 413, 415))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScimOperation(Operation):
    """An operation whose errors are those of SCIM."""

    def responses(self) -> list[OperationResponse]:
        """Return all responses. An error has a SCIM body, and its description names embedsink's reasons too."""
        errors = {
            response.status: OperationResponse(
                response.status, response.meaning, {SCIM_MEDIA_TYPE: ref("ScimError")}, response.headers
            )
            for response in self._error_responses()
        }
        # A dataclass with slots replaces its class, so `super` needs its arguments.
        all_responses = super(_ScimOperation, self).responses()
        successes = [response for response in all_responses if response.status not in errors]
        for status, meaning in _PROTOCOL_ERRORS.items():
            if status not in errors:
                errors[status] = OperationResponse(status, meaning, {SCIM_MEDIA_TYPE: ref("ScimError")})
        return [*successes, *(errors[status] for status in sorted(errors))]


class _Endpoints:
    """A part of the SCIM API, as `http/resources.py` expects it: routes, and the operations that describe them."""

    def __init__(self, endpoints: dict[str, dict[str, _Method]]) -> None:
        self._endpoints = endpoints
        self.ROUTES = [
            Route(SCIM_PREFIX + path, scim, methods=[method.upper() for method in methods])
            for path, methods in endpoints.items()
        ]

    def operations(self, _: Settings) -> list[Operation]:
        """Describe the routes."""
        return [
            _operation(path, name, method)
            for path, methods in self._endpoints.items()
            for name, method in methods.items()
        ]


def _operation(path: str, name: str, method: _Method) -> Operation:
    """Describe a method of an endpoint."""
    meaning = "The response of RFC 7644." if method.schema else "The change is durable."
    contents = {SCIM_MEDIA_TYPE: ref(method.schema)} if method.schema else {}
    return _ScimOperation(
        method=name,
        path=SCIM_PREFIX + path,
        id=method.id,
        summary=method.summary,
        success=Success(method.status, meaning, contents),
        error_reasons=(*_REASONS, *_BODY_REASONS),
        key_kinds=(KeyKind.SCIM, KeyKind.ADMIN),
        parameters=_parameters(path, name),
        request_body=dict.fromkeys(_MEDIA_TYPES, ref(method.body)) if method.body else {},
        other_statuses=_other_statuses(path, name),
        response_headers=WEAK_ETAG if path.endswith("s/{id}") and name in ("get", "put") else {},
    )


def _other_statuses(path: str, name: str) -> dict[int, str]:
    """Return the other statuses without an error."""
    if name == "get" and path in ("/Users/{id}", "/Groups/{id}"):
        return NOT_MODIFIED
    if name == "patch":
        return {200: "The changed resource, if `attributes` or `excludedAttributes` is given."}
    return {}


def _parameters(path: str, name: str) -> Sequence[Schema]:
    """Return the Parameter Objects of a method of an endpoint."""
    parameters = []
    if path.endswith("{id}"):
        parameters.append(parameter("id", TEXT, "The `id` of the resource.", location="path"))
    if path in ("/Users", "/Groups") and name == "get":
        count = {"type": "integer"}
        parameters += [
            parameter("filter", TEXT, 'A filter (RFC 7644, section 3.4.2.2), such as `userName eq "ann"`.'),
            parameter("sortBy", TEXT, "The attribute by which the resources are ordered."),
            parameter("sortOrder", {"enum": ["ascending", "descending"]}, "The order."),
            parameter("startIndex", count, "The number of the first resource, from 1 on."),
            parameter("count", count, "The maximum number of resources, at most 1,000."),
        ]
    if path in ("/Users", "/Groups", "/Users/{id}", "/Groups/{id}") and name in ("get", "put", "patch"):
        parameters += [
            parameter("attributes", TEXT, "The attributes to return, separated by commas."),
            parameter("excludedAttributes", TEXT, "The attributes not to return, separated by commas."),
        ]
    if path in ("/Users/{id}", "/Groups/{id}"):
        if name == "get":
            parameters.append(if_none_match())
        else:
            parameters.append(
                parameter("If-Match", TEXT, "The version that the resource must have.", location="header")
            )
    if name in ("post", "put", "patch"):
        parameters.append(content_encoding())
    return parameters


USERS = _Endpoints(_resource_endpoints("User"))
GROUPS = _Endpoints(_resource_endpoints("Group"))
DIRECTORY = _Endpoints(_DIRECTORY_ENDPOINTS)
