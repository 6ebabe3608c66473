"""The CPU meter: a thread is busy while it computes, and while it waits for a CPU."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import embedsink.concurrency.throttle
from embedsink.concurrency.throttle import CpuMeter

NO_STATISTICS = "/proc/self/task/{}/no such file"
COMPUTED_S = 0.1


@contextmanager
def computing() -> Iterator[CpuMeter]:
    """Yield the meter of another thread, which computes until the end of the block."""
    meter_created, ended = threading.Event(), threading.Event()
    meters: list[CpuMeter] = []

    def compute() -> None:
        meters.append(CpuMeter())
        meter_created.set()
        while not ended.is_set():
            pass

    thread = threading.Thread(target=compute)
    thread.start()
    meter_created.wait()
    try:
        yield meters[0]
    finally:
        ended.set()
        thread.join()


def compute_here() -> None:
    until = time.thread_time() + COMPUTED_S
    while time.thread_time() < until:
        pass


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system has no schedstat")
def test_the_cpu_time_of_another_thread_is_measured() -> None:
    with computing() as meter:
        before, until = meter._demand_s(), time.monotonic() + 15
        while meter._demand_s() - before < COMPUTED_S and time.monotonic() < until:
            time.sleep(0.01)
        assert meter._demand_s() - before >= COMPUTED_S


@pytest.mark.parametrize("schedstat", [embedsink.concurrency.throttle.SCHEDSTAT, NO_STATISTICS])
def test_a_thread_measures_its_own_cpu_time(monkeypatch: pytest.MonkeyPatch, schedstat: str) -> None:
    monkeypatch.setattr(embedsink.concurrency.throttle, "SCHEDSTAT", schedstat)
    meter = CpuMeter()
    before = meter._demand_s()
    compute_here()
    assert meter._demand_s() - before >= COMPUTED_S * 0.9  # The system measures a running thread in ticks.


def test_without_system_statistics_another_thread_counts_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.concurrency.throttle, "SCHEDSTAT", NO_STATISTICS)
    monkeypatch.setattr(embedsink.concurrency.throttle, "_SAMPLE_INTERVAL_S", 0.0)
    with computing() as meter:
        time.sleep(0.01)
        assert meter.busy_share() <= 0


def test_the_busy_share_covers_a_whole_sample_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, wanted_s = [0.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(CpuMeter, "_demand_s", lambda _: wanted_s[0])
    meter = CpuMeter()
    now_s[0], wanted_s[0] = 1.0, 0.75
    assert meter.busy_share() == 0.75
    now_s[0], wanted_s[0] = 1.01, 0.76
    assert meter.busy_share() == 0.75
    now_s[0], wanted_s[0] = 2.0, 0.85
    assert meter.busy_share() == pytest.approx(0.1)
