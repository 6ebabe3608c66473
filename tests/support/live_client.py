"""A client of `/api/v1/events/live`, on a separate connection.

with open_stream(server.url, key) as reader:
    reader.message("connected")
"""

import contextlib
import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.servers import RunningServer

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Message:
    """A server-sent event, and the time of its receipt in monotonic seconds. A heartbeat has no name."""

    name: str
    id: str
    content: Any
    read_at: float


class LiveStream:
    """An open stream, which a thread reads. With `is_slow`, the thread starts with `start_reading`."""

    def __init__(self, connection: socket.socket, response: http.client.HTTPResponse, *, is_slow: bool) -> None:
        self.response = response
        self._connection = connection
        self.ended_at: float | None = None
        self._messages: queue.Queue[Message] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        if not is_slow:
            self.start_reading()

    def start_reading(self) -> None:
        """Start reading."""
        self._thread.start()

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def message(self, name: str = "loaded", *, timeout_s: float = TIMEOUT_S) -> Message:
        """Return the next message of this name."""
        while True:
            message = self._messages.get(timeout=timeout_s)
            if message.name == name:
                return message

    def loaded(self, accepted_count: int) -> list[Message]:
        """Return the messages until they report this number of accepted envelopes."""
        messages = [self.message()]
        while sum(message.content["counts"]["accepted"] for message in messages) < accepted_count:
            messages.append(self.message())
        return messages

    def is_silent(self, seconds: float) -> bool:
        """Return whether no message arrives in this time."""
        try:
            self.message(timeout_s=seconds)
        except queue.Empty:
            return True
        return False

    def wait_for_end(self) -> float:
        """Wait until the server ends the stream. Return the time in monotonic seconds."""
        self._thread.join(TIMEOUT_S)
        assert self.ended_at is not None, "the stream has not ended"
        return self.ended_at

    def _read(self) -> None:
        fields: dict[str, str] = {}
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            for line in self.response:
                name, _, value = line.decode().rstrip("\n").partition(":")
                if line == b"\n":
                    self._add_message(fields)
                    fields = {}
                else:
                    fields[name] = value.removeprefix(" ")
        self.ended_at = time.monotonic()

    def _add_message(self, fields: dict[str, str]) -> None:
        content = json.loads(fields["data"]) if "data" in fields else None
        self._messages.put(Message(fields.get("event", ""), fields.get("id", ""), content, time.monotonic()))


def listener_count(server: RunningServer) -> int:
    """Return the number of live streams and waiting inspections."""
    line = next(line for line in server.get("/metrics").body.splitlines() if line.startswith(b"embedsink_live_li"))
    return int(float(line.split()[1]))


@contextmanager
def open_stream(
    url: str, key: str, query: str = "", *, is_slow: bool = False, last_event_id: str | None = None
) -> Iterator[LiveStream]:
    """Open a stream, and close it at the end of the block."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    headers = {"Authorization": f"Bearer {key}"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
    connection.request("GET", f"/api/v1/events/live?{query}", headers=headers)
    open_socket = connection.sock
    stream = LiveStream(open_socket, connection.getresponse(), is_slow=is_slow)
    try:
        yield stream
    finally:
        stream.close()
        connection.close()
