"""`/pages/vega/{version}.js`: Vega, Vega-Lite and vega-embed, from what vl-convert carries: no other server is asked.

Putting the bundle together takes seconds and 150 MiB, so a child does it, once for each version, and it is kept beside
the data.
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
from embedsink.errors import Refused, Unavailable
from embedsink.http.cached_file import IMMUTABLE, TaggedFile
from embedsink.http.etag import is_known
from embedsink.http.openapi.errors import ANY_REQUEST
from embedsink.http.openapi.operation import Operation
from embedsink.http.openapi.parameters import if_none_match, parameter
from embedsink.http.openapi.parts import TEXT
from embedsink.reasons import Reason
from embedsink.settings import Settings

log = logging.getLogger(__name__)

PACKAGE = "vl-convert-python"
MAKING_S_MAX = 120.0
_NICENESS = 10


class VegaBundle:
    """The bundle, made when somebody first looks at a page."""

    def __init__(self, folder: DataFolder) -> None:
        named = f"{version(PACKAGE)} {VEGA_LITE}"
        self._version = blake2s(named.encode(), digest_size=8).hexdigest()
        self.path = f"/pages/vega/{self._version}.js"
        self._file = folder.pages / f"vega-{self._version}.js.gz"
        self._making: asyncio.Task[bytes] | None = None

    def prepare(self) -> None:
        """Begin to make it where there is none, so that it is there when a page asks."""
        if self._making is None or (self._making.done() and _has_failed(self._making)):
            self._making = asyncio.create_task(self._made())
            self._making.add_done_callback(_note_failure)

    async def aclose(self) -> None:
        """Make it no further."""
        if self._making is not None and not self._making.done():
            self._making.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._making

    async def show(self, request: Request) -> Response:
        """The bundle; its address is of one content for ever.

        Raises:
            Unavailable: `not_ready`, when it could not be made.
        """
        if request.path_params["version"] != self._version:
            raise Refused(Reason.NOT_FOUND, f"this version does not exist here. There is {self.path}.")
        tag = f'W/"{self._version}"'
        # Whoever has it needs none to be there.
        compressed = b"" if is_known(request, tag) else await asyncio.shield(await self._begun())
        file = TaggedFile("text/javascript", tag, compressed=compressed)
        return await file.answer(request, {"Cache-Control": IMMUTABLE})

    async def _begun(self) -> "asyncio.Task[bytes]":
        # Whoever asks here needs no login. So it is made for those who have one, and only read for everybody.
        if self._making is None and await run_in_threadpool(self._file.exists):
            self.prepare()
        if self._making is None:
            raise Unavailable(Reason.NOT_READY, "bundle: is not made yet. Open a dashboard.", retry_after_s=5)
        return self._making

    async def _made(self) -> bytes:
        try:
            return await run_in_threadpool(self._file.read_bytes)
        except FileNotFoundError:
            content = await _make()
            await run_in_threadpool(self._keep, content)
            return content

    def _keep(self, content: bytes) -> None:
        try:
            self._file.parent.mkdir(mode=0o750, exist_ok=True)
            for older in self._file.parent.glob("vega-*"):
                older.unlink()
            draft = self._file.with_suffix(".new")
            draft.write_bytes(content)
            draft.replace(self._file)
        except OSError as error:
            # The page has it all the same; the next start makes it anew.
            log.warning("bundle_not_kept", extra={"detail": f"{self._file}: {error.strerror}."})
            with contextlib.suppress(OSError):
                self._file.with_suffix(".new").unlink()  # A part of it takes room that others need.


async def _make() -> bytes:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        content, _ = await asyncio.wait_for(child.communicate(), MAKING_S_MAX)
    except TimeoutError:
        late = f"{PACKAGE}: took more than {MAKING_S_MAX:g} s. Open a dashboard again when this machine has less to do."
        raise Unavailable(Reason.NOT_READY, late, retry_after_s=10) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise Unavailable(
            Reason.NOT_READY, f"{PACKAGE}: ended with {child.returncode}. Is there memory for it?", retry_after_s=10
        )
    return content


def _has_failed(task: "asyncio.Task[bytes]") -> bool:
    return task.cancelled() or task.exception() is not None


def _note_failure(task: "asyncio.Task[bytes]") -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("bundle_not_made", extra={"detail": f"{type(error).__name__} {error}. Charts are not drawn."})


async def show_bundle(request: Request) -> Response:
    """Answer with the bundle."""
    vega: VegaBundle = request.state.vega
    return await vega.show(request)


ROUTES = [Route("/pages/vega/{version}.js", show_bundle)]


def operations(_: Settings) -> list[Operation]:
    """Describe the route."""
    return [
        Operation(
            "get",
            "/pages/vega/{version}.js",
            "showVega",
            "Read the bundle of Vega, Vega-Lite and vega-embed, which draws the charts of the pages",
            (200, "The bundle, which never changes for a version.", {"text/javascript": TEXT}),
            (Reason.NOT_FOUND, Reason.NOT_READY, *ANY_REQUEST),
            parameters=[parameter("version", TEXT, "The version, from a page.", location="path"), if_none_match()],
            headers={"ETag": "Send it in If-None-Match."},
            others={304: "The file has not changed."},
        )
    ]


def main() -> None:
    """Write the bundle to stdout, as gzip."""
    import vl_convert

    os.nice(_NICENESS)
    bundle = vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # type: ignore[call-arg]  # its stub asks for more
    sys.stdout.buffer.write(gzip.compress(bundle.encode(), mtime=0))


if __name__ == "__main__":
    main()
