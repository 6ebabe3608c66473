"""`GET /api/v1/dashboards/{name}/sections/{section}`: what all charts of a section show, in one answer.

Pages that show the same ask at the same time, since each load is told to all of them: they share one answer.
"""

import contextlib
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

from embedsink.charts import (
    PERIOD_PARAMETERS,
    Dashboard,
    Gauge,
    Measure,
    Period,
    Section,
    answer_section,
    check_dashboards,
    dashboards_with,
    find_dashboard,
    period_of,
    span_of,
)
from embedsink.errors import Misconfigured, Refused, Unavailable, quote
from embedsink.http.access import require_key
from embedsink.http.freshness import Freshness
from embedsink.http.headers import ASKED_ABOUT
from embedsink.http.parameters import check_parameters
from embedsink.http.reading import ask_store, while_awaited
from embedsink.keys import Key, KeyKind
from embedsink.reasons import Reason
from embedsink.reports import Report, all_reports
from embedsink.sharing import Shared
from embedsink.sink import Sink
from embedsink.store import EVERYTHING, Reader

log = logging.getLogger(__name__)

ROUTE = "/api/v1/dashboards/{name}/sections/{section}"
ANSWERS_KEPT_MAX = 32
ANSWERS_KEPT_BYTES_MAX = 4 * 1_048_576


class Dashboards:
    """The dashboards, and what their sections show.

    Args:
        own: the operator's folder of them; it need not be there.

    Raises:
        Misconfigured: a file is no dashboard.
    """

    def __init__(self, own: Path) -> None:
        self.by_name = dashboards_with(own)
        self._answers = _Answers()
        self._reports: dict[str, Report] = {}

    def check(self, sink: Sink) -> None:
        """Hold the files against the reports, once these are known.

        Raises:
            Misconfigured: a file names what no report has.
            Unavailable: `not_ready` while the store, which describes the reports, is away.
        """
        if not self._reports:
            with sink.store.reader(EVERYTHING) as reader:
                reports = {report.name: report for report in all_reports(reader)}
            check_dashboards(self.by_name, reports.values())
            self._reports = reports

    def reports(self, sink: Sink) -> dict[str, Report]:
        """Every report by its name.

        Raises:
            Unavailable: `not_ready` while the store is away; and where it was away at the start, and a file is wrong.
        """
        try:
            self.check(sink)
        except Misconfigured as error:
            log.error("dashboard_wrong", extra={"detail": str(error)})
            raise Unavailable(Reason.NOT_READY, f"{error} Then start the server anew.", retry_after_s=60) from error
        return self._reports

    def find(self, name: str) -> Dashboard:
        """A dashboard.

        Raises:
            Refused: `not_found`.
        """
        return find_dashboard(self.by_name, name)

    async def show_section(self, request: Request) -> Response:
        """What the charts of a section show, in the reader's scope; 304 where the reader has it."""
        key = require_key(request, KeyKind.READ)
        name, id = request.path_params["name"], request.path_params["section"]
        dashboard = self.find(name)
        section = dashboard.section(id)
        if section is None:
            there_are = ", ".join(section.id for section in dashboard.sections)
            raise Refused(Reason.NOT_FOUND, f"section {quote(id)} does not exist in {name}. There are {there_are}.")
        period = await run_in_threadpool(asked_period, request, key)
        # The period goes on with the clock, and so do pending questions.
        freshness = Freshness.of(request, key, is_timed=True)
        if freshness.is_known:
            return freshness.not_modified(ASKED_ABOUT)
        sink: Sink = request.state.sink
        if all(isinstance(tile, Gauge) for tile in section.charts):
            # What the server knows of itself is of this moment.
            told = await run_in_threadpool(self._answer, None, sink, section, period)
            return Response(told, media_type="application/json", headers=ASKED_ABOUT | {"Cache-Control": "no-store"})

        def answer() -> Coroutine[Any, Any, bytes]:
            ask = partial(self._answer, sink=sink, section=section, period=period)
            return ask_store(sink, sink.report_slots, period.scope.variables(), ask)

        body = await while_awaited(request, self._answers.answer(freshness.tag, answer))
        return Response(body, media_type="application/json", headers=ASKED_ABOUT | freshness.headers())

    def _answer(self, reader: Reader | None, sink: Sink, section: Section, period: Period) -> bytes:
        """The answer, in a thread; a section of gauges alone needs no reader."""
        now = datetime.now(UTC)
        charts: dict[str, Any] = {}
        if reader is not None:
            charts |= answer_section(reader, section, period, reports=self.reports(sink), now=now)
        charts |= {
            tile.id: {"value": _MEASURES[tile.measure](sink)} for tile in section.charts if isinstance(tile, Gauge)
        }
        told = {
            "span": span_of(period.scope, now=now),
            "interval": period.scope.interval,
            "compared": period.before is not None,
            "charts": charts,
        }
        return orjson.dumps(told)


def asked_period(request: Request, key: Key) -> Period:
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
        self._shared = Shared()

    async def answer(self, tag: str, make: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The answer of a tag, made where there is none."""
        if tag in self._kept:
            self._kept.move_to_end(tag)
            return self._kept[tag]

        async def make_and_keep() -> bytes:
            self._keep(tag, made := await make())
            return made

        return await self._shared.answer(tag, make_and_keep)

    def _keep(self, tag: str, made: bytes) -> None:
        self._kept[tag] = made
        while len(self._kept) > ANSWERS_KEPT_MAX or sum(map(len, self._kept.values())) > ANSWERS_KEPT_BYTES_MAX:
            self._kept.popitem(last=False)


def _loading_delay_s(sink: Sink) -> float:
    waiting_since = sink.loader.waiting_since()
    return 0.0 if waiting_since is None else max(0.0, time.time() - waiting_since)


def _snapshot_age_s(sink: Sink) -> float | None:
    published_at = sink.loader.status.snapshot_at
    return None if published_at is None else max(0.0, time.time() - published_at)


def _journal_bytes(sink: Sink) -> int:
    sizes = 0
    for segment in sink.journal.segments():
        with contextlib.suppress(FileNotFoundError):  # A snapshot covers it by now.
            sizes += segment.stat().st_size
    return sizes


_MEASURES: dict[Measure, Callable[[Sink], Any]] = {
    "loading_delay_s": _loading_delay_s,
    "journal_segment_count": lambda sink: len(sink.journal.segments()),
    "journal_bytes": _journal_bytes,
    "snapshot_age_s": _snapshot_age_s,
    "damaged_count": lambda sink: len(sink.loader.status.damaged),
}
