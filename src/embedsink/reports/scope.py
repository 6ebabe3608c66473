"""Through which scope reports are seen: from what a person typed to the session variables that the views read."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from embedsink.auth.parsing import parse_deployment, parse_duration
from embedsink.errors import QUOTE_CHARACTERS_MAX, Misconfigured, Refused, quote
from embedsink.protocol.strict_json import has_bad_text
from embedsink.reasons import Reason
from embedsink.store.timezones import timezone_names, utc_of

SURFACES = ("dashboard", "app", "chat")
INTERVALS = ("hour", "day", "week", "month")
TIME_FORMS = "2026-11-01, 2026-11-01T09:30, 2026-11-01T09:30:00Z, 2026-11-01T09:30+02:00"
PARAMETERS = ("since", "until", "surface", "deployment", "tenant", "interval", "timezone")
# "berlin" is nearer to Europe/Berlin than this; "posixrules" is as near as that to Asia/Jerusalem, and means no place.
_ALIKE_MIN = 0.51
# The placeholder of the IANA database, for machines that were told none.
_NO_ZONE = "Factory"
# Of ISO 8601 what RFC 3339 has, and a date alone: weeks, ordinal days and times without colons are read differently by
# different programs. Seconds and the zone may be missing.
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)?"
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which events are seen, and in which periods. None bounds nothing; `until` is exclusive; times are UTC.

    `timezone` is where days begin at midnight; None for UTC. `is_relative` tells whether a time was asked for as a span
    back from now. `hides_ingest_seq` is for readers of some deployments: an arrival counts what others send.
    """

    since: datetime | None = None
    until: datetime | None = None
    surface: str | None = None
    deployments: frozenset[int] | None = None
    tenant: str | None = None
    interval: str | None = None
    timezone: str | None = None
    is_relative: bool = False
    hides_ingest_seq: bool = False

    def variables(self) -> dict[str, object]:
        """The session variables that the views read."""
        deployments = None if self.deployments is None else sorted(self.deployments)
        variables = asdict(self) | {"deployments": deployments}
        del variables["is_relative"]
        return variables

    def local(self, instant: datetime) -> datetime:
        """What the clocks show at an instant (UTC) where the scope's days begin; UTC's at the ends of time."""
        zone = UTC if self.timezone is None else ZoneInfo(self.timezone)
        try:
            return instant.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
        except OverflowError:
            return instant


def parse_scope(
    asked: Mapping[str, str | None],
    *,
    deployments: Iterable[str | int] = (),
    allowed: frozenset[int] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Scope:
    """A scope from what a person typed.

    Args:
        asked: since, until, surface, tenant, interval and timezone; None and missing are the same.
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
    timezone = _timezone(asked.get("timezone"))
    since, until = (_instant(name, asked.get(name), timezone, now) for name in ("since", "until"))
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
        timezone=timezone,
        hides_ingest_seq=allowed is not None,
        is_relative=any(_moment(asked.get(name)) is None for name in ("since", "until") if asked.get(name) is not None),
    )


@cache
def timezones() -> frozenset[str]:
    """The time zones that a reader may name: of the IANA database, and known to the engine."""
    pinned = files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
    return (timezone_names() & frozenset(pinned)) - {_NO_ZONE}


def _timezone(name: str | None) -> str | None:
    if name is None or name in timezones():
        return name
    # No name of a zone is as long as what is quoted of a wrong one, and comparing takes time.
    alike = get_close_matches(name[:QUOTE_CHARACTERS_MAX], sorted(timezones()), n=1, cutoff=_ALIKE_MIN)
    if name == _NO_ZONE:
        instead = "It says that nobody chose one. Write it like Europe/Berlin."
        raise Refused(Reason.BAD_PARAMETER, f"timezone: {quote(name)} is no place's time zone. {instead}")
    instead = f'Did you mean "{alike[0]}"?' if alike else "Write it like Europe/Berlin."
    raise Refused(Reason.BAD_PARAMETER, f"timezone: {quote(name)} is no time zone of the IANA database. {instead}")


def _deployment(text: str | int) -> int:
    try:
        return parse_deployment(str(text))
    except Misconfigured as error:
        raise Refused(Reason.BAD_PARAMETER, str(error)) from None


def _one_of(name: str, value: str | None, allowed: tuple[str, ...]) -> str | None:
    if value is not None and value not in allowed:
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(value)} is not one of {', '.join(allowed)}.")
    return value


def parse_instant(name: str, text: str | None) -> datetime | None:
    """A time as `since` takes it, in UTC: RFC 3339, or a span such as `7d`, that long ago.

    Raises:
        Refused: `bad_parameter`.
    """
    return _instant(name, text, None, lambda: datetime.now(UTC))


def _instant(name: str, text: str | None, timezone: str | None, now: Callable[[], datetime]) -> datetime | None:
    """RFC 3339, by the clocks of `timezone` where it names no zone; or a span such as `7d`: that long ago."""
    if text is None:
        return None
    moment = _moment(text) or _ago(name, text, now())
    try:
        if moment.tzinfo is None and timezone is not None:
            return utc_of(moment, timezone)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        outside = f"{name}: {quote(text)} lies outside of the years 1 to 9999 in UTC. Take a time within."
        raise Refused(Reason.BAD_PARAMETER, outside) from None


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text and _TIME.fullmatch(text) else None
    except ValueError:
        return None  # such as the 30th of February


def _ago(name: str, text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(seconds=parse_duration(text))
    except (Misconfigured, OverflowError):
        raise _no_instant(name, text) from None


def _no_instant(name: str, text: str) -> Refused:
    forms = f"{TIME_FORMS}, or like 7d, that long ago (s, m, h, d or w)"
    # What an address makes of the plus that its writer did not escape.
    lost = " In an address write + as %2B." if " " in text and _TIME.fullmatch(text.replace(" ", "+")) else ""
    return Refused(Reason.BAD_PARAMETER, f"{name}: {quote(text)} is no time. Write it like {forms}.{lost}")
