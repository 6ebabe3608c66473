"""`GET /forwarder.js` and the other browser modules, for pages of any origin, and the npm package (docs/browser.md)."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.browser.modules import (
    BrowserFile,
    browser_files,
    package_files,
    plain_name,
    vendor_files,
    versioned_files,
)
from embedsink.errors import Refused, preview
from embedsink.http.cached_file import IMMUTABLE, REVALIDATED, TaggedFile
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import if_none_match, parameter
from embedsink.http.openapi.parts import Schema
from embedsink.reasons import Reason
from embedsink.settings import Settings

# Names without a version are cached for a few minutes, so that pages soon load the files of an upgraded server.
UNVERSIONED_MAX_AGE_S = 300


async def show_file(request: Request) -> Response:
    """Answer with a browser module or its TypeScript types. The version in the file name is optional."""
    name = request.url.path.removeprefix("/")
    if file := browser_files().get(name):  # a name without a version
        return await _file_response(request, file, f"public, max-age={UNVERSIONED_MAX_AGE_S}")
    if file := versioned_files().get(name):  # a name with a version that this server has
        return await _file_response(request, file, IMMUTABLE)
    if file := browser_files().get(plain_name(name)):
        # After a downgrade or during a rolling upgrade, pages request the version of a newer server. A 404 would lose
        # their events, so they get this server's version.
        return await _file_response(request, file, REVALIDATED)
    available = ", ".join(f"/{file_name}" for file_name in browser_files())
    raise Refused(
        Reason.NOT_FOUND, f"url: {preview(name)} does not exist. Available: {available}, and their versioned names."
    )


async def show_adapter(request: Request) -> Response:
    """Answer with the adapter for the embeds of a vendor."""
    vendor = request.path_params["vendor"]
    if file := vendor_files().get(vendor):
        return await _file_response(request, file, f"public, max-age={UNVERSIONED_MAX_AGE_S}")
    raise Refused(
        Reason.NOT_FOUND, f"url: no adapter for {preview(vendor)} exists. Available: {', '.join(vendor_files())}."
    )


async def show_package(request: Request) -> Response:
    """Answer with a tarball of the npm package, which `npm install` accepts as a URL."""
    name = request.path_params["package"] + ".tgz"
    if file := package_files().get(name):
        headers = {"Cache-Control": f"public, max-age={UNVERSIONED_MAX_AGE_S}"}
        return await TaggedFile(file.media_type, f'"{file.version}"', file.content).answer(request, headers)
    available = ", ".join(f"/packages/{package}" for package in package_files())
    raise Refused(Reason.NOT_FOUND, f"url: {preview(name)} does not exist. Available: {available}.")


async def _file_response(request: Request, file: BrowserFile, cache_control: str) -> Response:
    """Return a browser module or its types, which pages of any origin may load; 304 if the client has the file."""
    headers = {
        "Cache-Control": cache_control,
        # Pages load module scripts with CORS, and these files are public.
        "Access-Control-Allow-Origin": "*",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    tagged = TaggedFile(file.media_type, f'W/"{file.version}"', file.content, file.compressed)
    return await tagged.answer(request, headers)


ROUTES = [
    Route("/{module}.js", show_file),
    Route("/{module}.d.ts", show_file),
    Route("/vendors/{vendor}.js", show_adapter),
    Route("/packages/{package}.tgz", show_package),
]


def operations(_: Settings) -> list[Operation]:
    """Describe the routes."""
    return [
        _file_operation(
            ".js", operation_id="readModule", summary="Read a browser module: the forwarder or the actions"
        ),
        _file_operation(".d.ts", operation_id="readTypes", summary="Read the TypeScript types of a browser module"),
        _adapter_operation(),
        _package_operation(),
    ]


def _package_operation() -> Operation:
    """Describe the route of the npm package."""
    names = [name.removesuffix(".tgz") for name in package_files()]
    return Operation(
        method="get",
        path="/packages/{package}.tgz",
        id="readPackage",
        summary="Read the npm package @embedsink/browser: `npm install https://SERVER/packages/PACKAGE.tgz`",
        success=Success(200, "The tarball.", {"application/gzip": {}}),
        error_reasons=(Reason.NOT_FOUND, *ANY_REQUEST_REASONS),
        parameters=[
            parameter("package", {"type": "string", "enum": names}, "The name and the version.", location="path"),
            if_none_match(),
        ],
        other_statuses={304: "The file has not changed."},
        response_headers={"ETag": "Strong. Send it in If-None-Match."},
    )


def _adapter_operation() -> Operation:
    """Describe the route of the adapters."""
    vendors = list(vendor_files())
    return Operation(
        method="get",
        path="/vendors/{vendor}.js",
        id="readAdapter",
        summary="Read the adapter for the embeds of another vendor",
        success=Success(200, "The adapter, a JavaScript module.", {vendor_files()[vendors[0]].media_type: {}}),
        error_reasons=(Reason.NOT_FOUND, *ANY_REQUEST_REASONS),
        parameters=[
            parameter("vendor", {"type": "string", "enum": vendors}, "The vendor of the embed.", location="path"),
            if_none_match(),
        ],
        other_statuses={304: "The file has not changed."},
        response_headers={"ETag": "Weak. Send it in If-None-Match."},
    )


def _file_operation(suffix: str, *, operation_id: str, summary: str) -> Operation:
    """Describe the route of the files with this suffix."""
    files = [file for name, file in browser_files().items() if name.endswith(suffix)]
    module_names = [file.name.removesuffix(suffix) for file in files]
    schema = {"type": "string", "pattern": rf"^({'|'.join(module_names)})(\.[0-9a-f]{{16}})?$"}
    example = files[0].versioned_name.removesuffix(suffix)
    description = f"{' or '.join(module_names)}, optionally with a version: {example}."
    content: dict[str, Schema] = {file.media_type: {} for file in files}  # {} allows any content
    return Operation(
        method="get",
        path=f"/{{module}}{suffix}",
        id=operation_id,
        summary=summary,
        success=Success(
            200,
            "The file. A file with a version in its name never changes. A file without a version may change. "
            "The server answers an unknown version with the current file.",
            content,
        ),
        error_reasons=(Reason.NOT_FOUND, *ANY_REQUEST_REASONS),
        parameters=[parameter("module", schema, description, location="path"), if_none_match()],
        other_statuses={304: "The file has not changed."},
        response_headers={"ETag": "Weak. Send it in If-None-Match."},
    )
