"""The scope of a report: parsed from parameters, and passed to the views as session variables."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from embedsink.auth.parsing import parse_deployment, parse_duration
from embedsink.errors import PREVIEW_CHARACTERS_MAX, Misconfigured, Refused, preview
from embedsink.key_scope import EVERYTHING, KeyScope
from embedsink.reasons import Reason
from embedsink.reports.parameters import parse_choice, parse_text
from embedsink.store.timezones import naive_utc, timezone_names, utc_of

SURFACES = ("dashboard", "app", "chat")  # as in protocol/messages.py, which takes long to import
_VENDOR = re.compile(r"[a-z0-9-]{1,32}")  # as in protocol/messages.py
INTERVALS = ("hour", "day", "week", "month")
TIME_EXAMPLES = "7d, 2026-11-01, 2026-11-01T09:30Z"
INTERNAL = ("exclude", "include", "only")
PARAMETERS = ("since", "until", "surface", "deployment", "tenant", "vendor", "internal", "interval", "timezone")
# The parameters that relate events to the directory. Only a few reports have them (`catalog.reports_with_dimensions`).
DIRECTORY_PARAMETERS = ("by", "department", "group")
DIMENSIONS = ("department", "group")
# The minimum similarity of a suggested time zone: "berlin" suggests Europe/Berlin, but "posixrules" does not suggest
# Asia/Jerusalem.
_SIMILARITY_MIN = 0.51
# The placeholder of the IANA database for a machine whose time zone is not set.
_UNSET_ZONE = "Factory"
# A date, or a time of RFC 3339 whose seconds and offset are optional. Other forms of ISO 8601, such as weeks, ordinal
# days and times without colons, are not portable.
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)?"
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The filter of events, and the length of periods. A filter of None selects all events.

    Args:
        since: the start of the period, in UTC.
        until: the end of the period, exclusive, in UTC.
        surface: one of `SURFACES`.
        deployments: the deployments.
        tenant: one tenant.
        tenants: the tenants that the reader's key is limited to; None for all.
        vendor: the vendor of the embed.
        internal: one of `INTERNAL`: whether events of internal people count; None means `exclude`.
        shows_names: whether rows contain the names of people in the directory.
        dimensions: the requested ones of `DIMENSIONS`; empty for none.
        department, viewer_group: the department and the group of the viewers in the directory.
        interval: one of `INTERVALS`; None means a day.
        timezone: the IANA time zone in which days begin; None means UTC.
        is_relative: whether `since` or `until` was an age such as `7d`.
        hides_ingest_seq: whether the column `ingest_seq` is hidden. It would show a limited key how much others send.
    """

    since: datetime | None = None
    until: datetime | None = None
    surface: str | None = None
    deployments: frozenset[int] | None = None
    tenant: str | None = None
    tenants: frozenset[str] | None = None
    vendor: str | None = None
    internal: str | None = None
    shows_names: bool = True
    dimensions: tuple[str, ...] = ()
    department: str | None = None
    viewer_group: str | None = None
    interval: str | None = None
    timezone: str | None = None
    is_relative: bool = False
    hides_ingest_seq: bool = False

    @property
    def uses_directory(self) -> bool:
        """Whether rows depend on the departments or groups of viewers."""
        return bool(self.dimensions) or self.department is not None or self.viewer_group is not None

    def variables(self) -> dict[str, object]:
        """Return the session variables that the views read."""
        variables = asdict(self) | KeyScope(self.deployments, self.tenants, self.shows_names).variables()
        del variables["is_relative"]  # No view reads it.
        return variables

    def local_time(self, instant: datetime) -> datetime:
        """Return the local time, in the scope's time zone, of an instant in UTC.

        Return the instant unchanged if the local time would be outside the years 1 to 9999.
        """
        zone = UTC if self.timezone is None else ZoneInfo(self.timezone)
        try:
            return instant.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
        except OverflowError:
            return instant


