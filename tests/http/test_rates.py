"""How much one key may send."""

import pytest

import embedsink.http.rates
from embedsink.errors import Unavailable
from embedsink.http.rates import RateLimiter


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(embedsink.http.rates, "time", clock)
    return clock


def test_a_burst_of_two_seconds_passes_and_then_the_rate_holds(clock: Clock) -> None:
    rates = RateLimiter(10)
    rates.spend("k", 20)
    with pytest.raises(Unavailable) as refused:
        rates.spend("k", 5)
    assert refused.value.reason == "rate_limited"
    assert refused.value.retry_after_s == 1
    clock.now += 0.5
    rates.spend("k", 5)


def test_keys_do_not_share(clock: Clock) -> None:
    rates = RateLimiter(10)
    rates.spend("a", 20)
    rates.spend("b", 20)


def test_a_delivery_larger_than_the_burst_passes_when_the_key_has_rested(clock: Clock) -> None:
    rates = RateLimiter(10)
    rates.spend("k", 100)
    with pytest.raises(Unavailable) as refused:
        rates.spend("k", 100)
    clock.now += refused.value.retry_after_s
    rates.spend("k", 100)


def test_what_was_refused_is_not_charged(clock: Clock) -> None:
    rates = RateLimiter(10)
    rates.spend("k", 15)
    for _ in range(9):
        with pytest.raises(Unavailable):
            rates.spend("k", 6)
    rates.spend("k", 5)
