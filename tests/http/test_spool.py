"""Spool files and downloads: free space, slots and cleanup."""

import asyncio
import os
import threading
from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any

import pytest
from starlette.types import Message

import embedsink.http.report_response
import embedsink.http.spool
from embedsink.errors import Unavailable
from embedsink.http.api.exports import EVENT_FORMATS
from embedsink.http.spool import spool_query
from embedsink.http.streaming import Download, _read_chunks
from embedsink.key_scope import EVERYTHING
from embedsink.reports.format_writers import write_rows
from embedsink.store.reader import Reader
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import view
from tests.support.servers import wait_until

SCOPE = {"type": "http", "method": "GET", "headers": [], "extensions": {}}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server with an event, and with a slot for one report."""
    limits: dict[str, Any] = {"report_concurrency_max": 1, "report_waiting_max": 0}
    with open_server(tmp_path_factory.mktemp("data"), segment_seal_s=0.01, **limits) as server:
        server.post(view(), key=server.key())
        server.rows("/api/v1/reports/views", key=server.key("read"))
        yield server


def test_an_abandoned_report_occupies_its_slot_until_its_thread_ends(narrow: Server) -> None:
    write_started, may_end = threading.Event(), threading.Event()
    files: list[IO[bytes]] = []

    def write(reader: Reader, file: IO[bytes]) -> None:
        files.append(file)
        write_started.set()
        may_end.wait(10)

    async def cancel() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        task = asyncio.create_task(
            spool_query(
                narrow.engine, partial(narrow.engine.store.reader, EVERYTHING.variables()), write, key_id="k_reader"
            )
        )
        await asyncio.to_thread(write_started.wait, 10)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()
            with pytest.raises(Unavailable, match="all running and waiting slots are in use"):
                await narrow.engine.limiters.reports.slot("k_taken").__aenter__()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with narrow.engine.limiters.reports.slot("k_next"):
            assert [file.closed for file in files] == [True]

    failures: list[object] = []
    narrow._runner.run(cancel())
    assert failures == []


@pytest.mark.parametrize("format", EVENT_FORMATS)
def test_the_free_space_is_checked_after_the_last_byte_of_any_format(
    narrow: Server, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr(embedsink.http.spool, "RESERVED_BYTES", 1 << 60)
    monkeypatch.setattr(embedsink.http.spool, "SPACE_CHECK_INTERVAL_S", 60)
    key = narrow.key("read")
    assert narrow.get(f"/api/v1/events.{format}", key=key).status_code == 200, "a small response needs no free space"
    monkeypatch.setattr(embedsink.http.spool, "IN_MEMORY_BYTES_MAX", 10)
    assert problem(narrow.get(f"/api/v1/events.{format}", key=key)) == "storage_low"
    # On systems without memory files, responses are written to the disk.
    monkeypatch.setattr(embedsink.http.spool, "SPOOLED_BYTES_MAX", 10)
    monkeypatch.delattr(os, "memfd_create")
    assert problem(narrow.get(f"/api/v1/events.{format}", key=key)) == "storage_low"


@pytest.mark.parametrize("live_count", [0, 1, 2, 3, 1_000])
def test_a_download_closes_its_file_at_any_time_of_revocation(live_count: int) -> None:
    checks: list[None] = []
    sent: list[Message] = []

    def is_key_live() -> bool:
        checks.append(None)
        return len(checks) <= live_count

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.sleep(10)
        return {"type": "http.disconnect"}

    with TemporaryFile() as file:
        file.write(b"x" * 200_000)
        file.seek(0)
        asyncio.run(Download(_read_chunks(file), is_key_live, resource=file)(SCOPE, receive, send))
        assert file.closed
    is_whole = sum(len(message.get("body", b"")) for message in sent) == 200_000
    assert is_whole == (live_count == 1_000)


@pytest.mark.parametrize("format", ["csv", "parquet", "arrow"])
def test_a_slow_report_succeeds_on_a_full_disk(narrow: Server, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    def write_slowly(*arguments: object, **options: object) -> None:
        write_rows(*arguments, **options)  # type: ignore[arg-type]
        wait_until(lambda: len(looks) > 2, description="the disk was looked at")

    def look(*_: object) -> bool:
        looks.append("looked")
        return True

    looks: list[str] = []
    monkeypatch.setattr(embedsink.http.report_response, "write_rows", write_slowly)
    monkeypatch.setattr(embedsink.http.spool, "SPACE_CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(embedsink.http.spool._SpooledQuery, "_is_disk_almost_full", look)
    monkeypatch.setattr(embedsink.http.spool._SpooledQuery, "is_spilling_without_space", lambda spool: look() and False)
    response = narrow.get(f"/api/v1/reports/views.{format}", key=narrow.key("read"))
    assert response.status_code == 200
    assert len(response.content) > 100
