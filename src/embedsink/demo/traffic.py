"""How visits reach the server: deliveries in every format, with retries, wrong clocks and invalid envelopes.

The same seed and the same time give the same traffic.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, repeat
from random import Random
from typing import Any, Literal

import orjson

from embedsink.demo.fixtures import DEPLOYMENTS, USER_AGENTS
from embedsink.demo.trends import BEHAVIOUR_NOW, DAY_MS, DAYS, WORKING_DAY_VISITS, Calendar
from embedsink.demo.visits import Envelope, Visit, draw_evenly, make_unusual_visit, make_view, make_visit
from embedsink.reasons import Reason

Shape = Literal["delivery", "envelope", "array", "ndjson", "garbage"]

SEED = 20
LIVE_VISITS = 6
LIVE_INVALID_SHARE = 0.015
# The first invalid deliveries are the most frequent; the rest occur once.
FREQUENT_INVALID = 6
FREQUENT_INVALID_REPEATS = 4
MINUTE_MS = 60_000
_SHAPES: tuple[Shape, ...] = ("delivery", "envelope", "array", "ndjson")
_SHAPE_WEIGHTS = (94, 2, 2, 2)
# Visits by hour of a working day, UTC.
_HOUR_WEIGHTS = (1, 1, 1, 1, 1, 2, 4, 9, 15, 18, 17, 14, 10, 14, 17, 16, 13, 9, 6, 4, 3, 2, 2, 1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request body, and how a browser sends it.

    Args:
        origin: the origin of the page that sends it.
        lost: the lost events that the forwarder reports, by cause.
        is_beacon: sent while the page closes: as `text/plain`, with the key in the body.
        skew_ms: how far the client's clock is ahead.
        expected_reasons: one reason for each envelope that the server has to quarantine.
    """

    envelopes: list[Any]
    origin: str
    user_agent: str = USER_AGENTS[0]
    shape: Shape = "delivery"
    context: dict[str, Any] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    is_plain: bool = False
    is_beacon: bool = False
    is_gzipped: bool = False
    is_retry: bool = False
    skew_ms: int = 0
    expected_reasons: tuple[Reason, ...] = ()

    def __str__(self) -> str:
        """Describe its first envelope: type, surface and tenant."""
        first = self.envelopes[0] if isinstance(self.envelopes[0], dict) else {}
        words = (str(first.get("type", "?")).removeprefix("svc:"), first.get("surface"), self.context.get("tenant"))
        return " · ".join(word for word in words if word)

    @property
    def media_type(self) -> str:
        """The content type."""
        if self.shape == "ndjson":
            return "application/x-ndjson"
        return "text/plain;charset=UTF-8" if self.is_plain or self.is_beacon else "application/json"

    def body(self, sent_at_ms: int, key: str) -> bytes:
        """Return the bytes to send, compressed where `is_gzipped`."""
        plain = self._plain_body(sent_at_ms, key)
        return gzip.compress(plain, mtime=0) if self.is_gzipped else plain

    def _plain_body(self, sent_at_ms: int, key: str) -> bytes:
        match self.shape:
            case "envelope":
                return orjson.dumps(self.envelopes[0])
            case "array":
                return orjson.dumps(self.envelopes)
            case "ndjson":
                return b"\n".join(map(orjson.dumps, self.envelopes))
            case "garbage":
                # The first half, as from a proxy that truncates.
                whole = orjson.dumps(self.envelopes)
                return whole[: len(whole) // 2]
        parts: dict[str, Any] = {"sentAt": sent_at_ms + self.skew_ms, "context": self.context, "events": self.envelopes}
        if self.lost:
            parts["lost"] = self.lost
        if self.is_beacon:
            parts["key"] = key
        return orjson.dumps(parts)


def make_traffic(now_ms: int, *, seed: int = SEED, days: int = DAYS) -> list[list[Delivery]]:
    """Return the deliveries of the last days, in a list for each visit.

    Args:
        now_ms: epoch milliseconds; no event is later.
        days: the number of periods of 24 hours.
    """
    rng = _rng(seed)
    traffic = [_deliver(_until(visit, now_ms)) for visit in _visits(now_ms, seed, days)]
    invalid = _invalid_deliveries(rng, now_ms)
    for _ in range(FREQUENT_INVALID_REPEATS):
        invalid += _invalid_deliveries(rng, now_ms)[:FREQUENT_INVALID]
    for index, delivery in enumerate(invalid):
        traffic[(index * 7) % len(traffic)].append(delivery)
    traffic[-1].append(_conflict(traffic))
    return traffic


def make_live(seed: int) -> Iterator[Delivery]:
    """Yield single envelopes of several visits at a time, endlessly. Use `stamp` for the time of sending."""
    rng = _rng(seed)
    visits = endless_visits(rng, repeat(0))
    open_visits = list(islice(visits, LIVE_VISITS))
    while True:
        if rng.random() < LIVE_INVALID_SHARE:
            yield rng.choice(_invalid_deliveries(rng, 0)[:FREQUENT_INVALID])
        index = rng.randrange(len(open_visits))
        visit = open_visits[index]
        yield Delivery([visit.envelopes.pop(0)], visit.deployment.origin, context=visit.context)
        if not visit.envelopes:
            open_visits[index] = next(visits)


def endless_visits(rng: Random, starts_ms: Iterator[int], *, length_factor: float = 1.0) -> Iterator[Visit]:
    """Yield visits, one for each start (epoch milliseconds)."""
    while True:
        for draws in draw_evenly(rng, WORKING_DAY_VISITS):
            longer = draws._replace(length=draws.length * length_factor)
            yield make_visit(rng, next(starts_ms), BEHAVIOUR_NOW, longer)


def stamp(delivery: Delivery, now_ms: int) -> Delivery:
    """Return the delivery with the timestamp of each valid envelope set to now."""

    def stamped(envelope: Any) -> Any:
        has_timestamp = isinstance(envelope, dict) and isinstance(envelope.get("timestamp"), int)
        return {**envelope, "timestamp": now_ms} if has_timestamp else envelope

    return replace(delivery, envelopes=[stamped(envelope) for envelope in delivery.envelopes])


def _rng(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311 (not secret)


def _visits(now_ms: int, seed: int, days: int) -> Iterator[Visit]:
    """Yield the visits of the last days. Each has its own generator, so that it does not depend on the time of day."""
    calendar, first_ms = Calendar(now_ms), now_ms - days * DAY_MS
    exported_at = _ms(calendar.exported_at)
    for age in range(days, -1, -1):
        for index, draws in enumerate(draw_evenly(_rng(f"visit {seed} {age}"), calendar.visit_count(age))):
            rng = _rng(f"visit {seed} {age} {index}")
            started_at = _ms(calendar.day(age) + _time_of_day(rng))
            if first_ms <= started_at < now_ms - MINUTE_MS:
                yield make_visit(rng, started_at, calendar.behaviour_at(started_at), draws)
    if first_ms <= exported_at:
        yield make_unusual_visit(_rng(f"visit {seed} unusual"), exported_at, calendar.behaviour_at(exported_at))


def _time_of_day(rng: Random) -> timedelta:
    return timedelta(hours=rng.choices(range(24), _HOUR_WEIGHTS)[0], minutes=rng.uniform(0, 60))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _until(visit: Visit, now_ms: int) -> Visit:
    """Remove the envelopes after now: the latest visits have not ended."""
    visit.envelopes = [envelope for envelope in visit.envelopes if envelope["timestamp"] <= now_ms]
    return visit


def _deliver(visit: Visit) -> list[Delivery]:
    """Return the deliveries of a visit: most pages use the forwarder, a few send the envelopes in another format."""
    rng, origin = visit.rng, visit.deployment.origin
    agent = rng.choice(USER_AGENTS)
    shape = rng.choices(_SHAPES, _SHAPE_WEIGHTS)[0]
    if shape == "envelope":
        return [Delivery([_bare(one)], origin, agent, "envelope") for one in visit.envelopes]
    if shape != "delivery":
        return [Delivery(visit.envelopes, origin, agent, shape, is_gzipped=rng.random() < 0.3)]
    skew_ms = rng.choice((-3 * DAY_MS, -7 * MINUTE_MS, 11 * MINUTE_MS, DAY_MS)) if rng.random() < 0.07 else 0
    envelopes = [{**one, "timestamp": one["timestamp"] + skew_ms} for one in visit.envelopes]
    deliveries = []
    while envelopes:
        count = rng.choice((1, 2, 3, 5, 8, 12))
        deliveries.append(
            Delivery(
                envelopes[:count],
                origin,
                agent,
                context=visit.context,
                lost={"queue_overflow": rng.randint(1, 4)} if rng.random() < 0.01 else {},
                is_plain=rng.random() < 0.2,
                is_beacon=len(envelopes) <= count and rng.random() < 0.5,
                is_gzipped=rng.random() < 0.3,
                skew_ms=skew_ms,
            )
        )
        if rng.random() < 0.05:  # The response was lost, so the forwarder retries.
            deliveries.append(replace(deliveries[-1], is_retry=True, lost={}))
        envelopes = envelopes[count:]
    return deliveries


def _bare(envelope: Envelope) -> Envelope:
    """Return the envelope as it is in `event.data`, without the forwarder's id and seq."""
    return {name: value for name, value in envelope.items() if name not in ("id", "seq")}


def _invalid_deliveries(rng: Random, now_ms: int) -> list[Delivery]:
    """Return deliveries with the mistakes that real embeds and pages make."""
    at_ms = max(now_ms - 3 * 60 * MINUTE_MS, 0)
    deliveries = []
    for reason, envelope in _invalid_envelopes(rng, at_ms):
        deployment = rng.choice(DEPLOYMENTS)
        context = {"deployment": deployment.number, "session": f"s_{rng.getrandbits(64):016x}"}
        # Half of them also have a valid envelope: then the response is a 202, and only the invalid one is quarantined.
        valid = [make_view(rng, at_ms)] if rng.random() < 0.5 else []
        deliveries.append(Delivery([*valid, envelope], deployment.origin, context=context, expected_reasons=(reason,)))
    truncated = Delivery(
        [make_view(rng, at_ms)], DEPLOYMENTS[0].origin, shape="garbage", expected_reasons=(Reason.NOT_JSON,)
    )
    return [*deliveries, truncated]


def _invalid_envelopes(rng: Random, at_ms: int) -> list[tuple[Reason, Any]]:
    def view(**change: Any) -> Envelope:
        return make_view(rng, at_ms) | change

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


def _conflict(traffic: list[list[Delivery]]) -> Delivery:
    """Return a delivery that repeats an id with other content; only the loader detects that."""
    deliveries = (one for visit in traffic for one in visit)
    first = next(one for one in deliveries if one.shape == "delivery" and not (one.skew_ms or one.expected_reasons))
    changed = {**first.envelopes[0], "timestamp": first.envelopes[0]["timestamp"] + 1}
    return replace(
        first,
        envelopes=[changed],
        lost={},
        is_gzipped=False,
        is_beacon=False,
        expected_reasons=(Reason.ID_CONFLICT,),
    )
