"""Simulated visits: the envelopes that an embed and its host page exchange while a viewer uses them."""

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
from embedsink.demo.trends import Behaviour

Envelope = dict[str, Any]
_Weighted = TypeVar("_Weighted", Deployment, Failure)

STEPS_MAX = 14
# The share of visits that would have an error if all failures happened at once.
FAILING_SHARE = 0.26
# The first dashboards have the most views.
_DASHBOARD_WEIGHTS = (6, 4, 3, 2, 2, 2)
_STEP_WEIGHTS = {"drill": 12, "download": 5, "filter": 3, "move": 5, "ask": 3, "refresh": 1}
# No other export has more than a fifth of these rows.
_UNUSUAL_ROWS = 52_480
_UNUSUAL_TENANT, _UNUSUAL_VIEWER = "initech", "u_initech_4"


@dataclass(slots=True)
class Visit:
    """One session of one viewer. `event` (embed to page) and `action` (page to embed) append envelopes."""

    rng: Random
    deployment: Deployment
    tenant: str
    viewer: str
    session: str
    surface: str
    clock_ms: int
    behaviour: Behaviour
    length: float = 0.0  # from 0 to 1: the share of the steps of the longest visit
    envelopes: list[Envelope] = field(default_factory=list)

    @property
    def context(self) -> dict[str, Any]:
        """The context of a delivery: the values that the host page adds."""
        return {
            "deployment": self.deployment.number,
            "session": self.session,
            "viewer": self.viewer,
            "tenant": self.tenant,
            "page": f"{self.deployment.origin}/analytics",
        }

    def step_count(self, most: int) -> int:
        """Return the number of steps of this visit, at most `most`."""
        return 1 + int(self.length * most)

    def wait(self, least_s: float, most_s: float) -> None:
        """Advance the clock."""
        self.clock_ms += int(self.rng.uniform(least_s, most_s) * 1000)

    def event(self, name: str, /, **payload: Any) -> None:
        """Append an event of the embed."""
        self._append("event", name, payload, surface=self.surface)

    def action(self, name: str, /, **payload: Any) -> None:
        """Append an action of the page."""
        self._append("action", name, payload)

    def _append(self, direction: str, name: str, payload: dict[str, Any], **fields: str) -> None:
        self.envelopes.append(
            {
                "id": new_id(self.rng, self.clock_ms),
                "seq": len(self.envelopes),
                "source": "svc-embed",
                "direction": direction,
                "type": f"svc:{direction}:{name}",
                "payload": payload,
                "timestamp": self.clock_ms,
                **fields,
            }
        )


class Draws(NamedTuple):
    """The random draws that decide a visit before it begins, each from 0 to 1."""

    deployment: float
    surface: float
    length: float
    failure: float


def draw_evenly(rng: Random, count: int) -> list[Draws]:
    """Return the draws for a day's visits, spread evenly, so that days differ by behaviour and hardly by chance."""
    evenly = [(index + 0.5) / count for index in range(count)]
    return [Draws(*draws) for draws in zip(*(rng.sample(evenly, count) for _ in Draws._fields), strict=True)]


def new_id(rng: Random, at_ms: int) -> str:
    """Return a UUIDv7 (RFC 9562, section 5.7) that depends only on the generator and the time."""
    bits = (at_ms << 80) | (7 << 76) | (rng.getrandbits(12) << 64) | (2 << 62) | rng.getrandbits(62)
    return str(uuid.UUID(int=bits))


def make_view(rng: Random, at_ms: int) -> Envelope:
    """Return a view event without a visit."""
    return {
        "id": new_id(rng, at_ms),
        "source": "svc-embed",
        "direction": "event",
        "type": "svc:event:view",
        "payload": {"surface": "app", "path": "/home"},
        "timestamp": at_ms,
        "surface": "app",
    }


