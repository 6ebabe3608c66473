"""The daily limits of the quarantine for each key."""

import pytest

import embedsink.ingest.quarantine_budget
from embedsink.ingest.quarantine_budget import QuarantineBudget


class Clock:
    now = 20_000 * 86_400.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(embedsink.ingest.quarantine_budget, "time", clock)
    return clock


def charged(budget: QuarantineBudget, key_id: str, *, byte_count: int, count: int) -> bool:
    """Charge the key if its budget has room. Return whether it has."""
    is_within_budget = budget.is_within_budget(key_id, byte_count=byte_count, count=count)
    if is_within_budget:
        budget.charge(key_id, byte_count=byte_count, count=count)
    return is_within_budget


def test_a_key_has_a_daily_limit_of_bytes_and_rejections(clock: Clock) -> None:
    budget = QuarantineBudget(bytes_per_day=100, count_per_day=3)
    assert charged(budget, "a", byte_count=60, count=1)
    assert not charged(budget, "a", byte_count=41, count=1)
    assert charged(budget, "a", byte_count=20, count=2)
    assert not charged(budget, "a", byte_count=1, count=1)
    assert charged(budget, "b", byte_count=100, count=1)
    clock.now += 86_399
    assert not charged(budget, "a", byte_count=1, count=1)
    clock.now += 1
    assert charged(budget, "a", byte_count=100, count=3)


def test_rejections_of_today_in_the_store_count(clock: Clock) -> None:
    budget = QuarantineBudget(bytes_per_day=100, count_per_day=10)
    budget.restore_usage([("a", 90, 1)])
    assert not charged(budget, "a", byte_count=11, count=1)
    assert charged(budget, "a", byte_count=10, count=1)
    clock.now += 86_400
    assert charged(budget, "a", byte_count=100, count=1)
