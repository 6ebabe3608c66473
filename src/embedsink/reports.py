"""The reports: which there are, through which scope they are seen, and how their rows go out.

A report is a view in `sql/views/reports/` and nothing else: its title, question, grain and columns are the comments
there, its scope is a set of session variables, its rows are whatever the view answers.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from re import compile as pattern
from typing import Any

import orjson

from embedsink.envelope.body import has_bad_text
from embedsink.errors import Misconfigured, Refused, quote
from embedsink.keys import parse_deployment, parse_duration
from embedsink.reasons import Reason
from embedsink.sqlfiles import read_sql
from embedsink.store import Reader

SURFACES = ("dashboard", "app", "chat")
INTERVALS = ("hour", "day", "week", "month")
PARAMETERS = ("since", "until", "surface", "deployment", "tenant", "interval")

_COLUMN_COMMENT = pattern(r"^(?P<description>.*?\.)(?: Unit: (?P<unit>[^.]+)\.)?$")
_TYPES = {
    "BIGINT": "integer",
    "HUGEINT": "integer",
    "INTEGER": "integer",
    "DOUBLE": "number",
    "BOOLEAN": "boolean",
    "TIMESTAMP": "timestamp",
    "DATE": "date",
}
# What spreadsheets take for a formula when a cell begins with it; some read the full-width forms as the plain ones.
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column: `type` is integer, number, boolean, timestamp, date or string; `unit` is empty where there is none."""

    name: str
    type: str
    unit: str
    description: str


@dataclass(frozen=True, slots=True)
class Report:
    """A named answer: the question, and what one row of the answer is."""

    name: str
    title: str
    question: str
    grain: str
    columns: list[ReportColumn]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which events are seen. None bounds nothing; `until` is exclusive; times are UTC."""

    since: datetime | None = None
    until: datetime | None = None
    surface: str | None = None
    deployments: frozenset[int] | None = None
    tenant: str | None = None
    interval: str | None = None

    def variables(self) -> dict[str, object]:
        """The session variables that the views read."""
        deployments = None if self.deployments is None else sorted(self.deployments)
        return asdict(self) | {"deployments": deployments}


@cache
def report_names() -> tuple[str, ...]:
    """Every report, by name."""
    return tuple(read_sql("views/reports"))


def all_reports(reader: Reader) -> list[Report]:
    """Every report with what its view's comments say."""
    return [_describe(reader, name) for name in report_names()]


def find_report(reader: Reader, name: str) -> Report:
    """One report.

    Raises:
        Refused: `not_found`, with the nearest name.
    """
    return _describe(reader, known_name(name))


def known_name(name: str) -> str:
    """The name, if it is a report's: nothing else ever gets into a statement.

    Raises:
        Refused: `not_found`, with the nearest name.
    """
    if name in report_names():
        return name
    nearest = get_close_matches(name, report_names(), n=1)
    instead = f'Did you mean "{nearest[0]}"?' if nearest else f"There are {', '.join(report_names())}."
    raise Refused(Reason.NOT_FOUND, f"report {quote(name)} does not exist. {instead}")


def parse_scope(
    asked: Mapping[str, str | None],
    *,
    deployments: Iterable[str | int] = (),
    allowed: frozenset[int] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Scope:
    """A scope from what a person typed.

    Args:
        asked: since, until, surface, tenant and interval; None and missing are the same.
        deployments: the ones asked for; none asked for means all that are allowed.
        allowed: the reader's deployments; None for all.
        now: the clock, for spans such as `7d`.

    Raises:
        Refused: `bad_parameter`, or `out_of_scope` for a deployment that is not the reader's.
    """
    wanted = frozenset(_deployment(text) for text in deployments) or None
    if wanted is not None and allowed is not None and not wanted <= allowed:
        raise Refused(Reason.OUT_OF_SCOPE, f"deployment: {min(wanted - allowed)} is outside the key's scope.")
    tenant = asked.get("tenant")
    if has_bad_text(tenant):
        raise Refused(Reason.BAD_PARAMETER, f"tenant: {quote(tenant)} holds a NUL or a lone surrogate. Remove it.")
    since, until = (_instant(name, asked.get(name), now) for name in ("since", "until"))
    if since and until and since > until:
        period = f"since: {quote(asked.get('since'))} is later than until, {quote(asked.get('until'))}"
        raise Refused(Reason.BAD_PARAMETER, f"{period}. Swap them.")
    return Scope(
        since=since,
        until=until,
        surface=_one_of("surface", asked.get("surface"), SURFACES),
        deployments=allowed if wanted is None else wanted,
        tenant=tenant,
        interval=_one_of("interval", asked.get("interval"), INTERVALS),
    )


def csv_chunks(reader: Reader, name: str, *, guard: bool = True) -> Iterator[bytes]:
    """A report as CSV (RFC 4180): one header line, times in ISO 8601 with Z, null as nothing.

    Args:
        reader: with the scope.
        name: a report's; check it with `known_name`.
        guard: put an apostrophe before text that a spreadsheet would take for a formula.
    """
    columns = [column.name for column in reader.columns(name)]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    for rows in reader.rows(name):
        writer.writerows([_cell(value, guard) for value in row] for row in rows)
        yield _take(text)
    yield _take(text)


def json_chunks(reader: Reader, name: str) -> Iterator[bytes]:
    """A report as a JSON array of row objects, times in ISO 8601 with Z."""
    columns = [column.name for column in reader.columns(name)]
    opening = b"["
    for rows in reader.rows(name):
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        yield opening + orjson.dumps(objects, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)[1:-1]
        opening = b","
    yield b"[]" if opening == b"[" else b"]"


def _describe(reader: Reader, name: str) -> Report:
    title, question, grain = reader.comment(name).splitlines()
    columns = []
    for column in reader.columns(name):
        comment = _COLUMN_COMMENT.match(column.comment)
        description, unit = comment.group("description", "unit") if comment else (column.comment, None)
        columns.append(ReportColumn(column.name, _TYPES.get(column.type, "string"), unit or "", description))
    return Report(name, title, question, grain, columns)


def _cell(value: Any, guard: bool) -> Any:
    if isinstance(value, str):
        return f"'{value}" if guard and value.startswith(_FORMULA_STARTS) else value
    if isinstance(value, datetime):
        return f"{value.isoformat()}Z"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _take(text: io.StringIO) -> bytes:
    taken = text.getvalue().encode()
    text.seek(0)
    text.truncate()
    return taken


def _deployment(text: str | int) -> int:
    try:
        return parse_deployment(str(text))
    except Misconfigured as error:
        raise Refused(Reason.BAD_PARAMETER, str(error)) from None


def _one_of(name: str, value: str | None, allowed: tuple[str, ...]) -> str | None:
    if value is not None and value not in allowed:
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(value)} is not one of {', '.join(allowed)}.")
    return value


def _instant(name: str, text: str | None, now: Callable[[], datetime]) -> datetime | None:
    """ISO 8601, in UTC where it names no zone; or a span such as `7d`, which means that long ago."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = _ago(name, text, now())
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        return aware.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise _no_instant(name, text) from None


def _ago(name: str, text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(seconds=parse_duration(text))
    except (Misconfigured, OverflowError):
        raise _no_instant(name, text) from None


def _no_instant(name: str, text: str) -> Refused:
    forms = "2026-11-01, 2026-11-01T09:30Z or 7d"
    return Refused(Reason.BAD_PARAMETER, f"{name}: {quote(text)} is no time. Write it like {forms}.")
