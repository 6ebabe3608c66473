"""What happens inside an embed: visits as people make them, as the envelopes that the embed then sends."""

import uuid
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple, TypeVar

from embedsink.demo.fixtures import (
    AGENTS,
    APP_PATHS,
    DASHBOARDS,
    DEPLOYMENTS,
    FAILURES,
    LOCALES,
    QUESTIONS,
    Dashboard,
    Deployment,
    Failure,
)
from embedsink.demo.trends import Habits

Envelope = dict[str, Any]
_Shared = TypeVar("_Shared", Deployment, Failure)

STEPS_MAX = 14
# Of visits; what is mended no longer fails.
FAILING_SHARE = 0.17
# The first ones of a list are looked at most.
_DASHBOARD_SHARES = (6, 4, 3, 2, 2, 2)
# Nobody else comes near it.
_UNUSUAL_ROWS = 52_480
_UNUSUAL_TENANT, _UNUSUAL_VIEWER = "initech", "u_initech_4"


@dataclass(slots=True)
class Visit:
    """One session of one viewer, growing by `tell` (embed to page) and `order` (page to embed)."""

    rng: Random
    deployment: Deployment
    tenant: str
    viewer: str
    session: str
    surface: str
    clock_ms: int
    habits: Habits
    length: float = 0.0  # share of the steps that the longest one takes
    envelopes: list[Envelope] = field(default_factory=list)

    @property
    def context(self) -> dict[str, Any]:
        """What the page knows, as a delivery says it."""
        return {
            "deployment": self.deployment.number,
            "session": self.session,
            "viewer": self.viewer,
            "tenant": self.tenant,
            "page": f"{self.deployment.origin}/analytics",
        }

    def step_count(self, most: int) -> int:
        """How often something is done in it."""
        return 1 + int(self.length * most)

    def wait(self, least_s: float, most_s: float) -> None:
        """Let time pass."""
        self.clock_ms += int(self.rng.uniform(least_s, most_s) * 1000)

    def tell(self, name: str, /, **payload: Any) -> None:
        """An event of the embed, now."""
        self._add("event", name, payload, surface=self.surface)

    def order(self, name: str, /, **payload: Any) -> None:
        """An action of the page, now."""
        self._add("action", name, payload)

    def _add(self, direction: str, name: str, payload: dict[str, Any], **more: str) -> None:
        self.envelopes.append(
            {
                "id": new_id(self.rng, self.clock_ms),
                "seq": len(self.envelopes),
                "source": "svc-embed",
                "direction": direction,
                "type": f"svc:{direction}:{name}",
                "payload": payload,
                "timestamp": self.clock_ms,
                **more,
            }
        )


class Lots(NamedTuple):
    """What chance decides of a visit before it begins, each from 0 to 1."""

    deployment: float
    surface: float
    length: float
    failure: float


def deal(rng: Random, count: int) -> list[Lots]:
    """Lots for the visits of a day, which lie as evenly as they can: days differ by habits, and hardly by chance."""
    evenly = [(number + 0.5) / count for number in range(count)]
    return [Lots(*lots) for lots in zip(*(rng.sample(evenly, count) for _ in Lots._fields), strict=True)]


def new_id(rng: Random, at_ms: int) -> str:
    """A UUIDv7 (RFC 9562, section 5.7) that the generator's seed decides."""
    bits = (at_ms << 80) | (7 << 76) | (rng.getrandbits(12) << 64) | (2 << 62) | rng.getrandbits(62)
    return str(uuid.UUID(int=bits))


def make_visit(rng: Random, started_at_ms: int, habits: Habits, lots: Lots) -> Visit:
    """A whole visit, from `ready` to the last click."""
    deployment = _dealt(DEPLOYMENTS, lots.deployment)
    tenant = rng.choice(habits.tenants(deployment))
    # The lower numbers come more often: most people look in now and then, some live in it.
    viewer = f"u_{tenant}_{int(habits.viewer_count * rng.random() ** 1.7) + 1}"
    surface = habits.surface(lots.surface)
    visit = Visit(rng, deployment, tenant, viewer, _new_session(rng), surface, started_at_ms, habits, lots.length)
    _OPENINGS[surface](visit)
    if lots.failure < FAILING_SHARE:
        _fail(visit, _dealt(FAILURES, lots.failure / FAILING_SHARE))
    return visit


