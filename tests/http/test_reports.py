"""Reports over HTTP: what becomes of a stream."""

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Message

from embedsink.http.download import Download


class Stream:
    """A download of ten chunks, and what its reader has received of it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.is_closed = False

    async def content(self) -> AsyncGenerator[bytes]:
        try:
            for number in range(10):
                yield b"%d" % number
        finally:
            self.is_closed = True

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.received.append(message["body"])


def test_a_whole_stream_arrives() -> None:
    stream = Stream()
    asyncio.run(Download(stream.content(), lambda: True, timeout_s=1).stream_response(stream.send))
    assert stream.received == [*(b"%d" % number for number in range(10)), b""]
    assert stream.is_closed


def test_a_stream_is_cut_when_its_key_is_revoked() -> None:
    stream = Stream()
    download = Download(stream.content(), lambda: len(stream.received) < 3, timeout_s=1)
    asyncio.run(download.stream_response(stream.send))
    assert stream.received == [b"0", b"1", b"2"]
    assert stream.is_closed


def test_a_stream_is_cut_when_its_reader_pauses_for_too_long() -> None:
    stream = Stream()

    async def send(message: Message) -> None:
        await stream.send(message)
        if len(stream.received) == 3:
            await asyncio.sleep(10)

    asyncio.run(Download(stream.content(), lambda: True, timeout_s=0.05).stream_response(send))
    assert stream.received == [b"0", b"1", b"2"]
    assert stream.is_closed
