"""How visits reach the server: as deliveries of many shapes, with retries, wrong clocks and mistakes.

The seed and the present decide everything: the same two give the same traffic.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any, Literal

import orjson

from embedsink.demo.fixtures import DEPLOYMENTS, USER_AGENTS
from embedsink.demo.trends import DAY_MS, DAYS, HABITS_NOW, WORKING_DAY_VISITS, Course
from embedsink.demo.visits import Envelope, Visit, deal, make_unusual_visit, make_visit, new_id
from embedsink.reasons import Reason

Shape = Literal["delivery", "envelope", "array", "ndjson", "garbage"]

SEED = 20
LIVE_VISITS = 6
LIVE_MISTAKE_SHARE = 0.015
USUAL_MISTAKES = 6
USUAL_MISTAKES_AGAIN = 4
MINUTE_MS = 60_000
_SHAPES: tuple[Shape, ...] = ("delivery", "envelope", "array", "ndjson")
_SHAPE_SHARES = (94, 2, 2, 2)
# Of each hour of a working day, UTC: nights are quiet, noon is lunch.
_HOUR_SHARES = (1, 1, 1, 1, 1, 2, 4, 9, 15, 18, 17, 14, 10, 14, 17, 16, 13, 9, 6, 4, 3, 2, 2, 1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One body, and how a browser sends it.

    Args:
        envelopes: what it holds.
        origin: the page that sends it.
        is_beacon: sent while the page closes: `text/plain`, and the key in the body.
        skew_ms: how far the sender's clock is ahead.
        planted: the reasons for which envelopes in it will be quarantined, one an envelope.
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
    planted: tuple[Reason, ...] = ()

    def __str__(self) -> str:
        """What happens in it, in a few words."""
        first = self.envelopes[0] if isinstance(self.envelopes[0], dict) else {}
        words = (str(first.get("type", "?")).removeprefix("svc:"), first.get("surface"), self.context.get("tenant"))
        return " · ".join(word for word in words if word)

    @property
    def media_type(self) -> str:
        """The content type that a browser would send it with."""
        if self.shape == "ndjson":
            return "application/x-ndjson"
        return "text/plain;charset=UTF-8" if self.is_plain or self.is_beacon else "application/json"

    def body(self, sent_at_ms: int, key: str) -> bytes:
        """The bytes to send now."""
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
                # As a proxy does that gives up half-way.
                whole = orjson.dumps(self.envelopes)
                return whole[: len(whole) // 2]
        parts: dict[str, Any] = {"sentAt": sent_at_ms + self.skew_ms, "context": self.context, "events": self.envelopes}
        if self.lost:
            parts["lost"] = self.lost
        if self.is_beacon:
            parts["key"] = key
        return orjson.dumps(parts)


def make_traffic(now_ms: int, *, seed: int = SEED, days: int = DAYS) -> list[list[Delivery]]:
    """The last days: for each visit its deliveries in order.

    Args:
        now_ms: epoch milliseconds; nothing happens later.
        days: how many times 24 hours.
    """
    rng = Random(seed)  # noqa: S311 (traffic, not secrets)
    traffic = [_deliver(_until(visit, now_ms)) for visit in _visits(now_ms, seed, days)]
    mistakes = _mistakes(rng, now_ms)
    for _ in range(USUAL_MISTAKES_AGAIN):
        mistakes += _mistakes(rng, now_ms)[:USUAL_MISTAKES]
    for number, mistake in enumerate(mistakes):
        traffic[(number * 7) % len(traffic)].append(mistake)
    traffic[-1].append(_conflict(traffic))
    return traffic


def _visits(now_ms: int, seed: int, days: int) -> Iterator[Visit]:
    """Each has a generator of its own, so that it is the same at any time of the day."""
    course = Course(now_ms)
    exported_at = _ms(course.exported_at)
    for age in range(days, -1, -1):
        dealer = Random(f"visit {seed} {age}")  # noqa: S311 (traffic, not secrets)
        for number, lots in enumerate(deal(dealer, course.visit_count(age))):
            rng = Random(f"visit {seed} {age} {number}")  # noqa: S311 (traffic, not secrets)
            started_at = _ms(course.day(age) + _time_of_day(rng))
            if now_ms - days * DAY_MS <= started_at < now_ms - MINUTE_MS:
                yield make_visit(rng, started_at, course.habits_at(started_at), lots)
    if now_ms - days * DAY_MS <= exported_at:
        rng = Random(f"visit {seed} unusual")  # noqa: S311 (traffic, not secrets)
        yield make_unusual_visit(rng, exported_at, course.habits_at(exported_at))


def make_live(seed: int) -> Iterator[Delivery]:
    """Endless visits, several at a time, one envelope each; the sender sets their `timestamp` when it sends them."""
    rng = Random(seed)  # noqa: S311 (traffic, not secrets)
    visits = _endless_visits(rng)
    open_visits = list(islice(visits, LIVE_VISITS))
    while True:
        if rng.random() < LIVE_MISTAKE_SHARE:
            yield rng.choice(_mistakes(rng, 0)[:USUAL_MISTAKES])
        turn = rng.randrange(len(open_visits))
        visit = open_visits[turn]
        yield Delivery([visit.envelopes.pop(0)], visit.deployment.origin, context=visit.context)
        if not visit.envelopes:
            open_visits[turn] = next(visits)


def _endless_visits(rng: Random) -> Iterator[Visit]:
    while True:
        yield from (make_visit(rng, 0, HABITS_NOW, lots) for lots in deal(rng, WORKING_DAY_VISITS))


def at(delivery: Delivery, now_ms: int) -> Delivery:
    """The delivery with its envelopes happening now."""
    return replace(delivery, envelopes=[_stamped(envelope, now_ms) for envelope in delivery.envelopes])


def _stamped(envelope: Any, now_ms: int) -> Any:
    if isinstance(envelope, dict) and isinstance(envelope.get("timestamp"), int):
        return {**envelope, "timestamp": now_ms}
    return envelope


def _time_of_day(rng: Random) -> timedelta:
    """As likely as people are at work."""
    return timedelta(hours=rng.choices(range(24), _HOUR_SHARES)[0], minutes=rng.uniform(0, 60))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _until(visit: Visit, now_ms: int) -> Visit:
    """What has happened of it by now: some visits are still going on."""
    visit.envelopes = [envelope for envelope in visit.envelopes if envelope["timestamp"] <= now_ms]
    return visit


def _deliver(visit: Visit) -> list[Delivery]:
    """Most pages use a forwarder that collects for some seconds; a few have the smallest one, or one of their own."""
    rng, origin = visit.rng, visit.deployment.origin
    agent = rng.choice(USER_AGENTS)
    shape = rng.choices(_SHAPES, _SHAPE_SHARES)[0]
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
        if rng.random() < 0.05:  # The answer got lost on the way back, so the forwarder sends it again.
            deliveries.append(replace(deliveries[-1], is_retry=True, lost={}))
        envelopes = envelopes[count:]
    return deliveries


def _bare(envelope: Envelope) -> Envelope:
    """The envelope exactly as it came out of `event.data`."""
    return {name: value for name, value in envelope.items() if name not in ("id", "seq")}


def _mistakes(rng: Random, now_ms: int) -> list[Delivery]:
    """What goes wrong in the field: each a delivery with the reason for which some of it will be quarantined."""
    at_ms = now_ms - 3 * 60 * MINUTE_MS

    def view(**change: Any) -> Envelope:
        return {
            "id": new_id(rng, max(at_ms, 0)),
            "source": "svc-embed",
            "direction": "event",
            "type": "svc:event:view",
            "payload": {"surface": "app", "path": "/home"},
            "timestamp": at_ms,
            "surface": "app",
        } | change

    download = {"format": "doc", "target": "dashboard"}
    wrong: list[tuple[Reason, Any]] = [
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
    mistakes = []
    for reason, envelope in wrong:
        deployment = rng.choice(DEPLOYMENTS)
        context = {"deployment": deployment.number, "session": f"s_{rng.getrandbits(64):016x}"}
        # Beside a good one: a partly good delivery is a 202, and only the bad is quarantined.
        beside = [view()] if rng.random() < 0.5 else []
        mistakes.append(Delivery([*beside, envelope], deployment.origin, context=context, planted=(reason,)))
    mistakes.append(Delivery([view()], DEPLOYMENTS[0].origin, shape="garbage", planted=(Reason.NOT_JSON,)))
    return mistakes


def _conflict(traffic: list[list[Delivery]]) -> Delivery:
    """An id that was used before, with other content: found only when it is loaded."""
    deliveries = (one for visit in traffic for one in visit)
    first = next(one for one in deliveries if one.shape == "delivery" and not (one.skew_ms or one.planted))
    again = {**first.envelopes[0], "timestamp": first.envelopes[0]["timestamp"] + 1}
    return replace(first, envelopes=[again], lost={}, is_gzipped=False, is_beacon=False, planted=(Reason.ID_CONFLICT,))
