"""The concurrency limiter: a busy key waits longest, and no key can block the others."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from embedsink.concurrency.limiter import ConcurrencyLimiter
from embedsink.errors import Unavailable
from tests.support.servers import RunningServer, running_server, wait_until


class LimiterRequests:
    """Requests at a limiter. Each runs until the test ends it."""

    def __init__(self, running_max: int, waiting_max: int) -> None:
        self.limiter = ConcurrencyLimiter(running_max, waiting_max=waiting_max)
        self.started_keys: list[str] = []
        self._may_end: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, key_id: str, count: int = 1) -> list[asyncio.Task[None]]:
        """Start requests of a key. Return those that run or wait."""
        started = [asyncio.create_task(self._run(key_id)) for _ in range(count)]
        await run_callbacks()
        for task in started:
            if task.done():
                task.result()
        self._tasks += started
        return started

    async def fill(self, key_id: str) -> int:
        """Start requests of a key until one is refused. Return the number of accepted requests."""
        for count in range(1_000):
            try:
                await self.start(key_id)
            except Unavailable:
                return count
        raise AssertionError("no request was refused")

    async def end(self, count: int = 1) -> None:
        """End the oldest running requests."""
        for _ in range(count):
            self._may_end.pop(0).set()
            await run_callbacks()

    async def end_all(self) -> None:
        while self._may_end:
            await self.end()
        await asyncio.gather(*self._tasks)

    async def _run(self, key_id: str) -> None:
        async with self.limiter.slot(key_id):
            self.started_keys.append(key_id)
            self._may_end.append(may_end := asyncio.Event())
            await may_end.wait()


async def run_callbacks() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def with_limiter(
    running_max: int, waiting_max: int
) -> Callable[[Callable[[LimiterRequests], Coroutine[Any, Any, None]]], Any]:
    def decorated(test: Callable[[LimiterRequests], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def run() -> None:
            await test(LimiterRequests(running_max, waiting_max))

        def wrapped_test() -> None:
            asyncio.run(run())

        wrapped_test.__name__ = test.__name__
        return wrapped_test

    return decorated


@with_limiter(4, 64)
async def test_one_key_uses_at_most_three_quarters(requests: LimiterRequests) -> None:
    assert await requests.fill("greedy") == 3 + 48
    assert requests.started_keys == ["greedy"] * 3
    assert await requests.start("modest")
    assert requests.started_keys[-1] == "modest"  # at once
    # the key has less than a quarter of the waiting slots, and takes the last one
    assert await requests.fill("modest") == 15 + 1
    await requests.end_all()
    assert len(requests.started_keys) == 3 + 48 + 1 + 16


@with_limiter(2, 64)
async def test_waiting_keys_take_turns(requests: LimiterRequests) -> None:
    await requests.start("a", 12)
    await requests.start("b", 2)
    await requests.start("c", 2)
    await requests.end(8)
    assert requests.started_keys[:2] == ["a", "a"]
    assert requests.started_keys[2] == "b"
    assert "c" in requests.started_keys[3:5]
    assert requests.started_keys[2:8].count("a") == 2
    await requests.end(6)
    assert requests.started_keys[8:] == ["a"] * 8


@with_limiter(1, 8)
async def test_a_new_key_waits_for_one_task_of_another_key_only(requests: LimiterRequests) -> None:
    await requests.fill("greedy")
    await requests.start("modest")
    await requests.end(1)
    await requests.end(1)
    assert "modest" in requests.started_keys[:3]
    await requests.end_all()


@with_limiter(4, 0)
async def test_one_key_leaves_a_slot_even_without_waiting_slots(requests: LimiterRequests) -> None:
    assert await requests.fill("greedy") == 3
    assert await requests.fill("modest") == 1
    await requests.end_all()


@with_limiter(1, 64)
async def test_a_cancelled_waiter_frees_its_slot(requests: LimiterRequests) -> None:
    await requests.start("a")
    cancelled, stays = await requests.start("b", 2)
    cancelled.cancel()
    await run_callbacks()
    await requests.end()
    assert requests.started_keys == ["a", "b"]
    await requests.end()
    assert stays.done()
    assert await requests.fill("c") == 1 + 48


@with_limiter(1, 64)
async def test_a_waiter_cancelled_at_its_turn_passes_the_slot_on(requests: LimiterRequests) -> None:
    await requests.start("a")
    leaving, _ = await requests.start("b"), await requests.start("c")
    requests._may_end.pop(0).set()
    await asyncio.sleep(0)  # The first task has ended, and the next one has the slot but has not resumed.
    leaving[0].cancel()
    await run_callbacks()
    assert requests.started_keys == ["a", "c"]
    await requests.end()
    await requests.start("d")
    assert requests.started_keys[-1] == "d"
    await requests.end()


@with_limiter(1, 64)
async def test_finished_keys_leave_no_state(requests: LimiterRequests) -> None:
    for number in range(100):
        (running,) = await requests.start(f"k{number}")
        (waiting,) = await requests.start(f"w{number}")
        waiting.cancel()
        await requests.end()
        assert running.done()
    assert (len(requests.limiter._running), len(requests.limiter._waiting)) == (0, 0)


@with_limiter(1, 1)
async def test_the_error_names_the_keys_own_share(requests: LimiterRequests) -> None:
    await requests.start("a", 2)
    with pytest.raises(
        Unavailable, match=r"^reports: all running and waiting slots are in use \(EMBEDSINK_REPORT_WAITING_MAX\)\."
    ):
        await requests.start("b")
    await requests.end_all()
    limiter = ConcurrencyLimiter(1, waiting_max=4)
    requests.limiter = limiter
    await requests.start("a", 4)
    with pytest.raises(
        Unavailable, match=r"^reports: this key uses 3 of the 4 waiting slots, and the free slots are reserved for "
    ):
        await requests.start("a")
    await requests.end_all()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("limiter") / "data") as server:
        yield server


@contextlib.contextmanager
def asking_at_once(server: RunningServer, path: str, *, key: str, count: int) -> Iterator[list[socket.socket]]:
    """Open connections, each with a request whose response is not read yet."""
    address = urlsplit(server.url)
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=30))
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
            connections.append(connection)
        yield connections


OTHERS = [
    "/api/v1/reports",
    "/api/v1/reports/views/schema",
    "/api/v1/reports/views",
    "/api/v1/reports/totals.csv",
    "/api/v1/events.ndjson",
    "/api/v1/deployments",
    "/api/v1/quarantine",
    "/api/v1/inspect?session=s",
    "/api/v1/dashboards/overview/sections/use",
]


@pytest.mark.server
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/summary.zip",
        "/api/v1/events.ndjson",
        "/api/v1/reports",
        "/api/v1/dashboards/overview/sections/use?since=",
    ],
)
def test_one_key_does_not_block_the_others(server: RunningServer, path: str) -> None:
    greedy, other = server.key("read", deployments=[1]), server.key("read")
    assert server.get("/api/v1/reports/views", key=greedy).status == 200
    with contextlib.ExitStack() as stack:
        if path.endswith("="):
            # Use different queries, because equal ones share one result.
            for day in range(1, 71):
                stack.enter_context(asking_at_once(server, f"{path}{day}d", key=greedy, count=1))
        else:
            stack.enter_context(asking_at_once(server, path, key=greedy, count=70))
        assert [server.get(other_path, key=other).status for other_path in OTHERS * 2] == [200] * len(OTHERS * 2)


@pytest.mark.server
def test_requests_beyond_a_keys_share_get_503_with_retry_after(server: RunningServer) -> None:
    greedy = server.key("read", deployments=[1])
    with asking_at_once(server, "/api/v1/summary.zip", key=greedy, count=70) as connections:

        def refused() -> list[bytes]:
            heads = []
            for connection in connections:
                connection.settimeout(0.001)
                with contextlib.suppress(TimeoutError):
                    heads.append(connection.recv(4_096, socket.MSG_PEEK))
            return [head for head in heads if head.startswith(b"HTTP/1.1 503 ")]

        wait_until(lambda: len(refused()) >= 15, description="some are refused")
        assert all(b"retry-after:" in head.lower() and b'"overloaded"' in head for head in refused())
