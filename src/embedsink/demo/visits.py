"""Simulated visits: the envelopes that an embed and its host page exchange while a viewer uses them."""

import math
import uuid
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple, TypeVar

from embedsink.demo.fixtures import (
    AGENTS,
    APP_PAGES,
    COMPLAINTS,
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
_GOLDEN_RATIO = (1 + math.sqrt(5)) / 2
# The share of visits with an error, including failures that the newest dbt sync prevents.
FAILING_SHARE = 0.28
# The first dashboards have the most views.
_DASHBOARD_WEIGHTS = (6, 4, 3, 2, 2, 2)
_STEP_WEIGHTS = {"drilldown": 12, "download": 5, "set-filter": 3, "navigate": 5, "ai-query": 3, "refresh": 1}
# The share of the answers that viewers rate, and of the good ones among these.
_RATED_SHARE, _GOOD_SHARE = 0.25, 0.8
# More than five times the rows of any other export.
_UNUSUAL_ROW_COUNT = 52_480
_UNUSUAL_TENANT, _UNUSUAL_VIEWER = "initech", "u_initech_4"
_UNUSUAL_DASHBOARD, _UNUSUAL_WIDGET_INDEX = DASHBOARDS[1], 1


@dataclass(slots=True)
class Visit:
    """One session of one viewer, with its envelopes.

    Args:
        clock_ms: the time of the next envelope, in epoch milliseconds.
        length: the number of steps in proportion to the longest visit, from 0 to 1.
        envelopes: the events of the embed and the actions of the page, in the order of time.
    """

    rng: Random
    deployment: Deployment
    tenant: str
    viewer: str
    session: str
    surface: str
    clock_ms: int
    behaviour: Behaviour
    length: float = 0.0
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

    def step_count(self, steps_max: int) -> int:
        """Return the number of steps for the length: 1 for a length of 0, `steps_max` for a length just below 1."""
        return 1 + int(self.length * steps_max)

    def advance_clock(self, min_s: float, max_s: float) -> None:
        """Advance the clock by a random time between the minimum and the maximum."""
        self.clock_ms += int(self.rng.uniform(min_s, max_s) * 1000)

    def add_event(self, name: str, /, **payload: Any) -> None:
        """Append an event, which the embed sends to the page."""
        self._append("event", name, payload, self.rng, surface=self.surface)

    def add_feedback(self, rng: Random, /, **payload: Any) -> None:
        """Append a rating of an answer. `rng` generates its id."""
        self._append("event", "x-feedback", payload, rng, surface=self.surface)

    def add_action(self, name: str, /, **payload: Any) -> None:
        """Append an action, which the page sends to the embed."""
        self._append("action", name, payload, self.rng)

    def _append(self, direction: str, name: str, payload: dict[str, Any], rng: Random, **fields: str) -> None:
        """Append an envelope with the time of the clock. `fields` are the fields that only events have."""
        self.envelopes.append(
            {
                "id": new_id(rng, self.clock_ms),
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
    """Random numbers from 0 to 1, which determine a visit before it begins."""

    deployment: float
    surface: float
    length: float
    failure: float


def stratified_draws(rng: Random, count: int) -> list[Draws]:
    """Return random numbers for several visits, by stratified sampling.

    The numbers of each kind are spaced evenly from 0 to 1, so days hardly differ by chance. All but the failures are
    shuffled. The failures of each deployment are spaced evenly, so that a dbt sync reduces the deployment's errors on
    any day.
    """
    evenly_spaced = [(index + 0.5) / count for index in range(count)]
    deployment_draws, surface_draws, length_draws = (rng.sample(evenly_spaced, count) for _ in range(3))
    first_failure_draw = rng.random()
    # Without their whole parts, consecutive multiples of the golden ratio are spaced evenly. A deployment's visits have
    # consecutive positions, because `_pick` selects the deployment by the size of the number.
    positions = [int(draw * count) for draw in deployment_draws]
    failure_draws = [(first_failure_draw + position * _GOLDEN_RATIO) % 1 for position in positions]
    return list(map(Draws, deployment_draws, surface_draws, length_draws, failure_draws))


def new_id(rng: Random, at_ms: int) -> str:
    """Return a UUIDv7 (RFC 9562, section 5.7) that depends only on the generator and the time."""
    time_bits = at_ms << 80
    version_bits = 7 << 76
    variant_bits = 0b10 << 62
    random_bits = (rng.getrandbits(12) << 64) | rng.getrandbits(62)
    return str(uuid.UUID(int=time_bits | version_bits | variant_bits | random_bits))


def make_view(rng: Random, at_ms: int) -> Envelope:
    """Return a view event that belongs to no visit."""
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
    """Return a whole visit, from `ready` to the last step, or to an error."""
    deployment = _pick(DEPLOYMENTS, draws.deployment)
    tenant = rng.choice(behaviour.tenants(deployment))
    # The power makes low numbers more frequent: some viewers return often, and others rarely.
    viewer_number = int(behaviour.viewers_per_tenant * rng.random() ** 1.7) + 1
    viewer = f"u_{tenant}_{viewer_number}"
    surface = behaviour.surface(draws.surface)
    session = new_session_id(rng)
    visit = Visit(rng, deployment, tenant, viewer, session, surface, started_at_ms, behaviour, draws.length)
    match surface:
        case "dashboard":
            _visit_dashboard(visit)
        case "app":
            _visit_app(visit)
        case _:  # "chat"
            _visit_chat(visit)
    if draws.failure < FAILING_SHARE:
        # Within the failing visits, this is again a random number from 0 to 1.
        failure_draw = draws.failure / FAILING_SHARE
        _add_error(visit, _pick(FAILURES, failure_draw))
    return visit


def make_unusual_visit(rng: Random, started_at_ms: int, behaviour: Behaviour) -> Visit:
    """Return a visit in which a viewer opens one dashboard and exports unusually many rows."""
    deployment = next(deployment for deployment in DEPLOYMENTS if _UNUSUAL_TENANT in deployment.tenants)
    session = new_session_id(rng)
    visit = Visit(rng, deployment, _UNUSUAL_TENANT, _UNUSUAL_VIEWER, session, "dashboard", started_at_ms, behaviour)
    _open_dashboard(visit, _UNUSUAL_DASHBOARD)
    visit.advance_clock(40, 90)
    visit.add_event(
        "download",
        format="csv",
        target="widget",
        widgetId=f"w_{_UNUSUAL_WIDGET_INDEX}",
        title=_UNUSUAL_DASHBOARD.widgets[_UNUSUAL_WIDGET_INDEX],
        rowCount=_UNUSUAL_ROW_COUNT,
    )
    return visit


def _pick(items: Sequence[_Weighted], draw: float) -> _Weighted:
    """Return the item that a random number from 0 to 1 selects, with probabilities in proportion to the weights."""
    cumulative_weights = list(accumulate(item.weight for item in items))
    total_weight = cumulative_weights[-1]
    return items[bisect(cumulative_weights, draw * total_weight)]


def new_session_id(rng: Random) -> str:
    return f"s_{rng.getrandbits(64):016x}"


def _visit_dashboard(visit: Visit) -> None:
    """Open a dashboard, and take steps there and on other dashboards."""
    rng, dashboards = visit.rng, visit.behaviour.dashboards
    # Recent visits lack the last dashboard, which is unused now, so they need one weight fewer.
    [dashboard] = rng.choices(dashboards, _DASHBOARD_WEIGHTS[: len(dashboards)])
    _open_dashboard(visit, dashboard)
    for _ in range(visit.step_count(STEPS_MAX)):
        visit.advance_clock(3, 55)
        [step] = rng.choices(list(_STEP_WEIGHTS), list(_STEP_WEIGHTS.values()))
        match step:
            case "drilldown":
                _drill_down(visit, dashboard)
            case "download":
                _download(visit, dashboard)
            case "set-filter":
                value = rng.choice(dashboard.values)
                visit.add_action("set-filter", filterUrlParameter=f'f_{dashboard.dimension}=["{value}"]')
            case "navigate":
                dashboard = _open_another_dashboard(visit, dashboard)
            case "ai-query":
                _ask_question(visit)
            case "refresh":
                visit.add_action("refresh")
                _load_dashboard(visit, dashboard)


def _visit_app(visit: Visit) -> None:
    """Open the app, navigate between its pages, and ask questions."""
    path, title = APP_PAGES[0]
    _begin_visit(visit, path=path, title=title)
    for _ in range(visit.step_count(STEPS_MAX // 2)):
        visit.advance_clock(5, 90)
        is_question = visit.rng.random() < 0.25
        if is_question:
            _ask_question(visit)
        else:
            previous_path = path
            path, title = visit.rng.choice([page for page in APP_PAGES if page != (path, title)])
            _navigate(visit, previous_path, path=path, title=title)


def _visit_chat(visit: Visit) -> None:
    """Open the chat, and ask questions."""
    _begin_visit(visit, path="/chat", title="Ask your numbers")
    for _ in range(visit.step_count(STEPS_MAX // 2)):
        visit.advance_clock(5, 60)
        _ask_question(visit)


def _open_dashboard(visit: Visit, dashboard: Dashboard) -> None:
    """Begin a visit on a dashboard, and load the dashboard."""
    _begin_visit(visit, path=dashboard.path, title=dashboard.title, public_id=dashboard.public_id)
    _load_dashboard(visit, dashboard)


def _begin_visit(visit: Visit, *, path: str, title: str, public_id: str | None = None) -> None:
    """Add the first events of a visit. In a third of all visits, also add an action of the page."""
    dashboard_fields = {"publicId": public_id} if public_id else {}
    visit.add_event(
        "ready",
        embedTenant=visit.tenant,
        deploymentId=visit.deployment.number,
        mode="signed" if visit.rng.random() < 0.8 else "private",
        surface=visit.surface,
        **dashboard_fields,
    )
    visit.advance_clock(0.02, 0.3)
    match visit.rng.randrange(9):
        case 0:
            visit.add_action("set-theme", embedTheme={"primaryColor": "#0b6e4f", "borderRadius": 6, "font": "Inter"})
        case 1:
            visit.add_action("set-color-scheme", scheme=visit.rng.choice(("light", "dark", "auto")))
        case 2:
            visit.add_action("set-locale", locale=visit.rng.choice(LOCALES))
    visit.add_event("view", surface=visit.surface, path=path, title=title, **dashboard_fields)


def _load_dashboard(visit: Visit, dashboard: Dashboard) -> None:
    """Advance the clock by the load time of a dashboard, and add `dashboard-loaded`. A few dashboards never load."""
    duration_ms = _random_duration_ms(visit.rng, median_ms=visit.behaviour.median_load_ms, spread=0.55, max_ms=45_000)
    visit.clock_ms += duration_ms
    finished_share = 0.99 if visit.behaviour.is_synced else 0.97
    if visit.rng.random() < finished_share:
        # The fixtures name only the widgets that viewers use, half of a dashboard's widgets.
        widget_count = 2 * len(dashboard.widgets)
        visit.add_event(
            "dashboard-loaded", publicId=dashboard.public_id, widgetCount=widget_count, loadDurationMs=duration_ms
        )


def _random_duration_ms(rng: Random, *, median_ms: float, spread: float, max_ms: int) -> int:
    """Return a duration with a log-normal distribution, which has a long tail.

    `spread` is the standard deviation of the logarithm.
    """
    return round(min(rng.lognormvariate(math.log(median_ms), spread), max_ms))


def _drill_down(visit: Visit, dashboard: Dashboard) -> None:
    """Add a drilldown into a measure. The viewer clicks a value of the dashboard's dimension, or a number."""
    # The power makes the first measures more frequent.
    member = dashboard.members[int(len(dashboard.members) * visit.rng.random() ** 1.5)]
    dimension_value = visit.rng.choice(dashboard.values)
    number = visit.rng.randint(3, 90_000)
    clicked_value = visit.rng.choice((dimension_value, number))
    widget_index = visit.rng.randrange(len(dashboard.widgets))
    visit.add_event("drilldown", member=member, value=clicked_value, widgetId=f"w_{widget_index}")


def _download(visit: Visit, dashboard: Dashboard) -> None:
    """Download a dashboard as PDF, or one of its widgets in another format."""
    [format] = visit.rng.choices(("csv", "xlsx", "png", "pdf"), (5, 4, 2, 2))
    if format == "pdf":
        visit.add_event("download", format=format, target="dashboard", title=dashboard.title)
        return
    # An image has no row count.
    row_fields = {"rowCount": round(visit.rng.lognormvariate(6, 0.7))} if format != "png" else {}
    index = visit.rng.randrange(len(dashboard.widgets))
    title = dashboard.widgets[index]
    visit.add_event("download", format=format, target="widget", widgetId=f"w_{index}", title=title, **row_fields)


def _open_another_dashboard(visit: Visit, dashboard: Dashboard) -> Dashboard:
    """Navigate from a dashboard to another one, sometimes by an action of the page. Return the new dashboard."""
    target = visit.rng.choice([candidate for candidate in visit.behaviour.dashboards if candidate is not dashboard])
    is_page_action = visit.rng.random() < 0.3
    if is_page_action:
        visit.add_action("navigate", path=target.path)
        visit.advance_clock(0.05, 0.2)
    _navigate(visit, dashboard.path, path=target.path, title=target.title, publicId=target.public_id)
    _load_dashboard(visit, target)
    return target


def _navigate(visit: Visit, previous_path: str, *, path: str, **view_fields: str) -> None:
    """Add the events of a navigation. `view_fields` are further fields of the `view` event."""
    visit.add_event("navigate", path=path, previousPath=previous_path)
    visit.add_event("view", surface=visit.surface, path=path, **view_fields)


def _ask_question(visit: Visit) -> None:
    """Ask an AI agent a question. The answer is a result, an error, or missing."""
    # All questions of a session belong to one chat, so the chat id derives from the session id.
    chat_id = "c_" + visit.session.removeprefix("s_")[:8]
    question = {"query": visit.rng.choice(QUESTIONS), "chatId": chat_id}
    agent = AGENTS[0] if visit.rng.random() < 0.7 else AGENTS[1]
    # A chat has one agent from its start. On other surfaces, only the answer names the agent.
    if visit.surface == "chat":
        question["agentId"] = agent
    visit.add_event("ai-query", status="submitted", **question)
    draw = visit.rng.random()
    unanswered_share = visit.behaviour.unanswered_share
    if draw < unanswered_share:
        return  # The viewer closed the panel, or the answer was lost.
    visit.clock_ms += _random_duration_ms(visit.rng, median_ms=5_430, spread=0.6, max_ms=120_000)
    # An error is as frequent as a missing answer.
    status = "error" if draw < 2 * unanswered_share else "completed"
    visit.add_event("ai-query", status=status, **{**question, "agentId": agent})
    if status == "completed":
        _rate_answer(visit, chat_id)


def _rate_answer(visit: Visit, chat_id: str) -> None:
    """Add feedback on some answers. Its random numbers are separate and don't change those of other events."""
    rng = Random(f"{chat_id} {visit.clock_ms}")  # noqa: S311  No secret depends on it.
    if rng.random() < _RATED_SHARE:
        rating = "up" if rng.random() < _GOOD_SHARE else "down"
        optional_fields = {"text": rng.choice(COMPLAINTS)} if rating == "down" else {}
        visit.add_feedback(rng, chatId=chat_id, rating=rating, **optional_fields)


def _add_error(visit: Visit, failure: Failure) -> None:
    """Add an error at the end of a visit, unless the newest dbt sync has fixed the error or has not caused it yet."""
    is_fixed = failure.newest_sync == "fixes" and visit.behaviour.is_synced
    is_not_caused_yet = failure.newest_sync == "causes" and not visit.behaviour.is_synced
    if is_fixed or is_not_caused_yet:
        return
    visit.advance_clock(2, 20)
    optional_fields = {"name": failure.name, "context": failure.context, "fatal": failure.is_fatal}
    fields = {name: value for name, value in optional_fields.items() if value is not None}
    visit.add_event("error", message=failure.message, **fields)
