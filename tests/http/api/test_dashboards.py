"""Dashboards: the data of sections, their scope, their caching, and invalid files."""

import html
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, Self, get_args

import pytest

import embedsink.dashboards.files
import embedsink.http.api.dashboards
import embedsink.http.etag
import embedsink.http.section_cache
from embedsink.concurrency.throttle import CpuMeter
from embedsink.dashboards.files import dashboards_folder, read_dashboards
from embedsink.dashboards.model import Measure
from embedsink.dashboards.period import period_of
from embedsink.errors import Misconfigured
from embedsink.http.dashboard_registry import DashboardRegistry
from embedsink.http.gauges import MEASURES
from embedsink.store.reader import Reader
from embedsink.store.revisions import Revisions
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import event_or_action, view

USE = "/api/v1/dashboards/overview/sections/use"
QUALITY = "/api/v1/dashboards/overview/sections/quality"
DAY_MS = 86_400_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def delivery(deployment: int, viewer: str, *events: dict[str, Any]) -> dict[str, Any]:
    context = {"deployment": deployment, "viewer": viewer, "session": f"s-{viewer}", "tenant": f"t{deployment}"}
    return {"context": context, "events": list(events)}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server with views of two deployments: three and one now, two and none in the week before."""
    with open_server(tmp_path_factory.mktemp("data"), segment_seal_s=0.01) as server:
        key = server.key()
        now, before = now_ms() - 60_000, now_ms() - 7 * DAY_MS - 60_000
        for sent in (
            delivery(1, "ann", view(timestamp=now), view(timestamp=now), event_or_action("event:error", timestamp=now)),
            delivery(1, "bob", view({"surface": "app"}, timestamp=now, surface="app")),
            delivery(1, "ann", view(timestamp=before), view(timestamp=before)),
            delivery(2, "cid", view(timestamp=now)),
        ):
            assert server.post(sent, key=key).status_code == 202
        read = server.key("read")
        server.rows("/api/v1/reports/download_audit", key=read, count=0)
        end = time.monotonic() + 15
        while sum(row["view_count"] for row in server.get("/api/v1/reports/views", key=read).json()) < 6:
            assert time.monotonic() < end
            time.sleep(0.02)
        yield server


def charts(server: Server, path: str, key: str) -> dict[str, Any]:
    response = server.get(path, key=key)
    assert response.status_code == 200, response.text
    tiles: dict[str, Any] = response.json()["charts"]
    return tiles


def test_numbers_equal_those_of_the_reports_in_both_periods(seeded: Server) -> None:
    tiles = charts(seeded, USE, seeded.key("read"))
    assert (tiles["views"]["value"], tiles["views"]["value_before"]) == (4, 2)
    assert (tiles["viewer-count"]["value"], tiles["viewer-count"]["value_before"]) == (3, 1)
    assert (tiles["downloads"]["value"], tiles["downloads"]["value_before"]) == (0, 0)
    nobodys = charts(seeded, USE, seeded.key("read", deployments=[3]))
    assert (nobodys["viewer-count"]["value"], nobodys["viewer-count"]["value_before"]) == (0, 0)
    tiles = charts(seeded, QUALITY, seeded.key("read"))
    assert tiles["errors-per-view"]["value"] == pytest.approx(25)
    assert tiles["answered"]["value"] is None  # Without questions, the share is null.


def test_a_scoped_key_sees_only_its_deployments_in_every_tile(seeded: Server) -> None:
    key = seeded.key("read", deployments=[2])
    for name, sections in {"overview": ("use", "quality", "top"), "tenants": ("use",)}.items():
        for section in sections:
            text = seeded.get(f"/api/v1/dashboards/{name}/sections/{section}", key=key).text
            assert "t1" not in text
    tiles = charts(seeded, USE, key)
    assert (tiles["views"]["value"], tiles["views"]["value_before"]) == (1, 0)
    rows = charts(seeded, USE, key)["views-by-surface"]
    assert sum(row[rows["columns"].index("view_count")] for row in rows["rows"]) == 1
    assert problem(seeded.get(f"{USE}?deployment=1", key=key)) == "out_of_scope"


def test_a_chart_has_the_rows_of_both_periods_on_one_time_axis(seeded: Server) -> None:
    chart = charts(seeded, f"{USE}?deployment=1", seeded.key("read"))["views-by-surface"]
    indexes = {name: chart["columns"].index(name) for name in chart["columns"]}
    # Just after midnight, all views are yesterday's, and today has a row of zeros.
    viewed, before = ([row for row in chart[part] if row[indexes["view_count"]]] for part in ("rows", "before"))
    assert sum(row[indexes["view_count"]] for row in viewed) == 3
    [earlier], [today, *_] = before, viewed
    assert earlier[indexes["view_count"]] == 2
    assert earlier[indexes["period_start"]] == today[indexes["period_start"]]
    start, end, left, right = (today[indexes[name]] for name in ("period_start", "period_end", "bar_start", "bar_end"))
    assert end - start == DAY_MS
    assert start < left < right < end


def test_a_section_can_be_filtered(seeded: Server) -> None:
    key = seeded.key("read")
    assert charts(seeded, f"{USE}?surface=app", key)["views"]["value"] == 1
    assert charts(seeded, f"{USE}?tenant=t2", key)["views"]["value"] == 1
    assert charts(seeded, f"{USE}?deployment=1&deployment=2&compare=off", key)["views"]["value_before"] is None


def test_a_section_answers_304_until_the_next_load(seeded: Server) -> None:
    key = seeded.key("read")
    tag = seeded.get(USE, key=key).headers["etag"]
    second_response = seeded.get(USE, key=key, headers={"If-None-Match": tag})
    # A new minute may have begun, which changes the ETag.
    if second_response.status_code != 304:
        tag = second_response.headers["etag"]
        second_response = seeded.get(USE, key=key, headers={"If-None-Match": tag})
    assert (second_response.status_code, second_response.content) == (304, b"")
    other = seeded.get(USE, key=seeded.key("read", deployments=[2]), headers={"If-None-Match": tag})
    assert other.status_code == 200


def test_pages_of_the_same_section_share_one_query(seeded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    key, other = seeded.key("read"), seeded.key("read", deployments=[2])
    reader = seeded.engine.store.reader
    queries: list[object] = []

    def counted(variables: Any, **_: Any) -> Any:
        queries.append(variables)
        time.sleep(0.3)  # until all requests have arrived
        return reader(variables)

    monkeypatch.setattr(seeded.engine.store, "reader", counted)
    path = f"{USE}?period=90d"
    responses = seeded.get_concurrently(*[(path, key)] * 8, (path, other))
    assert [response.status_code for response in responses] == [200] * 9
    assert len({response.content for response in responses[:8]}) == 1
    assert responses[8].content != responses[0].content
    # A new minute may have begun, which changes the ETag.
    assert len(queries) in (2, 3)
    query_count = len(queries)
    for _ in range(4):
        seeded.get_concurrently(*[(path, key)] * 8)
    assert len(queries) - query_count <= 1


def test_while_ingest_is_busy_one_section_is_queried_at_a_time(seeded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    key, reader = seeded.key("read"), seeded.engine.store.reader
    reading: list[int] = [0]

    @contextmanager
    def counted(variables: Any, **_: Any) -> Iterator[Reader]:
        reading.append(reading[-1] + 1)
        time.sleep(0.1)
        with reader(variables) as store_reader:
            yield store_reader
        reading.append(reading[-1] - 1)

    monkeypatch.setattr(CpuMeter, "_demand_s", lambda _: time.monotonic())  # simulates a loop that is always busy
    monkeypatch.setattr(seeded.engine.store, "reader", counted)
    responses = seeded.get_concurrently(*((f"{path}?period=30d", key) for path in (USE, QUALITY)))
    assert [response.status_code for response in responses] == [200, 200]
    assert reading == [0, 1, 0, 1, 0]


def test_requests_share_a_query_that_waits_for_its_turn(seeded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    key, reader = seeded.key("read"), seeded.engine.store.reader
    queries: list[object] = []

    def counted(variables: Any, **_: Any) -> Any:
        queries.append(variables)
        time.sleep(0.3)  # until all requests have arrived
        return reader(variables)

    revisions = (str(number) for number in itertools.count())
    monkeypatch.setattr(Revisions, "of", lambda *_: next(revisions))  # Simulate a load between any two requests.
    monkeypatch.setattr(CpuMeter, "_demand_s", lambda _: time.monotonic())
    monkeypatch.setattr(seeded.engine.store, "reader", counted)
    responses = seeded.get_concurrently((QUALITY, key), *[(USE, key)] * 3)
    assert [response.status_code for response in responses] == [200] * 4
    assert len(queries) == 2
    assert len({(response.content, response.headers["etag"]) for response in responses[1:]}) == 1
    assert seeded.get(USE, key=key).headers["etag"] != responses[1].headers["etag"]
    assert len(queries) == 3  # A later request includes the rows loaded in between.


def test_a_section_shows_the_period_of_the_start_of_its_query(seeded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    periods = [period_of({"period": period}, now=datetime.now(UTC)) for period in ("24h", "7d")]
    monkeypatch.setattr(embedsink.http.api.dashboards, "parse_period", lambda *_: periods.pop(0))
    # The request arrives before midnight, and its query begins after it.
    assert seeded.get(f"{USE}?period=7d&timezone=Asia/Tokyo", key=seeded.key("read")).json()["interval"] == "day"


@pytest.mark.parametrize(("kept_max", "bytes_max", "made_again"), [(2, 1 << 20, ["b"]), (9, 1, ["a", "a", "b"])])
def test_only_the_latest_responses_are_cached(
    seeded: Server, monkeypatch: pytest.MonkeyPatch, kept_max: int, bytes_max: int, made_again: list[str]
) -> None:
    class Standing(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(2026, 11, 22, tzinfo=tz)

    monkeypatch.setattr(embedsink.http.etag, "datetime", Standing)  # so that no new minute begins meanwhile
    monkeypatch.setattr(embedsink.http.section_cache, "RESPONSES_MAX", kept_max)
    monkeypatch.setattr(embedsink.http.section_cache, "CACHED_BYTES_MAX", bytes_max)
    key, reader, computed = seeded.key("read"), seeded.engine.store.reader, []

    def recorded(variables: Any, **_: Any) -> Any:
        computed.append(variables["tenant"][0])
        return reader(variables)

    monkeypatch.setattr(seeded.engine.store, "reader", recorded)
    for tenant in ("a", "b", "a", "c", "a", "b"):
        assert seeded.get(f"{USE}?tenant={tenant}{kept_max}", key=key).status_code == 200
    assert sorted(computed) == sorted(["a", "b", "c", *made_again])


def test_gauges_are_never_cached(seeded: Server) -> None:
    response = seeded.get("/api/v1/dashboards/pipeline/sections/server", key=seeded.key("read"))
    assert response.headers["cache-control"] == "no-store"
    gauges = {name: gauge["value"] for name, gauge in response.json()["charts"].items()}
    assert gauges["damaged"] == 0
    assert gauges["delay"] >= 0
    assert gauges["segments"] >= 0
    arrived = charts(seeded, USE.replace("use", "top"), seeded.key("read"))["last-event"]["value"]
    assert abs(arrived - now_ms()) < 300_000


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        (
            "/api/v1/dashboards/overvew/sections/use",
            404,
            'dashboard "overvew" does not exist. Did you mean "overview"?',
        ),
        ("/api/v1/dashboards/overview/sections/head", 404, 'section "head" does not exist in overview. Sections: use'),
        (f"{USE}?period=1y", 400, 'period: "1y" is not one of 24h, 7d, 30d, 90d.'),
        (f"{USE}?interval=day", 400, 'parameter "interval" does not exist.'),
    ],
)
def test_unknown_dashboards_and_sections_are_not_found(seeded: Server, path: str, status: int, expected: str) -> None:
    response = seeded.get(path, key=seeded.key("read"))
    assert response.status_code == status
    assert response.json()["detail"].startswith(expected)


@pytest.mark.parametrize(
    "query",
    [
        "since=0001-01-01T00:00Z&until=9999-12-31T00:00Z",
        "since=0001-01-01T00:00Z&until=0001-01-01T00:00Z",
        "since=9999-12-31T23:59:59.999999Z&until=9999-12-31T23:59:59.999999Z",
        "since=0001-01-01T00:00Z",
        "since=9999-12-31T00:00Z",
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_a_period_may_be_as_long_as_dates_allow(seeded: Server, query: str, zone: str) -> None:
    response = seeded.get(f"{USE}?{query}&timezone={zone}", key=seeded.key("read"))
    assert response.status_code == 200, response.text
    start, end = response.json()["span"]
    assert start < end


def wrong(folder: Path) -> Path:
    chart = {"id": "a", "kind": "number", "title": "A", "report": "views", "how": "sum", "column": "views"}
    board = {"title": "T", "description": "D", "sections": [{"id": "s", "title": "S", "charts": [chart]}]}
    (folder / "mine.json").write_text(json.dumps(board))
    return folder


def test_an_operators_dashboard_is_listed_shown_and_answered(tmp_path: Path) -> None:
    dashboards_folder = tmp_path / "dashboards"
    dashboards_folder.mkdir()
    file = wrong(dashboards_folder) / "mine.json"
    file.write_text(file.read_text().replace('"column": "views"', '"column": "view_count"'))
    with open_server(tmp_path) as server:
        key = server.key("read")
        cookie = server.request(
            "POST",
            "/login",
            content=f"key={key}",
            headers={"content-type": "application/x-www-form-urlencoded"},
        ).headers["set-cookie"]
        assert 'href="/dashboards/mine"' in server.get("/dashboards/", headers={"cookie": cookie}).text
        assert server.get("/dashboards/mine", headers={"cookie": cookie}).status_code == 200
        assert charts(server, "/api/v1/dashboards/mine/sections/s", key)["a"]["value"] == 0


def test_programs_can_read_the_list_and_the_definitions(seeded: Server) -> None:
    key = seeded.key("read", deployments=[1])
    listed = seeded.get("/api/v1/dashboards", key=key).json()
    built_in = read_dashboards()
    assert [entry["name"] for entry in listed] == list(built_in)
    assert listed[0] == {"name": "overview", "title": "Overview", "description": built_in["overview"].description}
    for name in built_in:
        file = json.loads((dashboards_folder() / f"{name}.json").read_text())
        assert seeded.get(f"/api/v1/dashboards/{name}", key=key).json() == file
    unknown = seeded.get("/api/v1/dashboards/overvew", key=key)
    assert (unknown.status_code, problem(unknown)) == (404, "not_found")
    assert 'Did you mean "overview"?' in unknown.json()["detail"]
    for path in ("/api/v1/dashboards", "/api/v1/dashboards/overview"):
        assert seeded.get(path).status_code == 401
        assert problem(seeded.get(path, key=seeded.key("ingest"))) == "wrong_kind"


@pytest.mark.parametrize("content", [None, "{", '{"title": 1}'], ids=["wrong column", "no JSON", "wrong type"])
def test_an_invalid_file_of_an_operator_is_reported_and_does_not_stop_ingest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    dashboards_folder = tmp_path / "dashboards"
    dashboards_folder.mkdir()
    file = wrong(dashboards_folder) / "mine.json"
    file.write_text(content or file.read_text())
    with open_server(tmp_path) as server:
        assert server.post(view(), key=server.key()).status_code == 202
        assert server.get("/readyz").status_code == 200
        key = server.key("read")
        response = server.get("/api/v1/dashboards/mine/sections/s", key=key)
        assert (response.status_code, problem(response)) == (503, "not_ready")
        sentence = response.json()["detail"]
        assert sentence.startswith("dashboards/mine.json: ")
        assert sentence.endswith("Then restart the server.")
        assert server.get("/api/v1/dashboards/overview/sections/use", key=key).status_code == 200
        form = {"content-type": "application/x-www-form-urlencoded"}
        cookie = server.request("POST", "/login", content=f"key={key}", headers=form).headers["set-cookie"]
        listed = html.unescape(server.get("/dashboards/", headers={"cookie": cookie}).text)
        assert 'href="/dashboards/mine"' in listed
        assert sentence in listed
        page = server.get("/dashboards/mine", headers={"cookie": cookie, "accept": "text/html"})
        assert (page.status_code, sentence in html.unescape(page.text)) == (503, True)
    [seeded] = [record for record in caplog.records if record.getMessage() == "dashboard_invalid"]
    assert seeded.__dict__["detail"] == sentence


def test_an_invalid_file_with_a_built_in_name_hides_the_built_in_dashboard(tmp_path: Path) -> None:
    (tmp_path / "dashboards").mkdir()
    (tmp_path / "dashboards" / "overview.json").write_text("{")
    with open_server(tmp_path) as server:
        response = server.get("/api/v1/dashboards/overview/sections/use", key=server.key("read"))
        assert (response.status_code, problem(response)) == (503, "not_ready")
        assert "dashboards/overview.json: is not JSON" in response.json()["detail"]


@pytest.fixture
def with_a_wrong_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.dashboards.files, "dashboards_folder", lambda: wrong(tmp_path))


@pytest.mark.usefixtures("with_a_wrong_file")
def test_an_invalid_built_in_file_stops_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(
            Misconfigured, match=r'^dashboards/mine\.json: sections\[0\]\.charts\[0\]\.column: column "views"'
        ),
        open_server(tmp_path / "data"),
    ):
        pass


@pytest.mark.usefixtures("with_a_wrong_file")
def test_an_invalid_file_that_is_detected_late_is_reported_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Simulates a store that can't be opened at the start, but can be opened some seconds later.
    monkeypatch.setattr(DashboardRegistry, "check", lambda boards, engine: None)
    with open_server(tmp_path / "data") as server:
        monkeypatch.undo()
        response = server.get("/api/v1/dashboards/mine/sections/s", key=server.key("read"))
        assert (response.status_code, problem(response)) == (503, "not_ready")
        assert response.json()["detail"].startswith("dashboards/mine.json: sections[0].charts[0].column: ")
        assert server.get("/api/v1/reports/views", key=server.key("read")).status_code == 200
    [seeded] = [record for record in caplog.records if record.getMessage() == "dashboard_invalid"]
    assert "dashboards/mine.json" in seeded.__dict__["detail"]


def test_the_model_allows_exactly_the_measures_of_the_server() -> None:
    assert set(get_args(Measure)) == set(MEASURES)


def test_dashboards_need_a_read_key(seeded: Server) -> None:
    assert seeded.get(USE).status_code == 401
    assert problem(seeded.get(USE, key=seeded.key("ingest"))) == "wrong_kind"


def test_a_section_for_a_key_that_is_limited_to_tenants_is_not_cached(server: Server) -> None:
    path = "/api/v1/dashboards/overview/sections/use"
    cache = server.state["section_cache"]
    # A load of another tenant replaces a cached response, so its age would show when that tenant sends events.
    assert server.get(path, key=server.key("read", tenants=["acme"])).status_code == 200
    assert len(cache._responses) == 0
    assert server.get(path, key=server.key("read", deployments=[7])).status_code == 200
    assert len(cache._responses) == 1