def parse_scope(
    params: Mapping[str, str | None],
    *,
    deployments: Iterable[str | int] = (),
    allowed: KeyScope = EVERYTHING,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Scope:
    """Parse the parameters of a scope.

    Args:
        params: the parameters in `PARAMETERS` and `DIRECTORY_PARAMETERS`, except deployment; None if missing.
        deployments: the requested deployments. Empty means all that are allowed.
        allowed: the scope of the reader's key.
        now: the clock, for ages such as `7d`.

    Raises:
        Refused: a parameter is invalid (reason `bad_parameter`), or a deployment or a tenant is outside the key's scope
            (`out_of_scope`).
    """
    requested_deployments = _parse_deployments(deployments, allowed.deployments)
    tenant = parse_text("tenant", params.get("tenant"))
    if tenant is not None and not allowed.allows_tenant(tenant):
        raise Refused(Reason.OUT_OF_SCOPE, f"tenant: {preview(tenant)} is outside the key's scope.")
    since, until = params.get("since"), params.get("until")
    timezone = _parse_timezone(params.get("timezone"))
    start = _parse_time_or_age("since", since, timezone, now)
    end = _parse_time_or_age("until", until, timezone, now)
    if start and end and start > end:
        raise Refused(
            Reason.BAD_PARAMETER, f"since: {preview(since)} is later than until, {preview(until)}. Swap them."
        )
    return Scope(
        since=start,
        until=end,
        surface=parse_choice("surface", params.get("surface"), SURFACES),
        deployments=requested_deployments,
        tenant=tenant,
        tenants=allowed.tenants,
        vendor=_parse_vendor(params.get("vendor")),
        internal=parse_choice("internal", params.get("internal"), INTERNAL),
        shows_names=allowed.shows_names,
        dimensions=_parse_dimensions(params.get("by")),
        department=parse_text("department", params.get("department")),
        viewer_group=parse_text("group", params.get("group")),
        interval=parse_choice("interval", params.get("interval"), INTERVALS),
        timezone=timezone,
        hides_ingest_seq=allowed.is_limited,  # It would show how much others send.
        is_relative=_is_age(since) or _is_age(until),
    )


def _parse_vendor(text: str | None) -> str | None:
    """Parse the name of a vendor. Return None for None.

    Raises:
        Refused: no vendor can have this name (reason `bad_parameter`).
    """
    if text is not None and not _VENDOR.fullmatch(text):
        example = "Names consist of 1 to 32 lowercase letters, digits and hyphens, such as looker."
        raise Refused(Reason.BAD_PARAMETER, f"vendor: {preview(text)} is not the name of a vendor. {example}")
    return text


def _parse_dimensions(text: str | None) -> tuple[str, ...]:
    """Parse a list of dimensions such as `department,group`. Return an empty tuple for None.

    Raises:
        Refused: a dimension does not exist or is listed twice (reason `bad_parameter`).
    """
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    for index, name in enumerate(names):
        parse_choice("by", name, DIMENSIONS)
        if name in names[:index]:
            raise Refused(Reason.BAD_PARAMETER, f"by: {preview(name)} is listed twice. Give it once.")
    return names


@cache
def timezones() -> frozenset[str]:
    """Return the names of the time zones that both the IANA database (the package tzdata) and DuckDB have."""
    iana_names = files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
    # `_UNSET_ZONE` is in both, but it only marks a machine whose time zone is not set.
    return (timezone_names() & frozenset(iana_names)) - {_UNSET_ZONE}


def _parse_timezone(name: str | None) -> str | None:
    """Return the name unchanged. Raise Refused, with a suggestion, if no time zone has this name."""
    if name is None or name in timezones():
        return name
    # Comparing long texts is slow, and no time zone has a name that long.
    similar = get_close_matches(name[:PREVIEW_CHARACTERS_MAX], sorted(timezones()), n=1, cutoff=_SIMILARITY_MIN)
    # `_UNSET_ZONE` is not a misspelt name, so don't suggest a similar one.
    advice = f'Did you mean "{similar[0]}"?' if similar and name != _UNSET_ZONE else "Example: Europe/Berlin."
    raise Refused(Reason.BAD_PARAMETER, f"timezone: {preview(name)} is not a time zone of the IANA database. {advice}")


def _parse_deployments(requested: Iterable[str | int], allowed: frozenset[int] | None) -> frozenset[int] | None:
    """Return the requested deployments. If none is requested, return the allowed ones (None for all).

    Raises:
        Refused: a deployment is invalid (reason `bad_parameter`) or not allowed (`out_of_scope`).
    """
    deployments = frozenset(_parse_deployment(text) for text in requested)
    if not deployments:
        return allowed
    if allowed is not None and not deployments <= allowed:
        raise Refused(Reason.OUT_OF_SCOPE, f"deployment: {min(deployments - allowed)} is outside the key's scope.")
    return deployments


def _parse_deployment(text: str | int) -> int:
    """Return the number of a deployment. Raise Refused if it is invalid (reason `bad_parameter`)."""
    try:
        return parse_deployment(str(text))
    except Misconfigured as error:
        raise Refused(Reason.BAD_PARAMETER, str(error)) from None


def parse_instant(name: str, text: str | None) -> datetime | None:
    """Parse a time like `since`: a date, RFC 3339, or an age such as `7d`. Return the time in UTC; None for None.

    Raises:
        Refused: the text has none of these forms, or the time is outside the calendar (reason `bad_parameter`).
    """
    return _parse_time_or_age(name, text, timezone=None, now=lambda: datetime.now(UTC))


def _parse_time_or_age(
    name: str, text: str | None, timezone: str | None, now: Callable[[], datetime]
) -> datetime | None:
    """Parse a time or an age. Return it in UTC; None for None. A time without an offset is in the zone `timezone`.

    Raises:
        Refused: the text is neither a time nor an age, or the time is outside the calendar (reason `bad_parameter`).
    """
    if text is None:
        return None
    instant = _parse_time(text) or _parse_age(name, text, now())
    try:
        if instant.tzinfo is not None:
            return naive_utc(instant)
        return instant if timezone is None else utc_of(instant, timezone)
    except OverflowError:
        message = f"{name}: {preview(text)} is outside the years 1 to 9999 in UTC. Choose a time in that range."
        raise Refused(Reason.BAD_PARAMETER, message) from None


def _is_age(text: str | None) -> bool:
    """Return whether a validated text is an age such as `7d` instead of a time; False for None."""
    return text is not None and _parse_time(text) is None


def _parse_time(text: str) -> datetime | None:
    """Parse a date or a time. Return None for other texts, such as ages."""
    try:
        return datetime.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:
        return None  # Such as 30 February.


def _parse_age(name: str, text: str, now: datetime) -> datetime:
    """Return the time that is this age before now. Raise Refused if the text is not an age."""
    try:
        return now - timedelta(seconds=parse_duration(text))
    except (Misconfigured, OverflowError):
        raise _not_a_time_error(name, text) from None


def _not_a_time_error(name: str, text: str) -> Refused:
    """Return the error for a text that is neither a time nor an age."""
    # An unescaped + in a URL is decoded as a space.
    has_lost_plus = " " in text and _TIME.fullmatch(text.replace(" ", "+"))
    advice = " In a URL, write + as %2B." if has_lost_plus else ""
    return Refused(Reason.BAD_PARAMETER, f"{name}: {preview(text)} is not a time. Examples: {TIME_EXAMPLES}.{advice}")