def make_unusual_visit(rng: Random, started_at_ms: int, habits: Habits) -> Visit:
    """Somebody who looks at one dashboard, and takes all of it home."""
    deployment = next(one for one in DEPLOYMENTS if _UNUSUAL_TENANT in one.tenants)
    session = _new_session(rng)
    visit = Visit(rng, deployment, _UNUSUAL_TENANT, _UNUSUAL_VIEWER, session, "dashboard", started_at_ms, habits)
    dashboard = DASHBOARDS[1]
    _begin(visit, path=dashboard.path, title=dashboard.title, public_id=dashboard.public_id)
    _load(visit, dashboard)
    visit.wait(40, 90)
    title, number = dashboard.widgets[1], "w_1"
    visit.tell("download", format="csv", target="widget", widgetId=number, title=title, rowCount=_UNUSUAL_ROWS)
    return visit


def _dealt(ones: Sequence[_Shared], lot: float) -> _Shared:
    """Which one a lot from 0 to 1 falls on."""
    ends = list(accumulate(one.share for one in ones))
    return ones[bisect(ends, lot * ends[-1])]


def _new_session(rng: Random) -> str:
    return f"s_{rng.getrandbits(64):016x}"


def _visit_dashboard(visit: Visit) -> None:
    known = visit.habits.dashboards
    dashboard = visit.rng.choices(known, _DASHBOARD_SHARES[: len(known)])[0]
    _begin(visit, path=dashboard.path, title=dashboard.title, public_id=dashboard.public_id)
    _load(visit, dashboard)
    for _ in range(visit.step_count(STEPS_MAX)):
        visit.wait(3, 55)
        match visit.rng.choices(("drill", "download", "filter", "move", "ask", "refresh"), (12, 5, 3, 5, 3, 1))[0]:
            case "drill":
                _drill(visit, dashboard)
            case "download":
                _download(visit, dashboard)
            case "filter":
                value = visit.rng.choice(dashboard.values)
                visit.order("set-filter", filterUrlParameter=f'f_{dashboard.dimension}=["{value}"]')
            case "move":
                dashboard = _move(visit, dashboard)
            case "ask":
                _ask(visit)
            case _:
                visit.order("refresh")
                _load(visit, dashboard)


