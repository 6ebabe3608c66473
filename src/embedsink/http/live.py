"""`GET /api/v1/events/live`: that something was loaded, as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from hashlib import blake2s

import orjson
from starlette.requests import Request
from starlette.responses import Response

from embedsink.http.access import require_key
from embedsink.http.download import Download
from embedsink.keys import KeyKind
from embedsink.sink import Sink

LOOK_EVERY_S = 0.25
HEARTBEAT_LOOKS = 60


async def show_live(request: Request) -> Response:
    """A message for each load, until the reader leaves or its key is revoked."""
    key = require_key(request, KeyKind.READ)
    sink: Sink = request.state.sink
    headers = {"Cache-Control": "private, no-store", "X-Accel-Buffering": "no"}
    return Download(_messages(sink), partial(sink.keys.is_live, key), media_type="text/event-stream", headers=headers)


async def _messages(sink: Sink) -> AsyncGenerator[bytes]:
    revision, silent_looks = "", 0
    while True:
        silent_looks += 1
        if sink.store.revision != revision:
            name = b"loaded" if revision else b"connected"
            revision, silent_looks = sink.store.revision, 0
            told = {"revision": blake2s(revision.encode(), digest_size=8).hexdigest()}
            yield b"retry: 1000\nevent: %b\ndata: %b\n\n" % (name, orjson.dumps(told))
        elif silent_looks % HEARTBEAT_LOOKS == 0:
            yield b":\n\n"
        await asyncio.sleep(LOOK_EVERY_S)
