"""The concurrency limiter: a busy key waits longest, and no key can block the others."""

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from embedsink.concurrency.limiter import ConcurrencyLimiter
from embedsink.errors import Unavailable
from tests.support.paths import ROOT
from tests.support.servers import RunningServer, running_server, wait_until


class Room:
    """Requests at a limiter. Each runs until the test ends it."""

    def __init__(self, running_max: int, waiting_max: int) -> None:
        self.limiter = ConcurrencyLimiter(running_max, waiting_max=waiting_max)
        self.begun: list[str] = []
        self._may_end: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, key_id: str, count: int = 1) -> list[asyncio.Task[None]]:
        """Start requests of a key. Return those that run or wait."""
        started = [asyncio.create_task(self._run(key_id)) for _ in range(count)]
        await settle()
        for task in started:
            if task.done():
                task.result()
        self._tasks += started
        return started

    async def fill(self, key_id: str) -> int:
        """Start requests of a key until one is refused. Return the number of the others."""
        for count in range(1_000):
            try:
                await self.ask(key_id)
            except Unavailable:
                return count
        raise AssertionError("it is never refused")

    async def end(self, count: int = 1) -> None:
        """End the oldest running requests."""
        for _ in range(count):
            self._may_end.pop(0).set()
            await settle()

    async def end_all(self) -> None:
        while self._may_end:
            await self.end()
        await asyncio.gather(*self._tasks)

    async def _run(self, key_id: str) -> None:
        async with self.limiter.slot(key_id):
            self.begun.append(key_id)
            self._may_end.append(may_end := asyncio.Event())
            await may_end.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def in_room(running_max: int, waiting_max: int) -> Callable[[Callable[[Room], Coroutine[Any, Any, None]]], Any]:
    def decorated(test: Callable[[Room], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def run() -> None:
            await test(Room(running_max, waiting_max))

        def test_it() -> None:
            asyncio.run(run())

        test_it.__name__ = test.__name__
        return test_it

    return decorated


@in_room(4, 64)
async def test_one_key_uses_at_most_three_quarters(room: Room) -> None:
    assert await room.fill("greedy") == 3 + 48
    assert room.begun == ["greedy"] * 3
    assert await room.ask("modest")
    assert room.begun[-1] == "modest"  # at once
    # the key has less than a quarter of the waiting slots, and takes the last one
    assert await room.fill("modest") == 15 + 1
    await room.end_all()
    assert len(room.begun) == 3 + 48 + 1 + 16


@in_room(2, 64)
async def test_waiting_keys_take_turns(room: Room) -> None:
    await room.ask("a", 12)
    await room.ask("b", 2)
    await room.ask("c", 2)
    await room.end(8)
    assert room.begun[:2] == ["a", "a"]
    assert room.begun[2] == "b"
    assert "c" in room.begun[3:5]
    assert room.begun[2:8].count("a") == 2
    await room.end(6)
    assert room.begun[8:] == ["a"] * 8


@in_room(1, 8)
async def test_a_new_key_waits_for_one_task_of_another_key_only(room: Room) -> None:
    await room.fill("greedy")
    await room.ask("modest")
    await room.end(1)
    await room.end(1)
    assert "modest" in room.begun[:3]
    await room.end_all()


@in_room(4, 0)
async def test_one_key_leaves_a_slot_even_without_waiting_slots(room: Room) -> None:
    assert await room.fill("greedy") == 3
    assert await room.fill("modest") == 1
    await room.end_all()


@in_room(1, 64)
async def test_a_cancelled_waiter_frees_its_slot(room: Room) -> None:
    await room.ask("a")
    left, stays = await room.ask("b", 2)
    left.cancel()
    await settle()
    await room.end()
    assert room.begun == ["a", "b"]
    await room.end()
    assert stays.done()
    assert await room.fill("c") == 1 + 48


@in_room(1, 64)
async def test_a_waiter_cancelled_at_its_turn_passes_the_slot_on(room: Room) -> None:
    await room.ask("a")
    leaving, _ = await room.ask("b"), await room.ask("c")
    room._may_end.pop(0).set()
    await asyncio.sleep(0)  # The first task has ended, and the next one has the slot but has not resumed.
    leaving[0].cancel()
    await settle()
    assert room.begun == ["a", "c"]
    await room.end()
    await room.ask("d")
    assert room.begun[-1] == "d"
    await room.end()


@in_room(1, 64)
async def test_finished_keys_leave_no_state(room: Room) -> None:
    for number in range(100):
        (running,) = await room.ask(f"k{number}")
        (waiting,) = await room.ask(f"w{number}")
        waiting.cancel()
        await room.end()
        assert running.done()
    assert (len(room.limiter._running), len(room.limiter._waiting)) == (0, 0)


@in_room(1, 1)
async def test_the_error_names_the_keys_own_share(room: Room) -> None:
    await room.ask("a", 2)
    with pytest.raises(
        Unavailable, match=r"^reports: all running and waiting slots are in use \(EMBEDSINK_REPORT_WAITING_MAX\)\."
    ):
        await room.ask("b")
    await room.end_all()
    limiter = ConcurrencyLimiter(1, waiting_max=4)
    room.limiter = limiter
    await room.ask("a", 4)
    with pytest.raises(
        Unavailable, match=r"^reports: 3 requests of this key are waiting already, and the other slots are"
    ):
        await room.ask("a")
    await room.end_all()


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


def test_each_use_of_a_limiter_passes_the_key() -> None:
    source = ROOT / "src" / "embedsink"
    uses = [
        line.strip()
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if "engine.limiters." in line
    ]
    # `slots = …` chooses one of two limiters for a later call.
    wrong = [
        use
        for use in uses
        if not re.search(
            r"\.slot\(.*key_id|key_id=key\.key_id|^slots = |^throttle=engine\.limiters\.dashboards,$|\.slot\(\"k_", use
        )
    ]
    assert len(uses) > 8
    assert wrong == []
