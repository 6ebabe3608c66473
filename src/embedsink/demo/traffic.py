"""The deliveries of simulated visits: in every format, with retries, wrong clocks and invalid envelopes.

The same seed and the same time give the same traffic.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, islice, repeat
from random import Random
from typing import Any, Literal

import orjson

from embedsink.demo.fixtures import DEPLOYMENTS, USER_AGENTS
from embedsink.demo.trends import BEHAVIOUR_NOW, DAY_MS, DAYS, WORKING_DAY_VISITS, Calendar
from embedsink.demo.visits import (
    Envelope,
    Visit,
    make_unusual_visit,
    make_view,
    make_visit,
    new_session_id,
    stratified_draws,
)
from embedsink.reasons import Reason

BodyFormat = Literal["delivery", "envelope", "array", "ndjson", "truncated"]

SEED = 20
# The number of visits at a time in the live traffic.
LIVE_VISITS = 6
LIVE_INVALID_SHARE = 0.015
# The first kinds of `_invalid_envelopes` are frequent.
FREQUENT_INVALID_KINDS = 6
# Each frequent kind is sent this many additional times. The other kinds are sent once.
FREQUENT_INVALID_REPEATS = 4
# Every seventh visit has an invalid delivery, until all are sent.
INVALID_SPACING = 7
MINUTE_MS = 60_000
_BODY_FORMATS: tuple[BodyFormat, ...] = ("delivery", "envelope", "array", "ndjson")
_BODY_FORMAT_WEIGHTS = (94, 2, 2, 2)
# Visits by hour of a working day, UTC.
_HOUR_WEIGHTS = (1, 1, 1, 1, 1, 2, 4, 9, 15, 18, 17, 14, 10, 14, 17, 16, 13, 9, 6, 4, 3, 2, 2, 1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request body, and how a browser sends it.

    Args:
        envelopes: the envelopes. An invalid envelope may be any JSON value.
        origin: the origin of the page that sends it.
        lost: the lost events that the forwarder reports, by cause.
        is_plain_text: whether it is sent as `text/plain` instead of `application/json`.
        is_beacon: whether it is sent while the page closes: as `text/plain`, with the key in the body.
        skew_ms: how far the client's clock is ahead.
        expected_reasons: one reason for each envelope that the server has to quarantine.
    """

    envelopes: list[Any]
    origin: str
    user_agent: str = USER_AGENTS[0]
    body_format: BodyFormat = "delivery"
    context: dict[str, Any] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    is_plain_text: bool = False
    is_beacon: bool = False
    is_gzipped: bool = False
    is_retry: bool = False
    skew_ms: int = 0
    expected_reasons: tuple[Reason, ...] = ()

    def __str__(self) -> str:
        """Describe the first envelope: the type, and the surface and the tenant if there are any."""
        first_envelope = self.envelopes[0] if isinstance(self.envelopes[0], dict) else {}
        type_ = str(first_envelope.get("type", "?")).removeprefix("svc:")
        parts = (type_, first_envelope.get("surface"), self.context.get("tenant"))
        return " · ".join(part for part in parts if part)

    @property
    def media_type(self) -> str:
        """The value of the `Content-Type` header."""
        if self.body_format == "ndjson":
            return "application/x-ndjson"
        return "text/plain;charset=UTF-8" if self.is_plain_text or self.is_beacon else "application/json"

    def body(self, sent_at_ms: int, key: str) -> bytes:
        """Return the request body, compressed if `is_gzipped` is set."""
        uncompressed = self._uncompressed_body(sent_at_ms, key)
        # Without `mtime=0`, the compressed body would contain the current time.
        return gzip.compress(uncompressed, mtime=0) if self.is_gzipped else uncompressed

    def _uncompressed_body(self, sent_at_ms: int, key: str) -> bytes:
        """Return the request body in the body format."""
        match self.body_format:
            case "envelope":
                return orjson.dumps(self.envelopes[0])
            case "array":
                return orjson.dumps(self.envelopes)
            case "ndjson":
                return b"\n".join(map(orjson.dumps, self.envelopes))
            case "truncated":
                # Only the first half, as if a proxy had cut the body.
                whole = orjson.dumps(self.envelopes)
                return whole[: len(whole) // 2]
            case "delivery":
                return self._delivery_json(sent_at_ms, key)

    def _delivery_json(self, sent_at_ms: int, key: str) -> bytes:
        """Return the envelopes with their context, as the forwarder (embedsink's browser module) sends them."""
        members: dict[str, Any] = {
            "sentAt": sent_at_ms + self.skew_ms,  # by the client's clock
            "context": self.context,
            "events": self.envelopes,
        }
        if self.lost:
            members["lost"] = self.lost
        if self.is_beacon:
            members["key"] = key  # A beacon can't set the `Authorization` header.
        return orjson.dumps(members)


def make_traffic(now_ms: int, *, seed: int = SEED, days: int = DAYS) -> list[list[Delivery]]:
    """Return the deliveries of the last days, in a list for each visit. Add invalid deliveries to some visits.

    Args:
        now_ms: epoch milliseconds; no event is later.
        days: the number of periods of 24 hours.
    """
    rng = _rng(seed)
    visits = (_remove_future(visit, now_ms) for visit in _past_visits(now_ms, seed, days))
    deliveries_by_visit = [_deliveries_of(visit) for visit in visits]
    invalid_deliveries = _invalid_deliveries(rng, now_ms)
    for _ in range(FREQUENT_INVALID_REPEATS):
        invalid_deliveries += _frequent_invalid_deliveries(rng, now_ms)
    for index, delivery in enumerate(invalid_deliveries):
        visit_index = index * INVALID_SPACING % len(deliveries_by_visit)  # Start over if there are too few visits.
        deliveries_by_visit[visit_index].append(delivery)
    # The last visit is sent long after the earlier envelope with the same id, which is in one of the first visits.
    deliveries_by_visit[-1].append(_id_conflict_delivery(deliveries_by_visit))
    return deliveries_by_visit


def make_live(seed: int) -> Iterator[Delivery]:
    """Yield, endlessly, the envelopes of LIVE_VISITS concurrent visits, each in its own delivery.

    A few deliveries are invalid and belong to no visit. An invalid delivery may also have a valid envelope.

    The timestamps begin at 0. Replace them with `with_timestamp` before sending.
    """
    rng = _rng(seed)
    new_visits = endless_visits(rng, repeat(0))
    open_visits = list(islice(new_visits, LIVE_VISITS))
    while True:
        if rng.random() < LIVE_INVALID_SHARE:
            yield rng.choice(_frequent_invalid_deliveries(rng, 0))
        index = rng.randrange(len(open_visits))
        visit = open_visits[index]
        next_envelope = visit.envelopes.pop(0)
        yield Delivery([next_envelope], visit.deployment.origin, context=visit.context)
        if not visit.envelopes:
            open_visits[index] = next(new_visits)


def endless_visits(rng: Random, start_times_ms: Iterator[int], *, length_factor: float = 1.0) -> Iterator[Visit]:
    """Yield, endlessly, visits with the behaviour of today's viewers.

    Args:
        rng: the random number generator.
        start_times_ms: an endless iterator of the starts of visits, in epoch milliseconds.
        length_factor: multiplies the length of each visit.
    """
    while True:
        # As many draws as a working day has, so that the mix of visits is that of the past days.
        for draws in stratified_draws(rng, WORKING_DAY_VISITS):
            scaled_draws = draws._replace(length=draws.length * length_factor)
            yield make_visit(rng, next(start_times_ms), BEHAVIOUR_NOW, scaled_draws)


def with_timestamp(delivery: Delivery, now_ms: int) -> Delivery:
    """Return a delivery whose envelopes have the timestamp `now_ms`.

    Timestamps that are not integers are retained: they are among the mistakes of `_invalid_envelopes`.
    """

    def replace_timestamp(envelope: Any) -> Any:
        has_integer_timestamp = isinstance(envelope, dict) and isinstance(envelope.get("timestamp"), int)
        return {**envelope, "timestamp": now_ms} if has_integer_timestamp else envelope

    return replace(delivery, envelopes=[replace_timestamp(envelope) for envelope in delivery.envelopes])


def _rng(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311 (not secret)


def _past_visits(now_ms: int, seed: int, days: int) -> Iterator[Visit]:
    """Yield the visits of the last days, the earliest day first, then a visit that exports unusually many rows.

    Each visit has a separate random number generator, so that skipping a visit does not change the other visits.
    """
    calendar = Calendar(now_ms)
    first_ms = now_ms - days * DAY_MS
    # The first calendar day is only partly within the last `days` periods of 24 hours.
    for days_ago in range(days, -1, -1):
        day_rng = _rng(f"visit {seed} {days_ago}")
        for index, draws in enumerate(stratified_draws(day_rng, calendar.visit_count(days_ago))):
            rng = _rng(f"visit {seed} {days_ago} {index}")
            started_at_ms = _epoch_ms(calendar.day(days_ago) + _time_of_day(rng))
            # Skip visits that began less than a minute ago: they would have hardly any events.
            if first_ms <= started_at_ms < now_ms - MINUTE_MS:
                yield make_visit(rng, started_at_ms, calendar.behaviour_at(started_at_ms), draws)
    exported_at_ms = _epoch_ms(calendar.exported_at)
    if first_ms <= exported_at_ms:
        rng = _rng(f"visit {seed} unusual")
        yield make_unusual_visit(rng, exported_at_ms, calendar.behaviour_at(exported_at_ms))


def _time_of_day(rng: Random) -> timedelta:
    """Return a random time since midnight, with more visits in working hours."""
    [hour] = rng.choices(range(24), _HOUR_WEIGHTS)
    return timedelta(hours=hour, minutes=rng.uniform(0, 60))


def _epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _remove_future(visit: Visit, now_ms: int) -> Visit:
    """Remove the envelopes after now from a visit, and return the visit."""
    visit.envelopes = [envelope for envelope in visit.envelopes if envelope["timestamp"] <= now_ms]
    return visit


def _deliveries_of(visit: Visit) -> list[Delivery]:
    """Return the deliveries of a visit.

    Most pages use the forwarder, embedsink's browser module. A few pages send envelopes in another format.
    """
    rng, origin = visit.rng, visit.deployment.origin
    user_agent = rng.choice(USER_AGENTS)
    [body_format] = rng.choices(_BODY_FORMATS, _BODY_FORMAT_WEIGHTS)
    match body_format:
        case "delivery":
            return _forwarder_deliveries(visit, user_agent)
        case "envelope":
            return [
                Delivery([_without_forwarder_fields(envelope)], origin, user_agent, "envelope")
                for envelope in visit.envelopes
            ]
        case _:  # "array" or "ndjson"
            return [Delivery(visit.envelopes, origin, user_agent, body_format, is_gzipped=rng.random() < 0.3)]


def _forwarder_deliveries(visit: Visit, user_agent: str) -> list[Delivery]:
    """Return the deliveries that the forwarder, embedsink's browser module, sends in a visit.

    Some deliveries are repeated as retries, and some visits have a client with a wrong clock.
    """
    rng = visit.rng
    has_wrong_clock = rng.random() < 0.07
    skew_ms = rng.choice((-3 * DAY_MS, -7 * MINUTE_MS, 11 * MINUTE_MS, DAY_MS)) if has_wrong_clock else 0
    queue = [{**envelope, "timestamp": envelope["timestamp"] + skew_ms} for envelope in visit.envelopes]
    deliveries = []
    while queue:
        count = rng.choice((1, 2, 3, 5, 8, 12))
        batch, queue = queue[:count], queue[count:]
        is_last = not queue
        lost = {"queue_overflow": rng.randint(1, 4)} if rng.random() < 0.01 else {}
        delivery = Delivery(
            batch,
            visit.deployment.origin,
            user_agent,
            context=visit.context,
            lost=lost,
            is_plain_text=rng.random() < 0.2,
            is_beacon=is_last and rng.random() < 0.5,
            is_gzipped=rng.random() < 0.3,
            skew_ms=skew_ms,
        )
        deliveries.append(delivery)
        is_response_lost = rng.random() < 0.05
        if is_response_lost:
            # The server has stored the delivery, so the retry has duplicates. Losses count once, so omit them.
            deliveries.append(replace(delivery, is_retry=True, lost={}))
    return deliveries


def _without_forwarder_fields(envelope: Envelope) -> Envelope:
    """Return an envelope as the embed posts it to the page: without `id` and `seq`, which the forwarder adds."""
    return {name: value for name, value in envelope.items() if name not in ("id", "seq")}


def _frequent_invalid_deliveries(rng: Random, now_ms: int) -> list[Delivery]:
    """Return a delivery for each of the frequent mistakes."""
    return _invalid_deliveries(rng, now_ms)[:FREQUENT_INVALID_KINDS]


def _invalid_deliveries(rng: Random, now_ms: int) -> list[Delivery]:
    """Return a delivery for each mistake that real embeds and pages make, the frequent mistakes first."""
    # Any recent time. Live traffic passes 0 as `now_ms`, and the id (UUIDv7) of a view can't have a negative time.
    at_ms = max(now_ms - 3 * 60 * MINUTE_MS, 0)
    deliveries = []
    for reason, envelope in _invalid_envelopes(rng, at_ms):
        deployment = rng.choice(DEPLOYMENTS)
        context = {"deployment": deployment.number, "session": new_session_id(rng)}
        # Half of the deliveries also have a valid envelope, so the server answers 202 instead of 422.
        valid_envelopes = [make_view(rng, at_ms)] if rng.random() < 0.5 else []
        envelopes = [*valid_envelopes, envelope]
        deliveries.append(Delivery(envelopes, deployment.origin, context=context, expected_reasons=(reason,)))
    truncated_delivery = Delivery(
        [make_view(rng, at_ms)],
        DEPLOYMENTS[0].origin,
        body_format="truncated",
        expected_reasons=(Reason.NOT_JSON,),
    )
    return [*deliveries, truncated_delivery]


def _invalid_envelopes(rng: Random, at_ms: int) -> list[tuple[Reason, Any]]:
    """Return invalid envelopes, each with the reason for which the server quarantines it.

    The first FREQUENT_INVALID_KINDS are the frequent ones.
    """

    def view(**changed_fields: Any) -> Envelope:
        return make_view(rng, at_ms) | changed_fields

    download = {"format": "doc", "target": "dashboard"}
    return [
        (Reason.BAD_FIELD, view(type="svc:event:download", surface="dashboard", payload=download)),
        (Reason.UNKNOWN_TYPE, view(type="svc:event:share", payload={"to": "team"})),
        (Reason.WRONG_SOURCE, view(source="react-devtools-bridge")),
        (Reason.WRONG_SURFACE, view(type="svc:event:drilldown", payload={"member": "orders.count"})),
        (Reason.BAD_TIMESTAMP, view(timestamp="yesterday")),
        (Reason.WRONG_DIRECTION, view(direction="both")),
        (Reason.BAD_FIELD, view(payload={"surface": "app"})),
        (Reason.BAD_FIELD, view(type="svc:event:ready", payload={"embedTenant": None, "deploymentId": "12"})),
        (Reason.UNKNOWN_TYPE, view(type="svc:event:comment", payload={"text": "Looks odd"})),
        (Reason.BAD_TEXT, view(payload={"surface": "app", "path": "/home\0"})),
        (Reason.NOT_AN_OBJECT, "[object Object]"),
        (Reason.TOO_LARGE, view(type="svc:event:error", payload={"message": "at render " * 7_000})),
    ]


def _id_conflict_delivery(deliveries_by_visit: list[list[Delivery]]) -> Delivery:
    """Return a delivery with the id of an earlier envelope, but another timestamp.

    The server's response accepts it, because only the loader detects the conflict.
    """
    deliveries = chain.from_iterable(deliveries_by_visit)
    earlier_delivery = next(delivery for delivery in deliveries if _is_ordinary_delivery(delivery))
    envelope = earlier_delivery.envelopes[0]
    changed_envelope = {**envelope, "timestamp": envelope["timestamp"] + 1}
    return Delivery(
        [changed_envelope],
        earlier_delivery.origin,
        earlier_delivery.user_agent,
        context=earlier_delivery.context,
        is_plain_text=earlier_delivery.is_plain_text,
        expected_reasons=(Reason.ID_CONFLICT,),
    )


def _is_ordinary_delivery(delivery: Delivery) -> bool:
    """Return whether a delivery has the format of embedsink's forwarder, only valid envelopes, and a correct clock."""
    return delivery.body_format == "delivery" and delivery.skew_ms == 0 and not delivery.expected_reasons
