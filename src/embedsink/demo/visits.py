"""What happens inside an embed: visits as people make them, as the envelopes that the embed then sends."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from embedsink.demo.words import (
    AGENTS,
    APP_PATHS,
    DASHBOARDS,
    DEPLOYMENTS,
    FAILURES,
    LOCALES,
    QUESTIONS,
    Dashboard,
    Deployment,
)

Envelope = dict[str, Any]

VIEWERS_PER_TENANT = 9
STEPS_MAX = 14
_SURFACES = ("dashboard", "app", "chat")
_SURFACE_SHARES = (13, 4, 3)


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


def new_id(rng: Random, at_ms: int) -> str:
    """A UUIDv7 (RFC 9562, section 5.7) that the generator's seed decides."""
    bits = (at_ms << 80) | (7 << 76) | (rng.getrandbits(12) << 64) | (2 << 62) | rng.getrandbits(62)
    return str(uuid.UUID(int=bits))


def make_visit(rng: Random, started_at_ms: int) -> Visit:
    """A whole visit, from `ready` to the last click."""
    deployment = rng.choices(DEPLOYMENTS, [one.share for one in DEPLOYMENTS])[0]
    tenant = rng.choice(deployment.tenants)
    # The lower numbers come more often: most people look in now and then, some live in it.
    viewer = f"u_{tenant}_{int(VIEWERS_PER_TENANT * rng.random() ** 1.7) + 1}"
    surface = rng.choices(_SURFACES, _SURFACE_SHARES)[0]
    visit = Visit(rng, deployment, tenant, viewer, f"s_{rng.getrandbits(64):016x}", surface, started_at_ms)
    _OPENINGS[surface](visit)
    return visit


def _visit_dashboard(visit: Visit) -> None:
    dashboard = visit.rng.choices(DASHBOARDS, (6, 4, 3, 2, 2))[0]
    _begin(visit, path=dashboard.path, title=dashboard.title, public_id=dashboard.public_id)
    _load(visit, dashboard)
    for _ in range(visit.rng.randint(1, STEPS_MAX)):
        visit.wait(3, 55)
        match visit.rng.choices(
            ("drill", "download", "filter", "move", "ask", "fail", "refresh"), (9, 4, 2, 4, 2, 1, 1)
        )[0]:
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
            case "refresh":
                visit.order("refresh")
                _load(visit, dashboard)
            case _:
                if _fail(visit):
                    return


def _visit_app(visit: Visit) -> None:
    path, title = APP_PATHS[0]
    _begin(visit, path=path, title=title)
    for _ in range(visit.rng.randint(1, STEPS_MAX // 2)):
        visit.wait(5, 90)
        step = visit.rng.random()
        if step < 0.25:
            _ask(visit)
        elif step < 0.32:
            if _fail(visit):
                return
        else:
            previous = path
            path, title = visit.rng.choice([place for place in APP_PATHS if place[0] != path])
            _navigate(visit, previous, path=path, title=title)


def _visit_chat(visit: Visit) -> None:
    _begin(visit, path="/chat", title="Ask your numbers")
    for _ in range(visit.rng.randint(1, STEPS_MAX // 2)):
        visit.wait(5, 60)
        _ask(visit)
        if visit.rng.random() < 0.06 and _fail(visit):
            return


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
    # Load times have a long tail; one in forty dashboards never gets there.
    duration_ms = round(min(visit.rng.lognormvariate(7.1, 0.6), 45_000))
    visit.clock_ms += duration_ms
    if visit.rng.random() < 0.975:
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
    rows = {"rowCount": round(visit.rng.lognormvariate(6, 1.4))} if kind != "png" else {}
    number = visit.rng.randrange(len(dashboard.widgets))
    title = dashboard.widgets[number]
    visit.tell("download", format=kind, target="widget", widgetId=f"w_{number}", title=title, **rows)


def _move(visit: Visit, dashboard: Dashboard) -> Dashboard:
    other = visit.rng.choice([one for one in DASHBOARDS if one is not dashboard])
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
    fate = visit.rng.random()
    if fate < 0.09:
        return  # never answered: the viewer closes the panel, or the answer gets lost
    visit.clock_ms += round(min(visit.rng.lognormvariate(8.6, 0.6), 120_000))
    visit.tell("ai-query", status="completed" if fate > 0.17 else "error", **{**asked, "agentId": agent})


def _fail(visit: Visit) -> bool:
    """An error; whether it was fatal."""
    failure = visit.rng.choice(FAILURES)
    known = {"name": failure.name, "context": failure.context, "fatal": failure.is_fatal}
    visit.tell("error", message=failure.message, **{name: value for name, value in known.items() if value is not None})
    return bool(failure.is_fatal)
