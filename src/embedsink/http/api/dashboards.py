"""`/api/v1/dashboards`: which there are, what one says, and what all charts of a section show, in one answer.

Pages that show the same ask at the same time, since each load is told to all of them: they share one answer.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from embedsink.auth.key import Key, KeyKind
from embedsink.concurrency.single_flight import SingleFlight
from embedsink.concurrency.throttle import Throttle
from embedsink.dashboards.files import dashboards_with, files_of, find_dashboard
from embedsink.dashboards.lint import check_dashboards, find_mistakes
from embedsink.dashboards.model import Dashboard, Gauge, Measure, Section
from embedsink.dashboards.period import PARAMETERS as PERIOD_PARAMETERS
from embedsink.dashboards.period import Period, period_of
from embedsink.dashboards.query import answer_section
from embedsink.dashboards.time_axis import span_of
from embedsink.engine import Engine
from embedsink.errors import Misconfigured, Refused, Unavailable, quote
from embedsink.http.authentication import require_key
from embedsink.http.etag import EtagCheck, representation_key
from embedsink.http.execute import cancel_on_disconnect, run_query
from embedsink.http.query_params import check_parameters
from embedsink.http.security_headers import NO_CACHE
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report, all_reports
from embedsink.store.reader import EVERYTHING, Reader

log = logging.getLogger(__name__)

PATH = "/api/v1/dashboards"
DASHBOARD_ROUTE = f"{PATH}/{{name}}"
ROUTE = f"{DASHBOARD_ROUTE}/sections/{{section}}"
# No settings, since nobody would gain: an answer is of use until something is loaded, for a minute at most, and only to
# pages that show the same. For 32 different sections within that time there is room; a further one is read once more.
ANSWERS_KEPT_MAX = 32
ANSWERS_KEPT_BYTES_MAX = 4 * 1_048_576
_LISTED = {"title", "description"}


class Dashboards:
    """The dashboards, and what their sections show.

    An operator's file may be wrong: it is a picture, and for its sake no event is lost. It is logged, and told to
    whoever opens it.

    Args:
        own: the operator's folder of them; it need not be there.

    Raises:
        Misconfigured: a file that embedsink brings along is no dashboard.
    """

    def __init__(self, own: Path) -> None:
        self.mistakes: dict[str, str] = {}
        self.by_name = dashboards_with(own, on_mistake=self._tell)
        self._own = {path.stem for path in files_of(own)}
        self._answers = _Answers()
        self._reports: dict[str, Report] = {}

    def check(self, engine: Engine) -> None:
        """Hold the files against the reports, once these are known.

        Raises:
            Misconfigured: a file that embedsink brings along names what no report has.
            Unavailable: `not_ready` while the store, which describes the reports, is away.
        """
        if not self._reports:
            with engine.store.reader(EVERYTHING, is_brief=True) as reader:
                reports = {report.name: report for report in all_reports(reader)}
            own = {name: one for name, one in self.by_name.items() if name in self._own}
            check_dashboards({name: one for name, one in self.by_name.items() if name not in own}, reports.values())
            mistakes = find_mistakes(own, reports.values())
            for name, error in mistakes.items():
                self._tell(name, error)
            self.by_name = {name: one for name, one in self.by_name.items() if name not in mistakes}
            self._reports = reports

    def _tell(self, name: str, error: Misconfigured) -> None:
        told = f"{error} Then start the server anew."
        log.error("dashboard_wrong", extra={"detail": told})
        self.mistakes[name] = told

    def reports(self, engine: Engine, name: str) -> dict[str, Report]:
        """Every report by its name, for a dashboard that is right.

        Raises:
            Unavailable: `not_ready` while the store is away; and where it was away at the start, and a file is wrong.
        """
        try:
            self.check(engine)
        except Misconfigured as error:
            log.error("dashboard_wrong", extra={"detail": str(error)})
            raise Unavailable(Reason.NOT_READY, f"{error} Then start the server anew.", retry_after_s=60) from error
        self.find(name)
        return self._reports

    def find(self, name: str) -> Dashboard:
        """A dashboard.

        Raises:
            Refused: `not_found`.
            Unavailable: `not_ready` for one whose file is wrong.
        """
        if name in self.mistakes:
            raise Unavailable(Reason.NOT_READY, self.mistakes[name], retry_after_s=60)
        return find_dashboard(self.by_name, name)

    async def list_dashboards(self, request: Request) -> Response:
        """Which there are, but for those whose file is wrong."""
        require_key(request, KeyKind.READ)
        check_parameters(request.query_params, ())
        listed = [{"name": name} | one.model_dump(include=_LISTED) for name, one in self.by_name.items()]
        return Response(orjson.dumps(listed), media_type="application/json", headers=NO_CACHE)

    async def show_dashboard(self, request: Request) -> Response:
        """What a dashboard says, as in its file: whoever draws it elsewhere needs to know."""
        require_key(request, KeyKind.READ)
        check_parameters(request.query_params, ())
        dashboard = self.find(request.path_params["name"])
        said = dashboard.model_dump_json(exclude_unset=True)
        return Response(said, media_type="application/json", headers=NO_CACHE)

    async def show_section(self, request: Request) -> Response:
        """What the charts of a section show, in the reader's scope; 304 where the reader has it."""
        key = require_key(request, KeyKind.READ)
        name, id = request.path_params["name"], request.path_params["section"]
        dashboard = self.find(name)
        section = dashboard.section(id)
        if section is None:
            there_are = ", ".join(section.id for section in dashboard.sections)
            raise Refused(Reason.NOT_FOUND, f"section {quote(id)} does not exist in {name}. There are {there_are}.")
        period = await run_in_threadpool(parse_period, request, key)
        # The period goes on with the clock, and so do pending questions.
        etag = EtagCheck.of(request, key, is_timed=True)
        if etag.is_known:
            return etag.not_modified(NO_CACHE)
        engine: Engine = request.state.engine
        if all(isinstance(tile, Gauge) for tile in section.charts):
            # What the server knows of itself is of this moment.
            told = await run_in_threadpool(self._answer, None, engine, section, period, name)
            return Response(told, media_type="application/json", headers=NO_CACHE | {"Cache-Control": "no-store"})

        def current_tag() -> str:
            return EtagCheck.of(request, key, is_timed=True).tag

        async def make() -> bytes:
            # Of the moment at which it is begun, as its tag is: the period goes on while one waits.
            begun = await run_in_threadpool(parse_period, request, key)
            ask = partial(self._answer, engine=engine, section=section, period=begun, name=name)
            return await run_query(engine, engine.report_slots.place(key.key_id), begun.scope.variables(), ask)

        question = representation_key(request, key)
        answer = self._answers.answer(question, current_tag, make, throttle=engine.throttle, key_id=key.key_id)
        tag, body = await cancel_on_disconnect(request, answer)
        return Response(body, media_type="application/json", headers=NO_CACHE | {"ETag": tag})

    def _answer(self, reader: Reader | None, engine: Engine, section: Section, period: Period, name: str) -> bytes:
        """The answer, in a thread; a section of gauges alone needs no reader."""
        now = datetime.now(UTC)
        charts: dict[str, Any] = {}
        if reader is not None:
            charts |= answer_section(reader, section, period, reports=self.reports(engine, name), now=now)
        # They are of all deployments: who reads some of them is not told.
        hides = period.scope.hides_arrival
        charts |= {
            tile.id: {"value": None if hides else _MEASURES[tile.measure](engine)}
            for tile in section.charts
            if isinstance(tile, Gauge)
        }
        told = {
            "span": span_of(period.scope, now=now),
            "interval": period.scope.interval,
            "compared": period.before is not None,
            "charts": charts,
        }
        return orjson.dumps(told)