def _visit_app(visit: Visit) -> None:
    path, title = APP_PATHS[0]
    _begin(visit, path=path, title=title)
    for _ in range(visit.step_count(STEPS_MAX // 2)):
        visit.wait(5, 90)
        if visit.rng.random() < 0.25:
            _ask(visit)
        else:
            previous = path
            path, title = visit.rng.choice([place for place in APP_PATHS if place[0] != path])
            _navigate(visit, previous, path=path, title=title)


def _visit_chat(visit: Visit) -> None:
    _begin(visit, path="/chat", title="Ask your numbers")
    for _ in range(visit.step_count(STEPS_MAX // 2)):
        visit.wait(5, 60)
        _ask(visit)


_OPENINGS: dict[str, Callable[[Visit], None]] = {
    "dashboard": _visit_dashboard,
    "app": _visit_app,
    "chat": _visit_chat,
}


def _begin(visit: Visit, *, path: str, title: str, public_id: str | None = None) -> None:
    published = {"publicId": public_id} if public_id else {}
    visit.tell(
        "ready",
        embedTenant=visit.tenant,
        deploymentId=visit.deployment.number,
        mode="signed" if visit.rng.random() < 0.8 else "private",
        surface=visit.surface,
        **published,
    )
    visit.wait(0.02, 0.3)
    match visit.rng.randrange(9):
        case 0:
            visit.order("set-theme", embedTheme={"primaryColor": "#0b6e4f", "borderRadius": 6, "font": "Inter"})
        case 1:
            visit.order("set-color-scheme", scheme=visit.rng.choice(("light", "dark", "auto")))
        case 2:
            visit.order("set-locale", locale=visit.rng.choice(LOCALES))
    visit.tell("view", surface=visit.surface, path=path, title=title, **published)


def _load(visit: Visit, dashboard: Dashboard) -> None:
    # Load times have a long tail; a few dashboards never get there.
    duration_ms = round(min(visit.rng.lognormvariate(visit.habits.load_ms_log, 0.55), 45_000))
    visit.clock_ms += duration_ms
    if visit.rng.random() < (0.99 if visit.habits.is_mended else 0.97):
        count = len(dashboard.widgets) * 2
        visit.tell("dashboard-loaded", publicId=dashboard.public_id, widgetCount=count, loadDurationMs=duration_ms)


def _drill(visit: Visit, dashboard: Dashboard) -> None:
    member = dashboard.members[int(len(dashboard.members) * visit.rng.random() ** 1.5)]
    value = visit.rng.choice((visit.rng.choice(dashboard.values), visit.rng.randint(3, 90_000)))
    visit.tell("drilldown", member=member, value=value, widgetId=f"w_{visit.rng.randrange(len(dashboard.widgets))}")


def _download(visit: Visit, dashboard: Dashboard) -> None:
    kind = visit.rng.choices(("csv", "xlsx", "png", "pdf"), (5, 4, 2, 2))[0]
    if kind == "pdf":
        visit.tell("download", format=kind, target="dashboard", title=dashboard.title)
        return
    rows = {"rowCount": round(visit.rng.lognormvariate(6, 0.7))} if kind != "png" else {}
    number = visit.rng.randrange(len(dashboard.widgets))
    title = dashboard.widgets[number]
    visit.tell("download", format=kind, target="widget", widgetId=f"w_{number}", title=title, **rows)


def _move(visit: Visit, dashboard: Dashboard) -> Dashboard:
    other = visit.rng.choice([one for one in visit.habits.dashboards if one is not dashboard])
    if visit.rng.random() < 0.3:
        visit.order("navigate", path=other.path)
        visit.wait(0.05, 0.2)
    _navigate(visit, dashboard.path, path=other.path, title=other.title, publicId=other.public_id)
    _load(visit, other)
    return other


def _navigate(visit: Visit, previous: str, *, path: str, **of_view: str) -> None:
    visit.tell("navigate", path=path, previousPath=previous)
    visit.tell("view", surface=visit.surface, path=path, **of_view)


def _ask(visit: Visit) -> None:
    asked = {"query": visit.rng.choice(QUESTIONS), "chatId": f"c_{visit.session[2:10]}"}
    agent = AGENTS[0] if visit.rng.random() < 0.7 else AGENTS[1]
    # The chat is of one agent from the start; elsewhere only the answer tells who gave it.
    if visit.surface == "chat":
        asked["agentId"] = agent
    visit.tell("ai-query", status="submitted", **asked)
    outcome, unanswered = visit.rng.random(), visit.habits.unanswered_share
    if outcome < unanswered:
        return  # never answered: the viewer closes the panel, or the answer gets lost
    visit.clock_ms += round(min(visit.rng.lognormvariate(8.6, 0.6), 120_000))
    visit.tell("ai-query", status="completed" if outcome > 2 * unanswered else "error", **{**asked, "agentId": agent})


def _fail(visit: Visit, failure: Failure) -> None:
    """An error, if it is one that still happens. Whoever sees one leaves."""
    if failure.is_mended and visit.habits.is_mended:
        return
    visit.wait(2, 20)
    known = {"name": failure.name, "context": failure.context, "fatal": failure.is_fatal}
    visit.tell("error", message=failure.message, **{name: value for name, value in known.items() if value is not None})
