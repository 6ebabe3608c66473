"""`GET /api/v1/events/live`: newly loaded and quarantined events, as server-sent events (docs/wire.md)."""

import re
from contextlib import ExitStack
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embedsink.auth.keys import Key, KeyKind
from embedsink.engine import Engine
from embedsink.errors import Refused, Unavailable, preview
from embedsink.http.authentication import require_key
from embedsink.http.execute import cancel_on_disconnect
from embedsink.http.live_stream import RESUME_SEGMENTS_MAX, LiveFilter, LiveStream
from embedsink.http.openapi.errors import SCOPE_REASONS
from embedsink.http.openapi.operation import READERS, Operation, Success
from embedsink.http.openapi.parameters import SWITCH, deployment_parameters, event_filter_parameters, parameter
from embedsink.http.openapi.parts import ref
from embedsink.http.query_params import EVENT_FILTERS, check_parameters
from embedsink.http.security_headers import NO_STORE
from embedsink.http.streaming import Download
from embedsink.reasons import Reason
from embedsink.reports.recent_events import ROWS_MAX
from embedsink.settings import Settings

PATH = "/api/v1/events/live"
PARAMETERS = (*EVENT_FILTERS, "rows", "recent", "after")
MEDIA_TYPE = "text/event-stream"
HEADERS = NO_STORE | {"X-Accel-Buffering": "no"}  # nginx would buffer messages otherwise.
_POSITION_DIGITS_MAX = 10
_ENCRYPTED_ID = re.compile(r"[0-9a-f]{16}")


async def show_live(request: Request) -> Response:
    """Answer with a stream of messages about loads, optionally with the loaded rows."""
    key = require_key(request, KeyKind.READ)
    check_parameters(request.query_params, PARAMETERS)
    engine: Engine = request.state.engine
    filter = LiveFilter.parse(request.query_params, key, engine)
    resume_after = _parse_position(request, engine, key)
    if not engine.store.is_open:
        raise Unavailable(Reason.NOT_READY, "store: is being opened. Retry.", retry_after_s=2)
    with ExitStack() as stack:
        wakeup = stack.enter_context(engine.load_notifier.listener(key.key_id))
        if request.method == "HEAD":  # Answer after the same checks as GET, and release the slot of the listener.
            return Response(media_type=MEDIA_TYPE, headers=HEADERS)
        stream = LiveStream(engine, key, filter, resume_after, wakeup)
        await cancel_on_disconnect(request, stream.start())
        is_key_live = partial(request.state.credentials.is_live, key)
        listener = stack.pop_all()  # The download removes the listener at its end.
        return Download(stream.messages(), is_key_live, resource=listener, media_type=MEDIA_TYPE, headers=HEADERS)


def _parse_position(request: Request, engine: Engine, key: Key) -> int | None:
    """Return the position after which a client resumes; None for a new client.

    A position is the number of a loaded journal segment. Clients send back the position in the id of the last message.

    Raises:
        Refused: the client sent a text that does not have the form of an id (`bad_parameter`).
    """
    # A browser that reconnects sends the header, and repeats the URL, whose position is older by then.
    last_id = request.headers.get("last-event-id") or request.query_params.get("after")
    if last_id is None:
        return None
    if key.scope.is_limited:
        # The id is encrypted: a number would show how much others send.
        return _decrypt_id(last_id, engine)
    is_number = last_id.isascii() and last_id.isdigit() and len(last_id) <= _POSITION_DIGITS_MAX
    if not is_number:
        raise _invalid_id_error(last_id)
    newest = engine.load_notifier.position
    oldest = max(0, newest - RESUME_SEGMENTS_MAX)  # A client can't resume further back.
    # From a position above the newest, the client would miss the events up to that position.
    return max(oldest, min(int(last_id), newest))


def _decrypt_id(encrypted_id: str, engine: Engine) -> int:
    """Return the position in an encrypted id.

    Each process has its own secret, so an id of an earlier process decrypts to a random number. Such a client gets all
    events since the first position of this process.

    Raises:
        Refused: the text does not have the form of an id (`bad_parameter`).
    """
    if not _ENCRYPTED_ID.fullmatch(encrypted_id):
        raise _invalid_id_error(encrypted_id)
    first, newest = engine.load_notifier.position_at_start, engine.load_notifier.position
    position = engine.number_cipher.decrypt(int(encrypted_id, 16))
    is_of_this_process = first <= position <= newest
    return position if is_of_this_process else first


def _invalid_id_error(message_id: str) -> Refused:
    return Refused(
        Reason.BAD_PARAMETER,
        f"after: {preview(message_id)} is not the id of a message. Leave it out to begin with new events.",
    )


ROUTES = [Route(PATH, show_live)]


def operations(_: Settings) -> list[Operation]:
    """Describe the route."""
    # A number; for keys with a scope, an encrypted number.
    last_id = {"type": "string", "pattern": "^([0-9]{1,10}|[0-9a-f]{16})$"}
    recent = {"type": "integer", "minimum": 1, "maximum": ROWS_MAX}
    return [
        Operation(
            method="get",
            path=PATH,
            id="followEvents",
            summary="Follow newly loaded and quarantined events as a stream of server-sent events",
            success=Success(200, "Messages whose `data` is JSON.", {MEDIA_TYPE: ref("LiveMessage")}),
            error_reasons=(*SCOPE_REASONS, Reason.OVERLOADED),
            key_kinds=READERS,
            parameters=[
                parameter("rows", SWITCH, "Whether each message contains the loaded rows. Default: off."),
                parameter("recent", recent, "The number of recent rows to send first."),
                *deployment_parameters(),
                *event_filter_parameters(),
                parameter("after", last_id, "The id of the last received message."),
                parameter(
                    "Last-Event-ID",
                    last_id,
                    "Like `after`. Browsers send this header automatically.",
                    location="header",
                ),
            ],
        )
    ]
