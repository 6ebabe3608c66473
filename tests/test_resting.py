"""Rests: while senders want all of the event loop, the loader rests as long as it worked, and never for long."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedsink.concurrency.cpu_meter import CpuMeter
from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.http.app import create_app
from embedsink.journal.capacity import Capacity
from embedsink.loader import backoff, pending
from embedsink.loader.backoff import BUSY_SHARE, REST_S_MAX, Rests
from embedsink.loader.loader import Loader
from embedsink.settings import Settings
from embedsink.store.database import Store
from tests.given import segment
from tests.stores import make_folder

LONG_S = 3_600.0


class Rested(threading.Event):
    """Notes for how long somebody would have rested."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return True


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> Rested:
    """Of all who rest in this test."""
    noted = Rested()
    monkeypatch.setattr(Rests, "_ended", property(lambda _: noted, lambda *_: None), raising=False)
    return noted


def test_it_rests_as_long_as_the_work_took_and_never_for_long(rested: Rested) -> None:
    rests = Rests(lambda: True)
    for took_s in (0.25, LONG_S):
        rests.rest_after(took_s)
    assert rested.seconds == [0.25, REST_S_MAX]


@pytest.mark.parametrize("rests", [Rests(), Rests(lambda: False)])
def test_it_does_not_rest_while_senders_leave_room(rests: Rests, rested: Rested) -> None:
    rests.rest_after(LONG_S)
    assert rested.seconds == []


def test_who_closes_waits_for_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "REST_S_MAX", LONG_S)
    began = threading.Event()

    def are_due() -> bool:
        began.set()
        return True

    rests = Rests(are_due)
    thread = threading.Thread(target=rests.rest_after, args=[LONG_S], daemon=True)
    thread.start()
    began.wait()
    rests.end()
    thread.join(15)
    assert not thread.is_alive()
    rests.rest_after(LONG_S)  # nor for another


def test_the_loader_rests_after_each_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rested: Rested) -> None:
    folder = make_folder(tmp_path / "data")
    for number in (1, 2, 3):
        segment(folder.journal, [{"type": "view", "id": number}], number=number)
    monkeypatch.setattr(pending, "TOGETHER_COUNT_MAX", 1)
    loader = Loader(folder, Store(folder.store), rests=Rests(lambda: True))
    loader.open_store()
    loader.work_once(is_last=False)
    loader.close()
    assert len(rested.seconds) == 3
    assert all(seconds for seconds in rested.seconds)
    assert rested.is_set()  # by the closing


@pytest.mark.parametrize(
    ("share", "has_headroom", "are_due"),
    [(BUSY_SHARE, True, True), (BUSY_SHARE - 0.01, True, False), (1, False, False)],
)
def test_a_server_rests_while_its_loop_is_busy_and_its_journal_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rested: Rested, *, share: float, has_headroom: bool, are_due: bool
) -> None:
    monkeypatch.setattr(CpuMeter, "share", lambda _: share)
    monkeypatch.setattr(Capacity, "has_headroom", has_headroom)

    async def open_and_close(engine: Engine) -> None:
        async with engine:
            engine.loader._rests.rest_after(0.5)

    folder = make_folder(tmp_path / "data")
    asyncio.run(open_and_close(Engine(folder, Settings(), has_senders=True)))
    assert (0.5 in rested.seconds) is are_due


def opened_by_server(folder: DataFolder) -> Engine:
    """The engine of an application, as its lifespan would open it."""
    app: Any = create_app(folder, Settings())
    found: list[Engine] = []

    async def run() -> None:
        async with app.router.lifespan_context(app) as state:
            found.append(state["engine"])

    asyncio.run(run())
    return found[0]


def opened_by_command(folder: DataFolder) -> Engine:
    """As `embedsink import`, `rebuild` and `quarantine replay` do."""
    engine = Engine(folder, Settings())

    async def run() -> None:
        async with engine:
            pass

    asyncio.run(run())
    return engine


@pytest.mark.parametrize(("open_", "are_due"), [(opened_by_server, True), (opened_by_command, False)])
def test_only_a_server_rests(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rested: Rested,
    open_: Callable[[DataFolder], Engine],
    *,
    are_due: bool,
) -> None:
    monkeypatch.setattr(CpuMeter, "share", lambda _: 1.0)
    monkeypatch.setattr(Capacity, "has_headroom", True)
    engine = open_(make_folder(tmp_path / "data"))
    engine.loader._rests.rest_after(0.5)
    assert (0.5 in rested.seconds) is are_due


def test_room_is_ample_while_half_of_the_budget_is_left(tmp_path: Path) -> None:
    for open_bytes, has_headroom in ((500, True), (501, False)):
        space = Capacity(tmp_path, free_bytes_min=0, journal_bytes_max=1_000)
        assert not space.has_headroom  # Nobody has looked yet.
        space.measure_when_due(open_bytes=open_bytes)
        assert space.has_headroom is has_headroom


def test_room_is_not_ample_where_the_disk_has_less(tmp_path: Path) -> None:
    space = Capacity(tmp_path, free_bytes_min=0, journal_bytes_max=2**62)
    space.measure_when_due(open_bytes=0)
    assert (space.has_headroom, space.refusal) == (False, None)
