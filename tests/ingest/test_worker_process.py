"""Large bodies in the worker process: the same result as on the event loop, and an answer in every case."""

import asyncio
import contextlib
import gzip
import json
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import embedsink.ingest.worker
import embedsink.ingest.worker_process
from embedsink.errors import Unavailable
from embedsink.ingest.pipeline import ParseJob, ParseResult, parse_and_encode
from embedsink.ingest.worker import LENGTHS, decode_result, encode_job, serve
from embedsink.ingest.worker_process import IngestWorker
from embedsink.key_scope import KeyScope
from embedsink.privacy.redaction import Privacy
from embedsink.protocol.delivery import Rules
from tests.support.envelopes import ID, KEY, view
from tests.support.servers import wait_until

MIB = 1_048_576
RULES = Rules()


def job(body: bytes, **members: object) -> ParseJob:
    plain = ParseJob(body, "", False, 1_763_596_800_000, "k_1", KeyScope(), Privacy())
    return replace(plain, **members)  # type: ignore[arg-type]


JOBS = {
    "events": job(json.dumps([view(id=ID)] * 100).encode()),
    "a delivery with its key": job(json.dumps({"key": KEY, "events": [view(id=ID)]}).encode()),
    "partly good": job(json.dumps([view(id=ID), view({"path": 7}, id=ID), "\ud800"]).encode()),
    "unreadable": job(b'{"a":1,"a":2}'),
    "not UTF-8": job(b"\xff\0"),
    "too many": job(json.dumps([1] * 1_001).encode()),
    "gzip": job(gzip.compress(json.dumps([view(id=ID)]).encode()), encoding="gzip"),
    "a bomb": job(gzip.compress(bytes(2 * MIB)), encoding="gzip"),
    "lines": job(json.dumps(view(id=ID)).encode() + b"\n{", is_ndjson=True),
    "with a tenant": job(json.dumps({"context": {"tenant": "acme"}, "events": [view(id=ID)]}).encode()),
    "of the key's tenant": job(json.dumps([view(id=ID)]).encode(), scope=KeyScope(tenants=frozenset({"acme"}))),
    "of another tenant": job(
        json.dumps({"context": {"tenant": "globex"}, "events": [view(id=ID)]}).encode(),
        scope=KeyScope(tenants=frozenset({"acme"})),
    ),
    "scoped": job(json.dumps([view(id=ID)]).encode(), scope=KeyScope(frozenset({12}))),
    "out of scope": job(
        json.dumps({"context": {"deployment": 13}, "events": [view(id=ID)]}).encode(), scope=KeyScope(frozenset({12}))
    ),
}


@pytest.mark.parametrize("received", [0, 3, LENGTHS.size, LENGTHS.size + 10])
def test_the_worker_ends_when_the_server_dies_within_a_message(received: int) -> None:
    server_side, worker_side = socket.socketpair()
    message = b"".join(encode_job(JOBS["events"]))
    server_side.sendall(message[:received])
    server_side.close()
    serve(worker_side, RULES, body_bytes_max=MIB)  # It returns without an exception.


@pytest.mark.parametrize("turns", range(4))
def test_closing_the_pool_while_a_body_arrives_ends_it(turns: int) -> None:
    async def close_as_it_arrives() -> None:
        worker = IngestWorker(RULES, body_bytes_max=MIB)
        answered: list[ParseResult | Exception] = []
        worker.submit(JOBS["events"], answered.append, address="192.0.2.1")
        await asyncio.to_thread(wait_until, lambda: bool(answered), description="the first is answered")
        worker.submit(JOBS["events"], answered.append, address="192.0.2.1")
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await worker.aclose()
        assert len(answered) == 2

    asyncio.run(close_as_it_arrives())


def test_a_callback_that_fails_does_not_stop_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    async def submit_two() -> None:
        worker = IngestWorker(RULES, body_bytes_max=MIB)
        answered: list[ParseResult | Exception] = []

        def fail(result: ParseResult | Exception) -> None:
            raise ValueError("a bug")

        worker.submit(JOBS["events"], fail, address="192.0.2.1")
        worker.submit(JOBS["events"], answered.append, address="192.0.2.1")
        await asyncio.to_thread(wait_until, lambda: bool(answered), description="the second is answered")
        await worker.aclose()

    asyncio.run(submit_two())
    assert [record.getMessage() for record in caplog.records] == ["bug"]


