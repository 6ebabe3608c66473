"""`/pages/vega/{version}.js`: a bundle of Vega, Vega-Lite and vega-embed from the vl-convert package.

Building the bundle takes seconds and 150 MiB. A child process builds it once per version, and the data folder
caches it.
"""

import asyncio
import contextlib
import gzip
import logging
import os
import sys
from hashlib import blake2s
from importlib.metadata import version

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.dashboards.model import VEGA_LITE
from embedsink.data_folder import DataFolder
from embedsink.errors import Refused, Unavailable, preview
from embedsink.http.cached_file import IMMUTABLE, TaggedFile
from embedsink.http.etag import is_not_modified
from embedsink.http.openapi.errors import ANY_REQUEST_REASONS
from embedsink.http.openapi.operation import Operation, Success
from embedsink.http.openapi.parameters import if_none_match, parameter
from embedsink.http.openapi.parts import TEXT
from embedsink.reasons import Reason
from embedsink.settings import Settings

log = logging.getLogger(__name__)

BUILDER_PACKAGE = "vl-convert-python"
BUILD_S_MAX = 120.0
_NICENESS = 10


class VegaBundle:
    """The bundle of this version. Opening a dashboard builds it, unless the data folder has it already."""

    def __init__(self, folder: DataFolder) -> None:
        versions = f"{version(BUILDER_PACKAGE)} {VEGA_LITE}"  # The bundle depends on both.
        self._version = blake2s(versions.encode(), digest_size=8).hexdigest()
        self.path = f"/pages/vega/{self._version}.js"
        self._cache_file = folder.pages / f"vega-{self._version}.js.gz"
        self._build_task: asyncio.Task[bytes] | None = None

    def prepare(self) -> None:
        """Start to load or build the bundle in a task, unless a task is running or has succeeded."""
        task = self._build_task
        if task is None or (task.done() and _has_failed(task)):
            self._build_task = asyncio.create_task(self._load_or_build())
            self._build_task.add_done_callback(_log_failure)

    async def aclose(self) -> None:
        """Cancel an unfinished build."""
        if self._build_task is not None and not self._build_task.done():
            self._build_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._build_task

    async def show(self, request: Request) -> Response:
        """Return the bundle, or 304 if the client has it. The content of a versioned URL never changes.

        Raises:
            Refused: the URL has another version (`not_found`).
            Unavailable: the build failed, or has not begun and no bundle is cached (`not_ready`).
        """
        requested_version = request.path_params["version"]
        if requested_version != self._version:
            message = f"url: version {preview(requested_version)} does not exist. Available: {self.path}."
            raise Refused(Reason.NOT_FOUND, message)
        tag = f'W/"{self._version}"'
        # A response with status 304 has no content.
        compressed = b"" if is_not_modified(request, tag) else await self._wait_for_bundle()
        file = TaggedFile("text/javascript", tag, compressed=compressed)
        return await file.answer(request, {"Cache-Control": IMMUTABLE})

    async def _wait_for_bundle(self) -> bytes:
        """Wait for the bundle, and return it compressed.

        If no build has begun, read the cached bundle, but don't start the slow build: the URL of the bundle requires no
        login. Opening a dashboard starts the build.

        Raises:
            Unavailable: the build failed, or has not begun and no bundle is cached (`not_ready`).
        """
        if self._build_task is None:
            try:
                return await run_in_threadpool(self._cache_file.read_bytes)
            except OSError:
                detail = "bundle: is not built yet. Open a dashboard to build it."
                raise Unavailable(Reason.NOT_READY, detail, retry_after_s=5) from None
        # Cancelling one request must not cancel the shared build.
        return await asyncio.shield(self._build_task)

    async def _load_or_build(self) -> bytes:
        """Return the cached bundle. If it is missing or can't be read, build and cache it.

        Raises:
            Unavailable: the build failed (`not_ready`).
        """
        try:
            return await run_in_threadpool(self._cache_file.read_bytes)
        except OSError:
            content = await _build_in_child()
            await run_in_threadpool(self._write_cache, content)
            return content

    def _write_cache(self, content: bytes) -> None:
        """Write the compressed bundle to the data folder, and delete the bundles of other versions."""
        try:
            self._cache_file.parent.mkdir(mode=0o750, exist_ok=True)
            for outdated_file in self._cache_file.parent.glob("vega-*"):
                outdated_file.unlink()
            temporary = self._cache_file.with_suffix(".new")
            temporary.write_bytes(content)
            temporary.replace(self._cache_file)
        except OSError as error:
            # The page still gets this bundle. After a restart, the server builds it again.
            log.warning("bundle_write_failed", extra={"detail": f"{self._cache_file}: {error.strerror}."})
            with contextlib.suppress(OSError):
                self._cache_file.with_suffix(".new").unlink()  # An incomplete file would use disk space.


