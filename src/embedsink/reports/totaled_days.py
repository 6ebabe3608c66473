"""The marks of rows from daily totals: the first and the last of their UTC days (docs/reports.md, "Daily totals")."""

from datetime import date

# The response header of reports with daily totals.
TOTALS_HEADER = "X-Daily-Totals"

# The first and the last day.
TotaledDays = tuple[date, date]


def totals_note(days: TotaledDays) -> str:
    """Return the sentence for readers, such as `Daily totals: 2026-08-01 to 2026-08-31.`"""
    first, last = days
    return f"Daily totals: {first} to {last}."


def format_totals_header(days: TotaledDays) -> str:
    """Return the value of the header, such as `2026-08-01/2026-08-31`."""
    return "/".join(day.isoformat() for day in days)


def parse_totals_header(value: str | None) -> TotaledDays | None:
    """Return the days in the value of the header; None without a valid header."""
    try:
        first, last = map(date.fromisoformat, (value or "").split("/"))
    except ValueError:
        return None
    return first, last
