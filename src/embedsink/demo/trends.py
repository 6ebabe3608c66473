"""The trends in the demo's traffic: the last seven days differ from the seven days before.

An age is a number of days before now. One-off events are on working days, on whichever weekday the demo runs.
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
# The age of the last session of QUIET_TENANT and of the last view of UNUSED_DASHBOARD. After 14 days, a tenant is
# inactive and a dashboard is unused.
QUIET_AGE = 14.2
# The age of the first session of NEW_TENANT.
NEW_AGE = 5.5
# The possible days of the newest dbt sync, the preferred one first. They are early in the last seven days, so that
# the last seven days have fewer errors than the seven days before.
_SYNCED_DAYS_AGO = (5, 4, 6, 3)
_SYNCED_AT = time(6, 10)
# The possible days of the unusual export, the preferred one first.
_EXPORTED_DAYS_AGO = (1, 2, 3)
_EXPORTED_AT = time(17, 50)
_SATURDAY = 5  # as in `datetime.weekday`


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The probabilities and choices of simulated viewers on one day. The numbers are invented.

    Args:
        age: the age of the day.
        is_synced: whether the newest dbt sync has completed. It fixes the most frequent errors, causes a rarer one, and
            makes dashboards load faster.
    """

    age: float
    is_synced: bool

    def surface(self, draw: float) -> str:
        """Return the surface for a random number from 0 to 1. Over time, viewers move from the app to the chat."""
        chat_share = self._trend(now=0.16, growth_per_day=0.0015)
        app_share = self._trend(now=0.16, growth_per_day=-0.006)
        if draw < chat_share:
            return "chat"
        return "app" if draw < chat_share + app_share else "dashboard"

    @property
    def viewers_per_tenant(self) -> float:
        """The number of viewers of each tenant."""
        return self._trend(now=9.5, growth_per_day=0.08)

    @property
    def unanswered_share(self) -> float:
        """The share of AI questions without an answer. The same share of questions ends with an error."""
        return self._trend(now=0.03, growth_per_day=-0.007)

    @property
    def median_load_ms(self) -> float:
        """The median time that a dashboard takes to load. The newest dbt sync shortens it."""
        return 1_043 if self.is_synced else 1_408

    @property
    def dashboards(self) -> tuple[Dashboard, ...]:
        """The dashboards that viewers open. They opened UNUSED_DASHBOARD until QUIET_AGE days ago."""
        return DASHBOARDS if self.age < QUIET_AGE else (*DASHBOARDS, UNUSED_DASHBOARD)

    def tenants(self, deployment: Deployment) -> list[str]:
        """Return the tenants of a deployment that have sessions."""
        return [tenant for tenant in deployment.tenants if self._has_sessions(tenant)]

    def _has_sessions(self, tenant: str) -> bool:
        """Return whether a tenant has sessions on this day, which is `age` days before now.

        QUIET_TENANT had sessions until QUIET_AGE days ago. NEW_TENANT had its first session NEW_AGE days ago.
        """
        if tenant == QUIET_TENANT:
            return self.age >= QUIET_AGE
        if tenant == NEW_TENANT:
            return self.age <= NEW_AGE
        return True

    def _trend(self, *, now: float, growth_per_day: float) -> float:
        """Return the value of a linear trend on this day, which is `age` days before now.

        Args:
            now: the value today.
            growth_per_day: how much the value grows each day.
        """
        return now - growth_per_day * self.age


BEHAVIOUR_NOW = Behaviour(0, is_synced=True)


class Calendar:
    """The days before now, with their numbers of visits, and the times of one-off events.

    Args:
        now_ms: epoch milliseconds.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
        self._start_of_today = datetime.combine(today, time(), UTC)

    @property
    def synced_at(self) -> datetime:
        """The time at which the newest dbt sync ended: on a working day that follows a working day."""
        # The report `sync_impact` compares the 24 hours before a sync with the 24 hours after it.
        synced_days_ago = next(
            days_ago
            for days_ago in _SYNCED_DAYS_AGO
            if self._is_working_day(days_ago) and self._is_working_day(days_ago + 1)
        )
        return datetime.combine(self.day(synced_days_ago), _SYNCED_AT, UTC)

    @property
    def exported_at(self) -> datetime:
        """The time at which one viewer exported unusually many rows: on the last working day before today."""
        exported_days_ago = next(days_ago for days_ago in _EXPORTED_DAYS_AGO if self._is_working_day(days_ago))
        return datetime.combine(self.day(exported_days_ago), _EXPORTED_AT, UTC)

    def day(self, days_ago: int) -> datetime:
        """Return the start, in UTC, of the day that is `days_ago` days before today."""
        return self._start_of_today - timedelta(days=days_ago)

    def visit_count(self, days_ago: int) -> int:
        """Return the number of visits on the day that is `days_ago` days before today."""
        day_factor = 1 if self._is_working_day(days_ago) else WEEKEND_FACTOR
        growth_factor = 1 - GROWTH_PER_DAY * days_ago
        return round(WORKING_DAY_VISITS * day_factor * growth_factor)

    def behaviour_at(self, at_ms: int) -> Behaviour:
        """Return the behaviour of viewers at a time in epoch milliseconds."""
        age = (self._now_ms - at_ms) / DAY_MS
        return Behaviour(age, is_synced=at_ms >= self.synced_at.timestamp() * 1000)

    def _is_working_day(self, days_ago: int) -> bool:
        """Return whether the day that is `days_ago` days before today is from Monday to Friday."""
        return self.day(days_ago).weekday() < _SATURDAY
