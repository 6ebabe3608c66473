"""The clock watch: a jump is detected once, and slow drift is ignored."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from embedsink import clock_watch
from embedsink.clock_watch import ClockWatch


class Clocks:
    """A clock that can be set, and one that can't."""

    def __init__(self) -> None:
        self.shown = 1_763_596_800.0
        self.steady = 100.0

    def pass_by(self, seconds: float) -> None:
        self.shown += seconds
        self.steady += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(time, "time", lambda: clocks.shown)
    monkeypatch.setattr(clock_watch, "_steady_clock_s", lambda: clocks.steady)
    return clocks


@pytest.mark.parametrize("seconds", [60, -60, 365 * 86_400, -365 * 86_400])
def test_a_jump_is_returned_once_with_both_times(clocks: Clocks, seconds: int) -> None:
    watch = ClockWatch()
    clocks.pass_by(1)
    clocks.shown += seconds
    jump = watch.poll()
    assert jump is not None
    assert jump.shown == datetime.fromtimestamp(clocks.shown, UTC)
    assert jump.shown - jump.expected == timedelta(seconds=seconds)
    clocks.pass_by(1)
    assert watch.poll() is None


def test_passing_time_and_slow_drift_are_no_jump(clocks: Clocks) -> None:
    watch = ClockWatch()
    for _ in range(100):
        clocks.pass_by(3_600)
        clocks.shown += 59
        assert watch.poll() is None


def test_the_clocks_of_this_machine_agree() -> None:
    watch = ClockWatch()
    assert watch.poll() is None
