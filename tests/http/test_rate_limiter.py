"""Rate limits of keys and addresses."""

from collections.abc import Callable

import pytest

import embedsink.http.rate_limiter
from embedsink.errors import Unavailable
from embedsink.http.rate_limiter import RateLimiter, Sender, TokenBuckets
from embedsink.reasons import Reason

UNLIMITED_PER_S = 2**40


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(embedsink.http.rate_limiter, "time", clock)
    return clock


def rate_limiter(
    events_per_s: int, *, bytes_per_s: int = UNLIMITED_PER_S, address_bytes_per_s: int = UNLIMITED_PER_S
) -> RateLimiter:
    return RateLimiter(events_per_s, bytes_per_s=bytes_per_s, address_bytes_per_s=address_bytes_per_s)


def spend(rates: RateLimiter, key_id: str, events: int) -> None:
    rates.admit(Sender("192.0.2.1", key_id), 0)
    rates.charge_events(key_id, events)


def test_a_burst_of_two_seconds_passes_and_then_the_rate_holds(clock: Clock) -> None:
    rates = rate_limiter(10)
    spend(rates, "k", 20)
    with pytest.raises(Unavailable) as refused:
        spend(rates, "k", 5)
    assert refused.value.reason == "rate_limited"
    assert refused.value.retry_after_s == 1
    clock.now += 0.5
    spend(rates, "k", 5)


def test_keys_have_separate_buckets(clock: Clock) -> None:
    rates = rate_limiter(10)
    spend(rates, "a", 20)
    spend(rates, "b", 20)


def test_a_delivery_larger_than_the_burst_passes_with_a_full_bucket(clock: Clock) -> None:
    rates = rate_limiter(10)
    spend(rates, "k", 100)
    clock.now += 9
    with pytest.raises(Unavailable) as refused:
        spend(rates, "k", 100)
    clock.now += refused.value.retry_after_s
    spend(rates, "k", 100)


def test_a_refused_delivery_is_charged_as_one_event(clock: Clock) -> None:
    rates = rate_limiter(10)
    spend(rates, "k", 15)
    for _ in range(5):
        assert is_limited(lambda: spend(rates, "k", 6))
    assert is_limited(lambda: rates.admit(Sender("192.0.2.1", "k"), 0))
    clock.now += 0.1
    rates.admit(Sender("192.0.2.1", "k"), 0)


HERE, THERE = Sender("192.0.2.1", "k_1"), Sender("192.0.2.2", "k_1")


def is_limited(charge: Callable[[], None]) -> bool:
    try:
        charge()
    except Unavailable as refused:
        return refused.reason is Reason.RATE_LIMITED
    return False


def test_the_bytes_of_a_key_are_limited_across_addresses(clock: Clock) -> None:
    rates = rate_limiter(1_000, bytes_per_s=100, address_bytes_per_s=1_000)
    rates.admit(HERE, 150)
    assert is_limited(lambda: rates.admit(THERE, 51))
    rates.admit(THERE, 50)
    clock.now += 1
    rates.admit(HERE, 100)


def test_an_address_cannot_use_the_rates_of_other_addresses_or_keys(clock: Clock) -> None:
    rates = rate_limiter(1_000, bytes_per_s=1_000, address_bytes_per_s=100)
    rates.admit(HERE, 200)
    assert is_limited(lambda: rates.admit(HERE, 1))
    rates.admit(THERE, 200)
    rates.admit(Sender(HERE.address, "k_2"), 200)


def test_a_key_without_events_left_is_refused_before_its_bytes_are_charged(clock: Clock) -> None:
    rates = rate_limiter(1, bytes_per_s=100)
    spend(rates, "k_1", 2)
    for _ in range(5):
        assert is_limited(lambda: rates.admit(HERE, 100))
    clock.now += 1
    rates.admit(HERE, 200)


def test_the_debt_for_rejected_bodies_is_at_most_one_full_bucket(clock: Clock) -> None:
    rates = rate_limiter(1_000, address_bytes_per_s=100)
    for _ in range(50):
        rates.charge_work(HERE, 1_000)
    assert is_limited(lambda: rates.check_work(HERE))
    rates.check_work(THERE)
    rates.admit(HERE, 100)
    clock.now += 4
    rates.check_work(HERE)


def test_bytes_refused_for_an_address_are_not_charged_to_its_key(clock: Clock) -> None:
    rates = rate_limiter(1_000, bytes_per_s=150, address_bytes_per_s=100)
    rates.admit(HERE, 200)
    for _ in range(5):
        assert is_limited(lambda: rates.admit(HERE, 100))
    rates.admit(THERE, 100)


def test_undeclared_bytes_are_charged_without_another_event(clock: Clock) -> None:
    rates = rate_limiter(1, bytes_per_s=100)
    rates.admit(HERE, 0)
    rates.charge_bytes(HERE, 200)
    assert is_limited(lambda: rates.charge_bytes(HERE, 1))
    clock.now += 1
    rates.admit(HERE, 100)


def test_the_number_of_buckets_is_limited_and_full_ones_are_dropped_first(clock: Clock) -> None:
    buckets = TokenBuckets(10, count_max=2)
    buckets.take("a", 20, 100.0)
    buckets.take("b", 1, 100.0)
    buckets.take("c", 20, 101.0)
    assert list(buckets._full_at) == ["a", "c"]
    buckets.take("d", 1, 101.0)
    assert list(buckets._full_at) == ["c", "d"], "without a full bucket, the oldest is dropped"
