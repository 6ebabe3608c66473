"""The marks of answers about deleted events: the days with daily totals, and those without (docs/reports.md)."""

from dataclasses import dataclass
from datetime import date
from email.message import Message

# The response headers.
TOTALS_HEADER = "X-Daily-Totals"
DELETED_HEADER = "X-Deleted-Days"

# The first and the last day, in UTC.
Days = tuple[date, date]


@dataclass(frozen=True, slots=True)
class DayMarks:
    """The marks of an answer. Each has the first and the last of its days; None without such days.

    Args:
        totaled: the days whose rows come from daily totals.
        deleted: the days whose events were deleted, and that the answer does not read from daily totals.
    """

    totaled: Days | None
    deleted: Days | None

    def notes(self) -> list[str]:
        """Return the sentences for readers, such as `Daily totals: 2026-08-01 to 2026-08-31.`"""
        titles = (("Daily totals", self.totaled), ("Events deleted", self.deleted))
        return [f"{title}: {days[0]} to {days[1]}." for title, days in titles if days is not None]

    def headers(self) -> dict[str, str]:
        """Return the response headers, with values such as `2026-08-01/2026-08-31`."""
        values = ((TOTALS_HEADER, self.totaled), (DELETED_HEADER, self.deleted))
        return {name: "/".join(iso_days(days)) for name, days in values if days is not None}


def parse_day_marks(headers: Message) -> DayMarks:
    """Return the marks in the headers of a response."""
    return DayMarks(_parse_days(headers[TOTALS_HEADER]), _parse_days(headers[DELETED_HEADER]))


def iso_days(days: Days) -> list[str]:
    """Return the first and the last day as texts."""
    return [day.isoformat() for day in days]


def _parse_days(value: str | None) -> Days | None:
    """Return the days in the value of a header; None without a valid header."""
    try:
        first, last = map(date.fromisoformat, (value or "").split("/"))
    except ValueError:
        return None
    return first, last
