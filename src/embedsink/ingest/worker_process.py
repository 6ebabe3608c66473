"""The parser of large bodies: a fair queue, and one worker process, which the first body starts.

    submit ─▶ fair queue by key and address ─▶ worker process ─▶ on_result(result)

A thread is not sufficient, because it would delay each callback of the event loop by up to 5 ms (docs/decisions/0016).
"""

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Callable

from embedsink.errors import Unavailable
from embedsink.ingest.fair_queue import FairQueue
from embedsink.ingest.pipeline import ParseJob, ParseResult
from embedsink.ingest.worker import LENGTHS, decode_result, encode_job, rules_argument
from embedsink.protocol.delivery import Rules
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

# The maximum number of bodies in the queue. EMBEDSINK_INFLIGHT_BYTES_MAX limits their bytes.
WAITING_MAX = 1_024
# An idle worker ends after this time, which frees its memory.
IDLE_S = 30.0
# The time limit for one body. The slowest megabyte takes a tenth of a second on an idle machine.
JOB_TIMEOUT_S = 10.0
_READ_BYTES = 1_048_576
_WORKER_LOST = (OSError, asyncio.IncompleteReadError, TimeoutError)

OnResult = Callable[[ParseResult | Exception], None]


class IngestWorker:
    """The worker process with its queue. It parses bodies; senders take turns.

    Args:
        rules: the rules of the protocol.
        body_bytes_max: the largest body after decompression, in bytes.
    """

    def __init__(self, rules: Rules, *, body_bytes_max: int) -> None:
        self._queue: FairQueue[tuple[ParseJob, OnResult]] = FairQueue(count_max=WAITING_MAX, noun="large bodies")
        self._process = _ChildProcess(rules, body_bytes_max=body_bytes_max)
        self._run_task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the worker; None while it is not running."""
        return self._process.pid

    def submit(self, job: ParseJob, on_result: OnResult, *, address: str) -> None:
        """Queue a body. `on_result` is called once, in the event loop.

        If the queue is full, this body may evict the newest body of the sender with the most bodies.

        Raises:
            Unavailable: the queue is full, or the server is stopping (reason `overloaded`). `on_result` is not called.
        """
        if self._is_closed:
            raise _stopping_error()
        evicted = self._queue.put((job, on_result), key=job.key_id, address=address)
        if evicted is not None:
            _, on_evicted_result = evicted
            on_evicted_result(self._queue.queue_full_error())
        if self._run_task is None or self._run_task.done():  # A task ends by itself only after a bug.
            self._run_task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Refuse all queued bodies, and end the worker."""
        self._is_closed = True
        if self._run_task is not None:
            self._run_task.cancel()
            await asyncio.wait({self._run_task})  # Unlike `await`, this does not raise the error of a failed task.
        for _, on_result in self._queue.drain():
            on_result(_stopping_error())
        await self._process.stop()

    async def _run(self) -> None:
        """Parse the queued bodies until the worker is closed."""
        while not self._is_closed:
            job, on_result = await self._next_job()
            result: ParseResult | Exception = _stopping_error()  # if this task is cancelled while it parses
            try:
                result = await self._parse(job)
            except Exception as error:  # noqa: BLE001  `on_result` answers the client, and logs a bug
                result = error
            finally:
                _pass_result(result, on_result)

    async def _next_job(self) -> tuple[ParseJob, OnResult]:
        """Return the next job. Stop the worker if no job arrives within `IDLE_S`."""
        if self._process.pid is not None:
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`: it swallows a cancellation that coincides with an item.
                async with asyncio.timeout(IDLE_S):
                    return await self._queue.get()
            try:
                await self._process.stop()
            except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
                _log_lost_worker(error)
        return await self._queue.get()

    async def _parse(self, job: ParseJob) -> ParseResult:
        """Parse a body in the worker process. If the process ends or hangs twice, raise Unavailable."""
        for _ in range(2):
            try:
                async with asyncio.timeout(JOB_TIMEOUT_S):
                    return await self._process.parse(job)
            except _WORKER_LOST as error:
                _log_lost_worker(error)
                await self._process.stop(kill=True)
        detail = "server: the worker process ended twice while it parsed this body. Wait, then resend."
        raise Unavailable(Reason.OVERLOADED, detail, retry_after_s=5)


class _ChildProcess:
    """The child process. The first job starts it."""

    def __init__(self, rules: Rules, *, body_bytes_max: int) -> None:
        self._arguments = [rules_argument(rules), str(body_bytes_max)]
        self._child: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader  # set by `_start`
        self._writer: asyncio.StreamWriter  # set by `_start`

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        return None if self._child is None else self._child.pid

    async def parse(self, job: ParseJob) -> ParseResult:
        """Send a job and return its result.

        Raises:
            OSError, IncompleteReadError: the process has ended, or can't be started.
            RuntimeError: the worker has a bug. The message is the traceback.
        """
        if self._child is None:
            await self._start()
        self._writer.writelines(encode_job(job))
        # Don't wait until the job is sent (`drain`). If the worker answers before it has read everything, both sides
        # would wait for each other.
        head_bytes, lines_bytes = LENGTHS.unpack(await self._reader.readexactly(LENGTHS.size))
        head = await self._reader.readexactly(head_bytes)
        result = decode_result(head, await self._reader.readexactly(lines_bytes))
        if isinstance(result, str):
            raise RuntimeError(result)
        return result

    async def stop(self, *, kill: bool = False) -> None:
        """Close the socket, which ends the process, and wait until the process has ended.

        The process is killed if `kill` is true, or if it has not ended after `JOB_TIMEOUT_S`.
        """
        child = self._child
        if child is None:
            return
        self._child = None
        self._writer.transport.abort()
        if kill:
            child.kill()
        try:
            await asyncio.to_thread(child.wait, JOB_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            await asyncio.to_thread(child.wait)

    async def _start(self) -> None:
        """Start the process, connected by a pair of sockets."""
        server_side, worker_side = socket.socketpair()
        # The process gets a copy of `worker_side`. Close this one, so that the connection ends with the process.
        with worker_side:
            self._reader, self._writer = await asyncio.open_connection(sock=server_side, limit=_READ_BYTES)
            try:
                self._spawn(worker_side)
            except OSError:
                self._writer.transport.abort()
                raise

    def _spawn(self, connection: socket.socket) -> None:
        """Start the process with this socket as its standard input.

        This blocks the event loop for 2 ms. A thread would continue after a timeout, and could start a second process.
        """
        # -P: don't import modules from the working directory.
        command = [sys.executable, "-P", "-m", "embedsink.ingest.worker", *self._arguments]
        self._child = subprocess.Popen(command, stdin=connection.fileno(), stdout=subprocess.DEVNULL)


def _pass_result(result: ParseResult | Exception, on_result: OnResult) -> None:
    try:
        on_result(result)
    except Exception as error:
        # Continue: if the task ended here, no later body would get an answer.
        log.error("bug", exc_info=error)


def _log_lost_worker(error: Exception) -> None:
    log.warning("ingest_worker_lost", extra={"detail": f"{type(error).__name__}: {error}"})


def _stopping_error() -> Unavailable:
    return Unavailable(Reason.OVERLOADED, "server: is stopping. Wait, then resend.")