def parse_period(request: Request, key: Key) -> Period:
    """The period of an address, within the key's scope.

    Raises:
        Refused: `bad_parameter` or `out_of_scope`.
    """
    query = request.query_params
    check_parameters(query, PERIOD_PARAMETERS)
    asked = {name: query.get(name) for name in PERIOD_PARAMETERS}
    now = datetime.now(UTC)
    return period_of(asked, deployments=query.getlist("deployment"), allowed=key.deployments, now=now)


class _Answers:
    """The latest answers by their tags, and those that are being made."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._shared = SingleFlight()

    async def answer(
        self,
        question: tuple[str, ...],
        current_tag: Callable[[], str],
        make: Callable[[], Coroutine[Any, Any, bytes]],
        *,
        throttle: Throttle,
        key_id: str,
    ) -> tuple[str, bytes]:
        """The answer to a question and its tag.

        Who asks with the same key while it waits for its turn shares it, since it will have what is loaded by then.
        Another key waits among its own: the first may have much that waits before.

        Args:
            question: what is asked, whatever is loaded.
            current_tag: that of an answer that is begun in this moment.
            make: makes it.
            throttle: gives the turns.
            key_id: whose turns.
        """
        if (tag := current_tag()) in self._kept or (key_id, tag) in self._shared:
            return tag, await self._of(tag, make, key_id)

        async def make_at_its_turn() -> tuple[str, bytes]:
            self._shared.begin((key_id, question))
            tag = current_tag()
            return tag, await self._of(tag, make, key_id)

        return await self._shared.answer((key_id, question), lambda: throttle.answer(make_at_its_turn, key_id=key_id))

    async def _of(self, tag: str, make: Callable[[], Coroutine[Any, Any, bytes]], key_id: str) -> bytes:
        """The answer of a tag, made where there is none."""
        if tag in self._kept:
            self._kept.move_to_end(tag)
            return self._kept[tag]

        async def make_and_keep() -> bytes:
            self._keep(tag, made := await make())
            return made

        return await self._shared.answer((key_id, tag), make_and_keep)

    def _keep(self, tag: str, made: bytes) -> None:
        self._kept[tag] = made
        while len(self._kept) > ANSWERS_KEPT_MAX or sum(map(len, self._kept.values())) > ANSWERS_KEPT_BYTES_MAX:
            self._kept.popitem(last=False)


def _loading_delay_s(engine: Engine) -> float:
    waiting_since = engine.loader.waiting_since()
    return 0.0 if waiting_since is None else max(0.0, time.time() - waiting_since)


def _snapshot_age_s(engine: Engine) -> float | None:
    published_at = engine.loader.status.snapshot_at
    return None if published_at is None else max(0.0, time.time() - published_at)


_MEASURES: dict[Measure, Callable[[Engine], Any]] = {
    "loading_delay_s": _loading_delay_s,
    "journal_segment_count": lambda engine: engine.journal.space.segment_count,
    "journal_bytes": lambda engine: engine.journal.space.byte_count,
    "snapshot_age_s": _snapshot_age_s,
    "damaged_count": lambda engine: len(engine.loader.status.damaged),
}
