"""Rows over HTTP: formats, file names, entity tags and pages."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import httpx2
import pytest

import embedsink.http.etag
import embedsink.http.report_response
import embedsink.http.spool
from embedsink.http.api.exports import EVENT_FORMATS
from embedsink.http.report_response import MEDIA_TYPES
from embedsink.ingest.records import DirectoryChange, directory_line
from embedsink.reports.catalog import depends_on_clock, report_names
from embedsink.reports.format import REPORT_FORMATS, Format
from embedsink.reports.format_writers import write_rows
from embedsink.store.reader import Reader
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import event_or_action, view

AI_STATUSES = ("submitted", "completed")
PATHS = [*(f"reports/views.{format}" for format in REPORT_FORMATS), *(f"events.{format}" for format in EVENT_FORMATS)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server with three views and two queries in deployment 7."""
    with open_server(tmp_path_factory.mktemp("data"), segment_seal_s=0.01) as server:
        queries = [event_or_action("event:ai-query", {"query": query}) for query in ("why?", "how?")]
        send(server, [view(), view(), view(), *queries])
        yield server


def send(server: Server, events: list[dict[str, Any]]) -> None:
    """Send events, and wait until they are loaded."""
    before = server.engine.loader.status.accepted_count
    context = {"deployment": 7, "session": "s", "viewer": "v"}
    assert server.post({"context": context, "events": events}, key=server.key()).status_code == 202
    reader = server.key("read")
    while server.engine.loader.status.accepted_count < before + len(events):
        server.get("/api/v1/reports", key=reader)


def get(server: Server, path: str, key: str | None = None, **headers: str) -> httpx2.Response:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.get(f"/api/v1/{path}", key=key or server.key("read"), headers=header_fields)


def test_a_page_is_consistent_during_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_server(tmp_path / "data", segment_seal_s=0.01) as server:
        send(server, [view(), view()])

        def load_and_write(*arguments: Any, **options: Any) -> None:
            send(server, [view() for _ in range(5)])
            write_rows(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(embedsink.http.report_response, "write_rows", load_and_write)
            response = get(server, "events.ndjson?limit=3")
        assert (len(response.text.splitlines()), response.headers.get("link")) == (2, None)
        assert len(get(server, "events.ndjson").text.splitlines()) == 7


@pytest.mark.parametrize("path", PATHS)
def test_a_response_has_its_media_type_and_length(loaded: Server, path: str) -> None:
    response = get(loaded, path)
    assert response.status_code == 200
    assert response.headers["content-type"] == MEDIA_TYPES[Format(path.rpartition(".")[2])]
    assert int(response.headers["content-length"]) == len(response.content)
    assert response.headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("reports/views.csv", "views.csv"),
        ("reports/views.parquet?since=2025-11-01&until=2025-12-01", "views_2025-11-01_2025-12-01.parquet"),
        ("reports/views.csv?since=2025-11-01&timezone=Asia/Tokyo", "views_2025-11-01.csv"),
        ("reports/views.arrow?since=2025-11-01T00:30", "views_2025-11-01.arrow"),
        ("events.ndjson?since=2025-11-01", "events_2025-11-01.ndjson"),
        ("summary.zip?since=2025-11-01&until=2025-12-01", "summary_2025-11-01_2025-12-01.zip"),
    ],
)
def test_a_file_name_contains_the_report_and_its_period(loaded: Server, path: str, name: str) -> None:
    assert get(loaded, path).headers["content-disposition"] == f'attachment; filename="{name}"'


def test_json_is_shown_inline(loaded: Server) -> None:
    assert "content-disposition" not in get(loaded, "reports/views").headers