def test_bodies_are_answered_although_a_bug_has_ended_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(worker: IngestWorker) -> Any:
        raise ValueError("a bug")

    async def submit_two(worker: IngestWorker) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(IngestWorker, "_next_job", fail)
            first_result = submitted(worker, JOBS["events"])
            await asyncio.sleep(0.01)
        second_result = submitted(worker, JOBS["events"])
        assert [type(await result) for result in (first_result, second_result)] == [ParseResult] * 2

    async def close() -> None:
        monkeypatch.setattr(IngestWorker, "_next_job", fail)
        worker = IngestWorker(RULES, body_bytes_max=MIB)
        result = submitted(worker, JOBS["events"])
        await asyncio.sleep(0.01)
        await worker.aclose()
        assert isinstance(await result, Unavailable)

    with_worker(submit_two)
    asyncio.run(close())


def test_an_idle_worker_that_cannot_be_stopped_does_not_stop_the_next_body(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedsink.ingest.worker_process, "IDLE_S", 0.01)
    stop = embedsink.ingest.worker_process._ChildProcess.stop
    failures = [RuntimeError("can't start new thread")]

    async def fail_once(process: Any, **options: bool) -> None:
        await stop(process, **options)
        if failures:
            raise failures.pop()

    async def submit_two() -> None:
        monkeypatch.setattr(embedsink.ingest.worker_process._ChildProcess, "stop", fail_once)
        worker = IngestWorker(RULES, body_bytes_max=MIB)
        answered: list[ParseResult | Exception] = []

        def has_answers(count: int) -> bool:
            return len(answered) == count

        for count in (1, 2):
            worker.submit(JOBS["events"], answered.append, address="192.0.2.1")
            await asyncio.to_thread(wait_until, partial(has_answers, count), description=f"answer {count}")
            await asyncio.to_thread(wait_until, lambda: not failures, description="the stop has failed")
        await worker.aclose()

    asyncio.run(submit_two())
    assert [record.getMessage() for record in caplog.records] == ["ingest_worker_lost"]


def test_a_full_queue_evicts_bodies_of_the_largest_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.ingest.worker_process, "WAITING_MAX", 20)

    async def submit_many() -> None:
        worker = IngestWorker(RULES, body_bytes_max=MIB)
        answered: dict[str, list[ParseResult | Exception]] = {"k_1": [], "k_2": []}
        for number in range(100):
            with contextlib.suppress(Unavailable):
                worker.submit(JOBS["events"], answered["k_1"].append, address=f"192.0.2.{number % 2}")
        for _ in range(5):
            honest = replace(JOBS["events"], key_id="k_2")
            worker.submit(honest, answered["k_2"].append, address="198.51.100.1")
        assert [type(result) for result in answered["k_1"]] == [Unavailable] * 5
        await asyncio.to_thread(wait_until, lambda: len(answered["k_2"]) == 5, description="the others are answered")
        assert {type(result) for result in answered["k_2"]} == {ParseResult}
        await worker.aclose()

    asyncio.run(submit_many())


def comparable(result: ParseResult | Exception) -> object:
    """Return the result without the random ids of its rejections."""
    assert isinstance(result, ParseResult), result
    lines = [json.loads(line) for line in (result.accepted_lines + result.rejection_lines).splitlines()]
    refusal = result.refusal and (result.refusal.reason, str(result.refusal))
    counts = (result.accepted_count, result.rejected_count)
    return (
        [line | {"quarantine_id": None} for line in lines],
        counts,
        result.reasons,
        result.listed_rejections,
        result.body_token,
        refusal,
    )


def with_worker(use_worker: Callable[[IngestWorker], Awaitable[None]]) -> None:
    async def run() -> None:
        worker = IngestWorker(RULES, body_bytes_max=MIB)
        try:
            await use_worker(worker)
        finally:
            await worker.aclose()

    asyncio.run(run())


