"""Hypothesis strategies for adversarial event histories, with few senders, sessions and instants.

The strategies cover edge cases: a session id in several deployments, keys, tenants, viewers and surfaces (iframes),
`ready` twice (a reload, a remount) or never, events without a session, equal instants, arrivals in no order, and
instants right at midnights and at the bounds of the period.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import duckdb
from hypothesis import strategies as st

from tests.support.rows import replace_events, variables

Scope = dict[str, Any]
NOW = datetime(2026, 11, 17, 10)
MICROSECOND = timedelta(microseconds=1)
# Midnight in Berlin is 23:00 in UTC, in Kathmandu 18:15.
INSTANTS = [
    datetime(2026, 11, 2, 10),
    datetime(2026, 11, 2, 10) + MICROSECOND,
    datetime(2026, 11, 2, 10, 5),
    datetime(2026, 11, 2, 18, 15) - MICROSECOND,
    datetime(2026, 11, 2, 18, 15),
    datetime(2026, 11, 2, 23),
    datetime(2026, 11, 3) - MICROSECOND,
    datetime(2026, 11, 3),
    datetime(2026, 11, 3, 10) - MICROSECOND,
    datetime(2026, 11, 3, 10),
]
# Times of clocks that were never set, and the time of the test.
WRONG_CLOCK_INSTANTS = [datetime(1969, 12, 31, 23, 50), datetime(1970, 1, 1, 0, 5), NOW]


@dataclass(frozen=True)
class Event:
    """A row of the table `event`."""

    type: str
    occurred_at: datetime = INSTANTS[0]
    ingest_seq: int = 0
    key_id: str = "k1"
    deployment: int | None = 1
    session: str | None = "s1"
    viewer: str | None = None
    tenant: str | None = None
    surface: str = "dashboard"
    mode: str | None = None
    status: str | None = None
    fatal: bool | None = None
    is_internal: bool | None = None
    vendor: str | None = None


def events_in_scope(history: Sequence[Event], scope: Scope) -> list[Event]:
    """Return the events in scope, with the values that `ready` supplies. This is the oracle of event_in_scope."""
    resolved = [_resolved(event, history) for event in history]
    return [
        event
        for event in resolved
        if ("deployments" not in scope or event.deployment in scope["deployments"])
        and scope.get("surface", event.surface) == event.surface
        and scope.get("tenant", event.tenant) == event.tenant
        and scope.get("vendor", event.vendor) == event.vendor
        and {"include": True, "only": bool(event.is_internal)}.get(scope.get("internal", ""), not event.is_internal)
        and scope.get("since", datetime.min) <= event.occurred_at < scope.get("until", datetime.max)
    ]


def _resolved(event: Event, history: Sequence[Event]) -> Event:
    ready_values = {
        name: {getattr(ready, name) for ready in history if _is_ready_of(ready, event)} - {None}
        for name in ("deployment", "tenant")
    }
    supplied = {
        name: values.pop() for name, values in ready_values.items() if getattr(event, name) is None and len(values) == 1
    }
    return Event(**asdict(event) | supplied)


def _is_ready_of(ready: Event, event: Event) -> bool:
    return (
        ready.type == "ready"
        and event.session is not None
        and (ready.key_id, ready.session) == (event.key_id, event.session)
    )


def time_spent_s(instants: Iterable[datetime], scope: Scope) -> float:
    """Return the sum of the gaps between instants, without gaps above the limit in scope: the oracle of time spent."""
    gap_max = timedelta(minutes=scope.get("session_gap_minutes", 30))
    gaps = [later - earlier for earlier, later in pairwise(sorted(instants))]
    return sum((gap for gap in gaps if gap <= gap_max), timedelta()) / timedelta(seconds=1)


def single_value(values: Iterable[object]) -> Any:
    """Return the value if all known values are equal, else None."""
    known_values = set(values) - {None}
    return known_values.pop() if len(known_values) == 1 else None


def report_rows(
    connection: duckdb.DuckDBPyConnection, report: str, history: Sequence[Event], scope: Scope
) -> list[tuple[Any, ...]]:
    """Replace the events, and return the report's rows in its order."""
    # Insert in reverse order, so that a report can't rely on the table's order instead of ingest_seq.
    replace_events(connection, map(asdict, reversed(history)))
    return rows_in_scope(connection, report, scope)


def rows_in_scope(connection: duckdb.DuckDBPyConnection, report: str, scope: Scope) -> list[tuple[Any, ...]]:
    with variables(connection, {"now": NOW} | scope):
        return connection.table(report).fetchall()


_kinds = st.sampled_from(
    [
        *[{"type": "ready", "mode": mode} for mode in ("signed", "signed", "private")],
        *[
            {"type": kind}
            for kind in ("view", "view", "navigate", "dashboard-loaded", "download", "drilldown", "x-filter")
        ],
        *[{"type": "ai-query", "status": status} for status in ("submitted", "completed", "error")],
        *[{"type": "error", "fatal": fatal} for fatal in (True, False, None)],
    ]
)
# Most events belong to a few sessions. Some share a session id but have another deployment or key.
_senders = st.sampled_from(
    [
        *[{"session": session} for session in ("s1", "s1", "s1", "s2", "s3")],
        *[{"session": "s1", **other} for other in ({"deployment": 2}, {"key_id": "k2"}, {"deployment": None})],
        {"session": "s2", "key_id": "k2", "deployment": None},
        {"session": "s4", "deployment": None},
        {"session": "s4", "deployment": None},
        {"session": ""},
        {"session": None},
    ]
)
_events = st.builds(
    lambda kind, sender, **fields: Event(**fields, **sender, **kind),
    kind=_kinds,
    sender=_senders,
    occurred_at=st.sampled_from(INSTANTS * 3 + WRONG_CLOCK_INSTANTS),
    viewer=st.sampled_from([None, "u1", "u1", "u2"]),
    tenant=st.sampled_from([None, None, "acme", "acme", "initech"]),
    surface=st.sampled_from(["dashboard", "dashboard", "app", "chat"]),
    is_internal=st.sampled_from([None, None, None, True]),
    vendor=st.sampled_from([None, None, "looker", "looker", "sigma"]),
)
histories = st.lists(_events, min_size=4, max_size=40).map(
    lambda events: [Event(**asdict(event) | {"ingest_seq": ingest_seq}) for ingest_seq, event in enumerate(events)]
)
_bounds = st.sampled_from(INSTANTS)
scopes = st.fixed_dictionaries(
    {},
    optional={
        "since": _bounds,
        "until": _bounds | st.just(NOW + timedelta(days=30)),
        "surface": st.sampled_from(["dashboard", "app"]),
        "deployments": st.lists(st.sampled_from([1, 2]), max_size=2),
        "tenant": st.just("acme"),
        "internal": st.sampled_from(["exclude", "include", "only"]),
        "vendor": st.just("looker"),
        "interval": st.sampled_from(["hour", "week"]),
        "timezone": st.sampled_from(["Europe/Berlin", "Asia/Kathmandu", "America/New_York"]),
        # The last three are gaps between the instants, to the microsecond.
        "session_gap_minutes": st.sampled_from([15, 60, 600, 1_440]),
    },
)