def make_visit(rng: Random, started_at_ms: int, behaviour: Behaviour, draws: Draws) -> Visit:
    """Return a whole visit, from `ready` to the last click."""
    deployment = _pick(DEPLOYMENTS, draws.deployment)
    tenant = rng.choice(behaviour.tenants(deployment))
    # Viewers with low numbers return often, those with high numbers rarely.
    viewer = f"u_{tenant}_{int(behaviour.viewers_per_tenant * rng.random() ** 1.7) + 1}"
    surface = behaviour.surface(draws.surface)
    visit = Visit(rng, deployment, tenant, viewer, _new_session(rng), surface, started_at_ms, behaviour, draws.length)
    _VISITS[surface](visit)
    if draws.failure < FAILING_SHARE:
        _fail(visit, _pick(FAILURES, draws.failure / FAILING_SHARE))
    return visit


def make_unusual_visit(rng: Random, started_at_ms: int, behaviour: Behaviour) -> Visit:
    """Return a visit in which a viewer opens one dashboard and exports unusually many rows."""
    deployment = next(one for one in DEPLOYMENTS if _UNUSUAL_TENANT in one.tenants)
    session = _new_session(rng)
    visit = Visit(rng, deployment, _UNUSUAL_TENANT, _UNUSUAL_VIEWER, session, "dashboard", started_at_ms, behaviour)
    dashboard = DASHBOARDS[1]
    _open_dashboard(visit, dashboard)
    visit.wait(40, 90)
    title, widget = dashboard.widgets[1], "w_1"
    visit.event("download", format="csv", target="widget", widgetId=widget, title=title, rowCount=_UNUSUAL_ROWS)
    return visit


def _pick(items: Sequence[_Weighted], draw: float) -> _Weighted:
    """Return the item that a draw from 0 to 1 selects by weight."""
    ends = list(accumulate(item.weight for item in items))
    return items[bisect(ends, draw * ends[-1])]


def _new_session(rng: Random) -> str:
    return f"s_{rng.getrandbits(64):016x}"


def _visit_dashboard(visit: Visit) -> None:
    rng, dashboards = visit.rng, visit.behaviour.dashboards
    dashboard = rng.choices(dashboards, _DASHBOARD_WEIGHTS[: len(dashboards)])[0]
    _open_dashboard(visit, dashboard)
    for _ in range(visit.step_count(STEPS_MAX)):
        visit.wait(3, 55)
        match rng.choices(list(_STEP_WEIGHTS), list(_STEP_WEIGHTS.values()))[0]:
            case "drill":
                _drill(visit, dashboard)
            case "download":
                _download(visit, dashboard)
            case "filter":
                value = rng.choice(dashboard.values)
                visit.action("set-filter", filterUrlParameter=f'f_{dashboard.dimension}=["{value}"]')
            case "move":
                dashboard = _move(visit, dashboard)
            case "ask":
                _ask(visit)
            case _:
                visit.action("refresh")
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
            path, title = visit.rng.choice([other for other in APP_PATHS if other[0] != path])
            _navigate(visit, previous, path=path, title=title)


