"""How the demo's traffic changes over its days, so that the last seven days differ from the seven before.

An age is in days before now. One-off events are on working days, regardless of the weekday on which the demo runs.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from embedsink.demo.fixtures import DASHBOARDS, NEW_TENANT, QUIET_TENANT, UNUSED_DASHBOARD, Dashboard, Deployment

# Two periods of seven days, and some days before them, so that reports can compare both.
DAYS = 17
DAY_MS = 86_400_000
WORKING_DAY_VISITS = 56
WEEKEND_FACTOR = 0.2
GROWTH_PER_DAY = 0.01
# More than the 14 days after which a tenant counts as inactive and a dashboard as unused.
QUIET_AGE = 14.2
NEW_AGE = 5.5
# Early in the last seven days, so that these have fewer errors than the seven days before.
_SYNCED_AGES = (5, 4, 6, 3)
_SYNCED_AT = time(6, 10)
_EXPORTED_AGES = (1, 2, 3)
_EXPORTED_AT = time(17, 50)
_WEEKEND = 5


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How viewers use the embed at a given time, and how well it works for them.

    Args:
        age: the age of that time.
        is_synced: whether the newest dbt sync has completed. It fixes the most frequent errors, causes a rarer one, and
            makes dashboards load faster.
    """

    age: float
    is_synced: bool

    def surface(self, draw: float) -> str:
        """Return the surface for a random draw from 0 to 1: over time, viewers move from the app to the chat."""
        chat_share = 0.16 - 0.0015 * self.age
        app_share = 0.16 + 0.006 * self.age
        if draw < chat_share:
            return "chat"
        return "app" if draw < chat_share + app_share else "dashboard"

    @property
    def viewers_per_tenant(self) -> float:
        """The number of viewers of each tenant."""
        return 9.5 - 0.08 * self.age

    @property
    def unanswered_share(self) -> float:
        """The share of AI questions without an answer; the same share ends with an error."""
        return 0.03 + 0.007 * self.age

    @property
    def load_ms_log(self) -> float:
        """The logarithm of a dashboard's median loading time in milliseconds."""
        return 6.95 if self.is_synced else 7.25

    @property
    def dashboards(self) -> tuple[Dashboard, ...]:
        """The dashboards that viewers open."""
        return DASHBOARDS if self.age < QUIET_AGE else (*DASHBOARDS, UNUSED_DASHBOARD)

    def tenants(self, deployment: Deployment) -> list[str]:
        """Return the tenants of a deployment that have sessions."""
        absent = (QUIET_TENANT if self.age < QUIET_AGE else None, NEW_TENANT if self.age > NEW_AGE else None)
        return [tenant for tenant in deployment.tenants if tenant not in absent]


BEHAVIOUR_NOW = Behaviour(0, is_synced=True)


class Calendar:
    """The days before now, and the times of one-off events.

    Args:
        now_ms: epoch milliseconds.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._today = datetime.fromtimestamp(now_ms / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    @property
    def synced_at(self) -> datetime:
        """The time at which the newest dbt sync ended. The day before it is also a working day."""
        return self._first_working_day(_SYNCED_AGES, _SYNCED_AT, in_a_row=2)

    @property
    def exported_at(self) -> datetime:
        """The time at which one viewer exported unusually many rows."""
        return self._first_working_day(_EXPORTED_AGES, _EXPORTED_AT, in_a_row=1)

    def day(self, age: int) -> datetime:
        """Return the start of a day, in UTC."""
        return self._today - timedelta(days=age)

    def visit_count(self, age: int) -> int:
        """Return the number of visits on a day."""
        factor = 1 if self.day(age).weekday() < _WEEKEND else WEEKEND_FACTOR
        return round(WORKING_DAY_VISITS * factor * (1 - GROWTH_PER_DAY * age))

    def behaviour_at(self, at_ms: int) -> Behaviour:
        """Return the behaviour at a given time."""
        return Behaviour((self._now_ms - at_ms) / DAY_MS, is_synced=at_ms >= self.synced_at.timestamp() * 1000)

    def _first_working_day(self, ages: tuple[int, ...], moment: time, *, in_a_row: int) -> datetime:
        """Return a time on the first of these days that ends a run of `in_a_row` working days."""
        age = next(age for age in ages if all(self.day(age + n).weekday() < _WEEKEND for n in range(in_a_row)))
        return datetime.combine(self.day(age), moment, UTC)