@pytest.mark.parametrize("path", [*PATHS, "summary.zip"])
def test_a_report_answers_304_until_the_next_load(loaded: Server, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_the_clock(monkeypatch, 0)
    key = loaded.key("read")
    first = get(loaded, path, key)
    tag = first.headers["etag"]
    assert re.fullmatch(r'W/"[0-9a-f]{24}"', tag)
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        second_response = get(loaded, path, key, if_none_match=known)
        assert (second_response.status_code, second_response.content, second_response.headers["etag"]) == (
            304,
            b"",
            tag,
        )
        assert second_response.headers["cache-control"] == "private, no-cache"
    assert get(loaded, path, key, if_none_match='W/"other"').status_code == 200
    send(loaded, [view()])
    changed = get(loaded, path, key, if_none_match=tag)
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_different_requests_have_different_etags(loaded: Server) -> None:
    key, scoped = loaded.key("read"), loaded.key("read", deployments=[7])
    paths = ["reports/views", "reports/views.csv", "reports/views?surface=app", "reports/views?limit=1", "events.csv"]
    tags = [get(loaded, path, key_token).headers["etag"] for path in paths for key_token in (key, scoped)]
    assert len(set(tags)) == len(tags)
    assert get(loaded, paths[0], loaded.key("read")).headers["etag"] == tags[0]


@pytest.mark.parametrize(
    ("path", "lasts"),
    [
        ("reports/views", True),
        ("reports/views?since=2025-11-01", True),
        ("reports/views?since=7d", False),
        ("reports/ai_query", False),
        ("reports/ai_queries.csv", False),
        ("reports/tenants", False),
        ("reports/dashboards", True),
        ("reports/reach.csv", True),
        ("reports/sync_impact", True),
        ("events.csv", True),
    ],
)
def test_reports_that_depend_on_the_clock_expire_each_minute(
    loaded: Server, path: str, lasts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = loaded.key("read")
    stop_the_clock(monkeypatch, 0)
    tag = get(loaded, path, key).headers["etag"]
    assert get(loaded, path, key).headers["etag"] == tag
    stop_the_clock(monkeypatch, 1)
    assert (get(loaded, path, key).headers["etag"] == tag) is lasts


def stop_the_clock(monkeypatch: pytest.MonkeyPatch, minute: int) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "Stopped":
            return cls(2026, 11, 1, 12, minute, tzinfo=tz or UTC)

    monkeypatch.setattr(embedsink.http.etag, "datetime", Stopped)


def test_timed_reports_are_detected_by_their_sql() -> None:
    timed = {name for name in report_names() if depends_on_clock(name)}
    assert timed == {"activity", "ai_queries", "ai_query", "ai_query_groups", "load_times", "tenants"}


@pytest.mark.parametrize("path", ["events.ndjson", "reports/ai_query.csv", "reports/ai_query.parquet"])
def test_links_lead_through_all_pages_in_any_format(loaded: Server, path: str) -> None:
    key = loaded.key("read")
    link: str | None = f"/api/v1/{path}?limit=1&since=9999d"
    arrivals = []
    for _ in range(100):
        assert link is not None
        response = loaded.get(link.replace(path, path.rpartition(".")[0] + ".csv") + "&columns=ingest_seq", key=key)
        arrivals += response.text.split()[1:]
        page = loaded.get(link, key=key)
        assert page.status_code == 200
        if "link" not in page.headers:
            assert "x-next-cursor" not in page.headers
            break
        match = re.fullmatch(r'<(/api/v1/\S+)>; rel="next"', page.headers["link"])
        assert match
        assert page.headers["x-next-cursor"] in match[1]
        assert "limit=1&since=9999d" in match[1]
        link = match[1]
    all_ingest_seqs = get(loaded, path.rpartition(".")[0] + ".csv?columns=ingest_seq", key).text.split()[1:]
    assert arrivals == sorted(all_ingest_seqs, key=int)
    assert len(set(arrivals)) == len(arrivals) > 1


def test_pages_have_the_requested_length_and_contain_every_row(loaded: Server) -> None:
    key = loaded.key("read")
    all_lines = get(loaded, "events.ndjson", key).text.splitlines()
    path, collected = "/api/v1/events.ndjson?limit=2", []
    while path:
        response = loaded.get(path, key=key)
        lines = response.text.splitlines()
        collected += lines
        path = response.headers.get("link", "<>").partition(">")[0][1:]
        assert len(lines) == 2 or not path
    assert collected == all_lines
    assert "key_id" not in json.loads(all_lines[0])


def test_a_cursor_is_valid_for_its_report_and_scope_only(loaded: Server) -> None:
    key = loaded.key("read")
    cursor = get(loaded, "events.csv?limit=1&since=9999d", key).headers["x-next-cursor"]
    assert get(loaded, f"events.ndjson?since=9999d&cursor={cursor}", key).status_code == 200
    for path in ("events.csv?", "events.csv?since=9999d&surface=app&", "reports/ai_query?since=9999d&"):
        response = get(loaded, f"{path}cursor={cursor}", key)
        assert problem(response) == "bad_parameter"
        assert response.json()["detail"].startswith("cursor: ")


def test_days_begin_at_midnight_in_the_readers_time_zone(loaded: Server) -> None:
    # The views occurred at 2025-11-20T00:00Z.
    for zone, start in (("Asia/Tokyo", "2025-11-19T15:00:00Z"), ("America/New_York", "2025-11-19T05:00:00Z")):
        rows = get(loaded, f"reports/views?timezone={zone}").json()
        assert {row["period_start"] for row in rows} == {start}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("reports/views?timezone=Europe/Berlim", 'Did you mean "Europe/Berlin"?'),
        ("reports/views?columns=surfac", 'Did you mean "surface"?'),
        ("reports/views.csv?bom=yes", 'bom: "yes" is not one of on, off.'),
        ("events.csv?columns=key_id", 'column "key_id" does not exist.'),
        ("summary.zip?columns=surface", 'parameter "columns" does not exist.'),
        ("summary.zip?limit=5", 'parameter "limit" does not exist.'),
        ("analytics.duckdb?since=7d", 'parameter "since" does not exist.'),
    ],
)
def test_an_invalid_parameter_is_reported(loaded: Server, path: str, message: str) -> None:
    response = get(loaded, path)
    assert problem(response) == "bad_parameter"
    assert message in response.json()["detail"]