def _visit_chat(visit: Visit) -> None:
    _begin(visit, path="/chat", title="Ask your numbers")
    for _ in range(visit.step_count(STEPS_MAX // 2)):
        visit.wait(5, 60)
        _ask(visit)


_VISITS: dict[str, Callable[[Visit], None]] = {
    "dashboard": _visit_dashboard,
    "app": _visit_app,
    "chat": _visit_chat,
}


def _open_dashboard(visit: Visit, dashboard: Dashboard) -> None:
    _begin(visit, path=dashboard.path, title=dashboard.title, public_id=dashboard.public_id)
    _load(visit, dashboard)


def _begin(visit: Visit, *, path: str, title: str, public_id: str | None = None) -> None:
    published = {"publicId": public_id} if public_id else {}
    visit.event(
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
            visit.action("set-theme", embedTheme={"primaryColor": "#0b6e4f", "borderRadius": 6, "font": "Inter"})
        case 1:
            visit.action("set-color-scheme", scheme=visit.rng.choice(("light", "dark", "auto")))
        case 2:
            visit.action("set-locale", locale=visit.rng.choice(LOCALES))
    visit.event("view", surface=visit.surface, path=path, title=title, **published)


def _load(visit: Visit, dashboard: Dashboard) -> None:
    # Loading times have a long tail, and some dashboards never finish.
    duration_ms = round(min(visit.rng.lognormvariate(visit.behaviour.load_ms_log, 0.55), 45_000))
    visit.clock_ms += duration_ms
    if visit.rng.random() < (0.99 if visit.behaviour.is_synced else 0.97):
        count = len(dashboard.widgets) * 2
        visit.event("dashboard-loaded", publicId=dashboard.public_id, widgetCount=count, loadDurationMs=duration_ms)


def _drill(visit: Visit, dashboard: Dashboard) -> None:
    member = dashboard.members[int(len(dashboard.members) * visit.rng.random() ** 1.5)]
    value = visit.rng.choice((visit.rng.choice(dashboard.values), visit.rng.randint(3, 90_000)))
    visit.event("drilldown", member=member, value=value, widgetId=f"w_{visit.rng.randrange(len(dashboard.widgets))}")


def _download(visit: Visit, dashboard: Dashboard) -> None:
    kind = visit.rng.choices(("csv", "xlsx", "png", "pdf"), (5, 4, 2, 2))[0]
    if kind == "pdf":
        visit.event("download", format=kind, target="dashboard", title=dashboard.title)
        return
    rows = {"rowCount": round(visit.rng.lognormvariate(6, 0.7))} if kind != "png" else {}
    index = visit.rng.randrange(len(dashboard.widgets))
    title = dashboard.widgets[index]
    visit.event("download", format=kind, target="widget", widgetId=f"w_{index}", title=title, **rows)


def _move(visit: Visit, dashboard: Dashboard) -> Dashboard:
    other = visit.rng.choice([one for one in visit.behaviour.dashboards if one is not dashboard])
    if visit.rng.random() < 0.3:
        visit.action("navigate", path=other.path)
        visit.wait(0.05, 0.2)
    _navigate(visit, dashboard.path, path=other.path, title=other.title, publicId=other.public_id)
    _load(visit, other)
    return other


def _navigate(visit: Visit, previous: str, *, path: str, **view_fields: str) -> None:
    visit.event("navigate", path=path, previousPath=previous)
    visit.event("view", surface=visit.surface, path=path, **view_fields)


def _ask(visit: Visit) -> None:
    question = {"query": visit.rng.choice(QUESTIONS), "chatId": f"c_{visit.session[2:10]}"}
    agent = AGENTS[0] if visit.rng.random() < 0.7 else AGENTS[1]
    # A chat has one agent from its start; on other surfaces only the answer names it.
    if visit.surface == "chat":
        question["agentId"] = agent
    visit.event("ai-query", status="submitted", **question)
    outcome, unanswered = visit.rng.random(), visit.behaviour.unanswered_share
    if outcome < unanswered:
        return  # Never answered: the viewer closed the panel, or the answer was lost.
    visit.clock_ms += round(min(visit.rng.lognormvariate(8.6, 0.6), 120_000))
    status = "completed" if outcome > 2 * unanswered else "error"
    visit.event("ai-query", status=status, **{**question, "agentId": agent})


def _fail(visit: Visit, failure: Failure) -> None:
    """End the visit with an error, unless the newest dbt sync has fixed it, or has not caused it yet."""
    if failure.newest_sync == ("fixes" if visit.behaviour.is_synced else "causes"):
        return
    visit.wait(2, 20)
    known = {"name": failure.name, "context": failure.context, "fatal": failure.is_fatal}
    fields = {name: value for name, value in known.items() if value is not None}
    visit.event("error", message=failure.message, **fields)
