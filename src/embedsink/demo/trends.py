"""How the made-up traffic changes over its days, so that the last seven say something against the seven before.

An age is in days before now. What happens on a day of its own happens on a working day, whichever day today is.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from embedsink.demo.fixtures import DASHBOARDS, FORGOTTEN, NEW_TENANT, QUIET_TENANT, Dashboard, Deployment

# Seven days, the seven before, and some more: what is compared was seen from its beginning on.
DAYS = 17
DAY_MS = 86_400_000
WORKING_DAY_VISITS = 56
WEEKEND_SHARE = 0.2
GROWTH_A_DAY = 0.01
# What was seen before and not since counts as quiet (see the report tenants).
QUIET_AGE = 14.2
NEW_AGE = 5.5
# In the middle of the last seven days, so that these are better than those before, and a change is to be seen in them.
_MENDED_AGES = (4, 5, 3, 6, 2)
_MENDED_AT = time(6, 10)
_EXPORTED_AGES = (1, 2, 3)
_EXPORTED_AT = time(17, 50)
_WEEKEND = 5


@dataclass(frozen=True, slots=True)
class Habits:
    """How people use the embed at a moment, and how well it does for them.

    Args:
        age: of the moment.
        is_mended: what failed most does so no longer, and dashboards load faster.
    """

    age: float
    is_mended: bool

    def surface(self, lot: float) -> str:
        """What a lot from 0 to 1 falls on: people leave the app for the chat."""
        chat_share, app_share = 0.16 - 0.0015 * self.age, 0.16 + 0.006 * self.age
        return "chat" if lot < chat_share else "app" if lot < chat_share + app_share else "dashboard"

    @property
    def viewer_count(self) -> float:
        """Of each tenant."""
        return 9.5 - 0.08 * self.age

    @property
    def unanswered_share(self) -> float:
        """Of AI questions, those without an answer, and as many again with an error."""
        return 0.03 + 0.007 * self.age

    @property
    def load_ms_log(self) -> float:
        """Logarithm of the median loading time of a dashboard in milliseconds."""
        return 6.95 if self.is_mended else 7.25

    @property
    def dashboards(self) -> tuple[Dashboard, ...]:
        """Those that anybody looks at."""
        return DASHBOARDS if self.age < QUIET_AGE else (*DASHBOARDS, FORGOTTEN)

    def tenants(self, deployment: Deployment) -> list[str]:
        """Those of a deployment that anybody comes from."""
        absent = (QUIET_TENANT if self.age < QUIET_AGE else None, NEW_TENANT if self.age > NEW_AGE else None)
        return [tenant for tenant in deployment.tenants if tenant not in absent]


HABITS_NOW = Habits(0, is_mended=True)


class Course:
    """What happens when, as seen from now.

    Args:
        now_ms: epoch milliseconds.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._today = datetime.fromtimestamp(now_ms / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    @property
    def mended_at(self) -> datetime:
        """When a dbt sync brought what mended most failures: the day before is a working day, too."""
        return self._first(_MENDED_AGES, _MENDED_AT, days=2)

    @property
    def exported_at(self) -> datetime:
        """When somebody took more rows home than anybody does."""
        return self._first(_EXPORTED_AGES, _EXPORTED_AT, days=1)

    def day(self, age: int) -> datetime:
        """Its beginning, in UTC."""
        return self._today - timedelta(days=age)

    def visit_count(self, age: int) -> int:
        """How many visits a day has."""
        share = 1 if self.day(age).weekday() < _WEEKEND else WEEKEND_SHARE
        return round(WORKING_DAY_VISITS * share * (1 - GROWTH_A_DAY * age))

    def habits_at(self, at_ms: int) -> Habits:
        """Those of a moment."""
        return Habits((self._now_ms - at_ms) / DAY_MS, is_mended=at_ms >= self.mended_at.timestamp() * 1000)

    def _first(self, ages: tuple[int, ...], moment: time, *, days: int) -> datetime:
        """The first of some ages that ends so many working days in a row."""
        age = next(age for age in ages if all(self.day(age + n).weekday() < _WEEKEND for n in range(days)))
        return datetime.combine(self.day(age), moment, UTC)