@pytest.mark.parametrize("path", ["reports/view/schema", "reports/views.xlsx", "events.json", "events.xlsx"])
def test_an_unknown_report_answers_404_with_suggestions(loaded: Server, path: str) -> None:
    response = get(loaded, path)
    assert problem(response) == "not_found"
    assert re.search(r"Did you mean|There are|Formats: ", response.json()["detail"])


@pytest.mark.parametrize("path", ["reports/views", "events"])
@pytest.mark.parametrize("suffix", ["%1b%5b31m%0a", "%22", "x" * 70])
def test_an_unknown_suffix_is_quoted(loaded: Server, path: str, suffix: str) -> None:
    detail = get(loaded, f"{path}.{suffix}").json()["detail"]
    quoted = re.search(r'"(?:[^"\\]|\\.)*"', detail)
    assert quoted
    assert json.loads(quoted[0]).startswith(f"{path.removeprefix('reports/')}.")
    assert detail.isprintable()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server with rows for every report."""
    with open_server(tmp_path_factory.mktemp("data"), segment_seal_s=0.01) as server:
        types = ["view", "dashboard-loaded", "navigate", "download", "drilldown", "error", "x-filter"]
        events = [event_or_action(f"event:{type_}", seq=seq) for seq, type_ in enumerate(types, start=3)]
        events += [event_or_action("event:ai-query", {"query": "why?", "status": status}) for status in AI_STATUSES]
        events += [event_or_action("event:view", {"publicId": "sales", "novel": 1}), view(surface="moon")]
        context = {"deployment": 7, "session": "s", "viewer": "v", "tenant": "acme"}
        delivery = {"context": context, "events": events, "lost": {"queue_overflow": 3}}
        assert server.post(delivery, key=server.key()).status_code == 202
        result: dict[str, Any] = {"syncJobId": "job", "generatedFiles": [], "svcCount": 1, "durationMs": 1}
        result |= {"manifestStats": {"models": 1, "sources": 1, "macros": 1}, "completedAt": "2025-11-20T00:00:00Z"}
        path = "/api/v1/deployments/7/dbt-sync/job/result"
        assert server.request("PUT", path, key=server.key("sync"), json=result).status_code == 200
        user = DirectoryChange("User", "u", {"id": "u", "externalId": "v", "active": False}, deactivated_at=0)
        server.append(directory_line(user, received_at=0))
        yield server


@pytest.mark.parametrize("name", report_names())
def test_a_schema_describes_the_rows(busy: Server, name: str) -> None:
    schema = get(busy, f"reports/{name}/schema").json()
    [listed] = [report for report in get(busy, "reports").json() if report["name"] == name]
    assert {part: schema[part] for part in listed} == listed
    described = schema["row"]["properties"]
    columns = [column["name"] for column in listed["columns"]]
    assert schema["row"]["required"] == columns
    assert list(described) == [*columns, *(column["name"] for column in listed["dimensions"])]
    for row in busy.rows(f"/api/v1/reports/{name}", key=busy.key("read")):
        assert list(row) == columns
        for column, value in row.items():
            types: dict[str, Any] = {"integer": int, "number": (int, float), "string": str, "boolean": bool}
            [type_, _] = described[column].get("type", ["object", None])
            assert value is None or isinstance(value, types.get(type_, object))


def test_ingest_keys_cannot_read(loaded: Server) -> None:
    for path in (*PATHS, "summary.zip", "analytics.duckdb", "reports/views/schema"):
        assert problem(get(loaded, path, loaded.key("ingest"))) == "wrong_kind"
        assert problem(loaded.get(f"/api/v1/{path}")) == "no_credential"


@pytest.mark.parametrize(
    "period",
    ["since=0001-01-01T00:00Z&timezone=America/New_York", "until=9999-12-31T23:59:59Z&timezone=Asia/Tokyo"],
)
def test_the_earliest_and_latest_times_are_valid(loaded: Server, period: str) -> None:
    for path in ("reports/views.csv", "summary.zip"):
        assert get(loaded, f"{path}?{period}").status_code == 200


@pytest.mark.parametrize("format", ["csv", "ndjson", "parquet"])
def test_a_report_that_would_fill_the_disk_is_stopped(
    loaded: Server, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    def write_for_ever(
        reader: Reader, selection: object, file: IO[bytes], *arguments: object, **options: object
    ) -> None:
        if format == "parquet":
            # DuckDB writes the Parquet file itself, so the query must be interrupted.
            endless = "select md5(range::varchar) as text from range(20000000)"
            reader._execute(f"copy ({endless}) to '/dev/fd/{file.fileno()}' (format parquet, use_tmp_file false)")
            ended.append("the engine")
        for _ in range(1_000):
            file.write(b"x" * 100_000)
        ended.append(format)

    ended: list[str] = []
    monkeypatch.setattr(embedsink.http.report_response, "write_rows", write_for_ever)
    monkeypatch.setattr(embedsink.http.spool, "RESERVED_BYTES", 1 << 60)
    response = get(loaded, f"events.{format}")
    assert (response.status_code, problem(response)) == (503, "storage_low")
    assert "disk: is almost full" in response.json()["detail"]
    assert ended == [], "the report was written to its end"