async def _build_in_child() -> bytes:
    """Build the bundle in a child process, and return it compressed.

    Raises:
        Unavailable: the build failed or took too long (`not_ready`).
    """
    # The child runs `main` of this module.
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError as error:
        message = f"{BUILDER_PACKAGE}: can't be started ({error.strerror}). Open a dashboard again later."
        raise Unavailable(Reason.NOT_READY, message, retry_after_s=10) from error
    try:
        content, _ = await asyncio.wait_for(child.communicate(), BUILD_S_MAX)
    except TimeoutError:
        advice = "Open a dashboard again when this machine is less busy."
        message = f"{BUILDER_PACKAGE}: took more than {BUILD_S_MAX:g} s. {advice}"
        raise Unavailable(Reason.NOT_READY, message, retry_after_s=10) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise Unavailable(
            Reason.NOT_READY,
            f"{BUILDER_PACKAGE}: failed with exit code {child.returncode}. Check that 150 MiB of memory is free.",
            retry_after_s=10,
        )
    return content


def _has_failed(task: "asyncio.Task[bytes]") -> bool:
    """Return whether a completed task was cancelled or raised an exception."""
    return task.cancelled() or task.exception() is not None


def _log_failure(task: "asyncio.Task[bytes]") -> None:
    """If a completed task raised an exception, log the exception."""
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        detail = f"Dashboards show no charts. {type(error).__name__}: {error}"
        log.error("bundle_build_failed", extra={"detail": detail})


async def show_bundle(request: Request) -> Response:
    """Return the bundle, or 304 if the client has it."""
    vega: VegaBundle = request.state.vega
    return await vega.show(request)


ROUTES = [Route("/pages/vega/{version}.js", show_bundle)]


def operations(_: Settings) -> list[Operation]:
    """Return the OpenAPI operation of the route."""
    return [
        Operation(
            method="get",
            path="/pages/vega/{version}.js",
            id="showVega",
            summary="Read the bundle of Vega, Vega-Lite and vega-embed, which draws the charts of the pages",
            success=Success(200, "The bundle, which never changes for a version.", {"text/javascript": TEXT}),
            error_reasons=(Reason.NOT_FOUND, Reason.NOT_READY, *ANY_REQUEST_REASONS),
            parameters=[parameter("version", TEXT, "The version, from a page.", location="path"), if_none_match()],
            response_headers={"ETag": "Send it in If-None-Match."},
            other_statuses={304: "The file has not changed."},
        )
    ]


def main() -> None:
    """Build the bundle, and write it to stdout, compressed with gzip."""
    import vl_convert

    os.nice(_NICENESS)  # The server needs the processor more urgently.
    bundle = vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # type: ignore[call-arg]  # the stub requires more arguments
    # Without the time, equal bundles give equal bytes.
    sys.stdout.buffer.write(gzip.compress(bundle.encode(), mtime=0))


if __name__ == "__main__":
    main()
