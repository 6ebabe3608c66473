"""Where large bodies are read: a fair queue, and one worker process that is started when it is first needed.

    submit ─▶ fair queue by key and address ─▶ worker process ─▶ done(outcome)

Pure Python in a thread would hold up the event loop for 5 ms at each of its callbacks (docs/decisions/0016).
"""

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Callable

from embedsink.errors import EmbedsinkError, Unavailable
from embedsink.ingest.fair_queue import FairQueue
from embedsink.ingest.pipeline import ParseJob, ParseResult
from embedsink.ingest.worker import LENGTHS, decode_outcome, encode_job, rules_argument
from embedsink.protocol.delivery import Rules
from embedsink.reasons import Reason

log = logging.getLogger(__name__)

# Bodies that wait for the worker. The server's budget bounds their bytes.
WAITING_MAX = 1_024
# A worker without work ends after this time, and gives back its memory.
IDLE_S = 30.0
# The longest time for one body; the worst megabyte takes a tenth of a second on an idle machine.
JOB_TIMEOUT_S = 10.0
_READ_BYTES = 1_048_576
_LOST = (OSError, asyncio.IncompleteReadError, TimeoutError)

Done = Callable[[ParseResult | Exception], None]


class IngestPool:
    """Reads bodies away from the event loop, the senders in turn.

    Args:
        rules: what bodies are held against.
        body_bytes_max: the largest body, after decompression.
    """

    def __init__(self, rules: Rules, *, body_bytes_max: int) -> None:
        self._queue: FairQueue[tuple[ParseJob, Done]] = FairQueue(count_max=WAITING_MAX, what="large bodies")
        self._worker = _Worker(rules, body_bytes_max=body_bytes_max)
        self._running: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker; None while there is none."""
        return self._worker.pid

    def submit(self, job: ParseJob, done: Done, *, address: str) -> None:
        """Read a body when it is its turn. `done` is called once, from the event loop.

        Raises:
            Unavailable: `overloaded`; `done` is not called.
        """
        if self._is_closed:
            raise _stopping()
        if lost := self._queue.put((job, done), key=job.key_id, address=address):
            lost[1](self._queue.full())
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Refuse what still waits, and end the worker."""
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        for _, done in self._queue.drain():
            done(_stopping())
        await self._worker.stop()

    async def _run(self) -> None:
        while not self._is_closed:
            job, done = await self._next()
            outcome: ParseResult | Exception = _stopping()
            try:
                outcome = await self._read(job)
            except Exception as error:  # noqa: BLE001  answered; a bug is logged where it is answered
                outcome = error
            finally:
                done(outcome)

    async def _next(self) -> tuple[ParseJob, Done]:
        if self._worker.pid is not None:
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`: it swallows a cancellation that comes together with an item.
                async with asyncio.timeout(IDLE_S):
                    return await self._queue.get()
            try:
                await self._worker.stop()
            except OSError as error:
                log.warning("ingest_worker_lost", extra={"detail": f"{type(error).__name__}: {error}"})
        return await self._queue.get()

    async def _read(self, job: ParseJob) -> ParseResult:
        """Ask the worker. One that was killed is replaced, and asked once more: nothing of the body is stored yet."""
        for _ in range(2):
            try:
                async with asyncio.timeout(JOB_TIMEOUT_S):
                    return await self._worker.ask(job)
            except _LOST as error:
                log.warning("ingest_worker_lost", extra={"detail": f"{type(error).__name__}: {error}"})
                await self._worker.stop(kill=True)
        lost = "server: its worker ended twice while it read this body. Wait, then resend."
        raise Unavailable(Reason.OVERLOADED, lost, retry_after_s=5)


class _Worker:
    """The child process, started by the first question."""

    def __init__(self, rules: Rules, *, body_bytes_max: int) -> None:
        self._arguments = [rules_argument(rules), str(body_bytes_max)]
        self._child: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def ask(self, job: ParseJob) -> ParseResult:
        """What becomes of a body.

        Raises:
            OSError, IncompleteReadError: the process ended.
            RuntimeError: the worker met a bug.
        """
        if self._child is None:
            await self._start()
        self._writer.writelines(encode_job(job))
        # Not `drain`: a worker that answers before it has read all would wait for us, and we for it.
        head_bytes, lines_bytes = LENGTHS.unpack(await self._reader.readexactly(LENGTHS.size))
        head = await self._reader.readexactly(head_bytes)
        outcome = decode_outcome(head, await self._reader.readexactly(lines_bytes))
        if isinstance(outcome, str):
            raise RuntimeError(outcome)
        return outcome

    async def stop(self, *, kill: bool = False) -> None:
        """End the process, which ends by itself when its socket is closed."""
        child, self._child = self._child, None
        if child is None:
            return
        self._writer.transport.abort()
        if kill:
            child.kill()
        try:
            await asyncio.to_thread(child.wait, JOB_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            await asyncio.to_thread(child.wait)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=_READ_BYTES)
            try:
                self._spawn(theirs)
            except OSError:
                self._writer.transport.abort()
                raise

    def _spawn(self, connection: socket.socket) -> None:
        # Not in a thread, although it takes 2 ms: a timeout could lose the child between its start and its name.
        # -P: what lies in the working directory is no module of ours.
        command = [sys.executable, "-P", "-m", "embedsink.ingest.worker", *self._arguments]
        self._child = subprocess.Popen(command, stdin=connection.fileno(), stdout=subprocess.DEVNULL)


def _stopping() -> EmbedsinkError:
    return Unavailable(Reason.OVERLOADED, "server: is stopping. Wait, then send it again.")