def submitted(worker: IngestWorker, job: ParseJob) -> "asyncio.Future[ParseResult | Exception]":
    future: asyncio.Future[ParseResult | Exception] = asyncio.get_running_loop().create_future()
    worker.submit(job, future.set_result, address="192.0.2.1")
    return future


def test_the_worker_returns_the_same_result_as_the_event_loop() -> None:
    async def compare(worker: IngestWorker) -> None:
        results = [submitted(worker, job) for job in JOBS.values()]
        for name, job, result in zip(JOBS, JOBS.values(), results, strict=True):
            assert comparable(await result) == comparable(parse_and_encode(job, RULES, body_bytes_max=MIB)), name

    with_worker(compare)


def test_a_body_whose_worker_was_killed_is_parsed_by_the_next_worker() -> None:
    async def kill(worker: IngestWorker) -> None:
        await submitted(worker, JOBS["events"])
        first = worker.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        result = submitted(worker, JOBS["events"])
        await asyncio.sleep(0)
        os.kill(first, signal.SIGKILL)
        assert comparable(await result) == comparable(parse_and_encode(JOBS["events"], RULES, body_bytes_max=MIB))
        assert worker.pid not in (None, first)

    with_worker(kill)


def test_a_body_that_exceeds_the_time_limit_twice_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.ingest.worker_process, "JOB_TIMEOUT_S", 0.001)

    async def wait(worker: IngestWorker) -> None:
        result = await submitted(worker, JOBS["events"])
        assert isinstance(result, Unavailable)
        assert result.reason == "overloaded"

    with_worker(wait)


def test_queued_bodies_are_answered_when_the_server_stops() -> None:
    results: list[ParseResult | Exception] = []

    async def close() -> None:
        worker = IngestWorker(RULES, body_bytes_max=MIB)
        for _ in range(3):
            worker.submit(JOBS["events"], results.append, address="192.0.2.1")
        await asyncio.sleep(0)
        await worker.aclose()
        assert worker.pid is None
        with pytest.raises(Unavailable):
            worker.submit(JOBS["events"], results.append, address="192.0.2.1")

    asyncio.run(close())
    assert [type(result) for result in results] == [Unavailable] * 3


def test_an_idle_worker_ends_and_a_later_body_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.ingest.worker_process, "IDLE_S", 0.01)

    async def rest(worker: IngestWorker) -> None:
        await submitted(worker, JOBS["events"])
        child = worker._process._child
        assert child is not None
        await asyncio.to_thread(wait_until, lambda: child.poll() is not None, description="the worker has ended")
        assert isinstance(await submitted(worker, JOBS["events"]), ParseResult)

    with_worker(rest)


def test_a_worker_ends_with_its_connection_and_ignores_signals_to_the_server() -> None:
    async def leave(worker: IngestWorker) -> None:
        await submitted(worker, JOBS["events"])
        child = worker._process._child
        assert child is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            child.send_signal(number)
        assert isinstance(await submitted(worker, JOBS["events"]), ParseResult)
        assert worker.pid == child.pid
        worker._process._writer.transport.abort()
        await asyncio.sleep(0)
        wait_until(lambda: child.poll() is not None, description="the worker has ended")

    with_worker(leave)


def test_a_bug_in_the_worker_is_reported_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> ParseResult:
        raise ZeroDivisionError("internals")

    monkeypatch.setattr(embedsink.ingest.worker, "parse_and_encode", fail)
    server_side, worker_side = socket.socketpair()
    thread = threading.Thread(target=serve, args=(worker_side, RULES), kwargs={"body_bytes_max": MIB})
    thread.start()
    with server_side, server_side.makefile("rb") as worker_output:
        server_side.sendall(b"".join(encode_job(JOBS["events"])))
        head_bytes, _ = LENGTHS.unpack(worker_output.read(LENGTHS.size))
        bug = decode_result(worker_output.read(head_bytes), b"")
        server_side.shutdown(socket.SHUT_WR)
        thread.join()
    assert isinstance(bug, str)
    assert "ZeroDivisionError: internals" in bug


def test_a_worker_imports_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)

    async def read(worker: IngestWorker) -> None:
        assert isinstance(await submitted(worker, JOBS["events"]), ParseResult)

    with_worker(read)
