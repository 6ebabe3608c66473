"""The Python API: the same frames from a data folder and from a server."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
from pandas.testing import assert_frame_equal

import embedsink
from embedsink.client.http_client import HttpClient
from embedsink.errors import Misconfigured, Refused
from tests.support.servers import RunningServer, running_server, wait_until

KEY = "es_ingest_dMPhOTQ7djsouXDOGie3VM3F4NE4pCrJ5txnGx5UEDJ0Zp49n"


def event(type_: str, payload: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "source": "svc-embed",
        "direction": "event",
        "type": f"svc:event:{type_}",
        "payload": payload,
        "timestamp": 1_763_596_800_000,
        "surface": "dashboard",
    } | fields


EVENTS = [
    event("view", {"surface": "dashboard", "path": "/"}),
    event("view", {"surface": "app", "path": "/"}, surface="app"),
    event("download", {"format": "csv", "target": "widget", "rowCount": 7}),
    event("download", {"format": "pdf", "target": "dashboard"}),
    event("ai-query", {"query": "why?", "status": "submitted"}),
    event("error", {"message": "it failed"}),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data = tmp_path_factory.mktemp("client") / "data"
    with running_server(data, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        ingest = server.key("ingest")
        for deployment in (1, 2):
            response = server.post(
                {"context": {"deployment": deployment, "session": "s"}, "events": EVENTS}, key=ingest
            )
            assert response.json() == {"accepted": len(EVENTS), "rejected": []}
        opened = embedsink.open(data)
        wait_until(lambda: (data / "analytics.duckdb").exists(), description="a snapshot exists")
        wait_until(lambda: len(opened.sql("select * from event")) == 2 * len(EVENTS), description="it has every event")
        yield server


@pytest.mark.server
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"deployment": 2, "surface": "dashboard", "timezone": "Asia/Tokyo", "interval": "month", "limit": 1},
    ],
    ids=str,
)
def test_a_folder_and_a_server_return_the_same_frames(server: RunningServer, params: Any) -> None:
    opened, connected = embedsink.open(server.data), embedsink.connect(server.url, key=server.key("read"))
    assert_frame_equal(opened.reports(), connected.reports())
    for name, columns in opened.reports()[["name", "columns"]].itertuples(index=False):
        assert columns.split(", ") == opened.columns(name)["name"].tolist()
        assert_frame_equal(opened.columns(name), connected.columns(name))
        frame = opened.report(name, **params)
        assert_frame_equal(frame, connected.report(name, **params))
        assert list(frame.columns) == opened.columns(name)["name"].tolist()
    assert_frame_equal(opened.events(**params), connected.events(**params))


@pytest.mark.server
def test_dimensions_add_columns_in_both_clients(server: RunningServer) -> None:
    opened, connected = embedsink.open(server.data), embedsink.connect(server.url, key=server.key("read"))
    for by in ("department", ["department"], ("department", "group")):
        frame = opened.report("views", by=by)
        assert_frame_equal(frame, connected.report("views", by=by))
        assert [name in frame for name in ("department", "group")] == [True, "group" in by]
    for client in (opened, connected):
        assert client.report("views", department="Sales", group="Analysts").empty
        with pytest.raises(Refused, match="by: the report errors does not have this parameter"):
            client.report("errors", by="group")
        with pytest.raises(Refused, match="raw events do not have this parameter"):
            client.events(group="Analysts")


@pytest.mark.server
@pytest.mark.parametrize("params", [{}, {"since": "2999-01-01"}], ids=["rows", "no rows"])
def test_columns_have_the_same_dtypes_with_and_without_rows(server: RunningServer, params: Any) -> None:
    types = embedsink.open(server.data).events(**params).dtypes.astype(str)
    assert {types[name] for name in ("occurred_at", "client_at", "sent_at", "received_at")} == {"datetime64[us, UTC]"}
    assert {types[name] for name in ("ingest_seq", "deployment", "seq")} == {"Int64"}
    assert {types[name] for name in ("type", "surface", "format", "target", "status", "mode")} == {"category"}
    assert {types[name] for name in ("row_count", "widget_count")} == {"float64"}
    assert {types[name] for name in ("event_id", "session", "title", "extra")} == {"string"}
    assert types["fatal"] == "boolean"
    assert "key_id" not in types


@pytest.mark.server
def test_sql_returns_the_same_dtypes(server: RunningServer) -> None:
    opened = embedsink.open(server.data)
    frame = opened.sql(
        "select surface, occurred_at, occurred_at::timestamptz as zoned, occurred_at::date as day, fatal, "
        "count(*) as n, sum(deployment) as total, max(row_count) as rows, 1 as n from event group by all"
    )
    assert frame.dtypes.astype(str).tolist() == [
        "category",
        "datetime64[us, UTC]",
        "datetime64[us, UTC]",
        "datetime64[us]",
        "boolean",
        "Int64",
        "Int64",
        "float64",
        "Int64",
    ]
    assert (frame["occurred_at"] == frame["zoned"]).all()


@pytest.mark.server
def test_events_and_columns_can_be_selected(server: RunningServer) -> None:
    for client in (embedsink.open(server.data), embedsink.connect(server.url, key=server.key("read"))):
        frame = client.events(columns=["type", "deployment"], deployment=1, limit=3)
        assert frame.columns.tolist() == ["type", "deployment"]
        assert frame["type"].tolist() == ["view", "view", "download"]
        assert client.report("views", columns="surface", limit=1).shape == (1, 1)
        with pytest.raises(Refused, match=r'column "titel" does not exist\. Did you mean "title"'):
            client.events(columns=["titel"])
        with pytest.raises(Refused, match='column "key_id" does not exist'):
            client.events(columns=["key_id"])
        with pytest.raises(Refused, match='timezone: "Europe/Berlim"'):
            client.report("views", timezone="Europe/Berlim")


@pytest.mark.server
def test_times_and_counts_have_nullable_dtypes(server: RunningServer) -> None:
    frame = embedsink.connect(server.url, key=server.key("read")).report("downloads", since=date(2025, 11, 1))
    assert str(frame["period_start"].dtype) == "datetime64[us, UTC]"
    assert str(frame["exported_row_count"].dtype) == "Int64"
    assert str(frame["download_count"].dtype) == "Int64"
    assert frame["download_count"].sum() == 4


@pytest.mark.server
def test_a_scoped_key_reads_only_its_deployments(server: RunningServer) -> None:
    connected = embedsink.connect(server.url, key=server.key("read", deployments=[2]))
    assert set(connected.report("views")["deployment"]) == {2}
    with pytest.raises(Refused, match="deployment: 1 is outside"):
        connected.report("views", deployment=[1, 2])


@pytest.mark.server
def test_a_scope_may_be_given_as_text_dates_or_iterators(server: RunningServer) -> None:
    opened = embedsink.open(str(server.data))
    expected = opened.report("views", since="2025-11-20", until="2025-11-21", deployment=1)
    assert len(expected) == 2
    assert_frame_equal(
        expected,
        opened.report("views", since=datetime(2025, 11, 20), until=date(2025, 11, 21), deployment=iter([1])),
    )


@pytest.mark.server
def test_sql_reads_the_views_of_the_newest_snapshot(server: RunningServer) -> None:
    opened = embedsink.open(server.data)
    assert opened.sql("select status from ai_query")["status"].unique().tolist() == ["abandoned"]
    before = len(opened.sql("select * from event"))
    server.post(event("error", {"message": "again"}), key=server.key("ingest"))
    wait_until(lambda: len(opened.sql("select * from event")) == before + 1, description="the new event is visible")


@pytest.mark.server
def test_a_misspelled_report_is_reported_with_the_nearest_name(server: RunningServer) -> None:
    for client in (embedsink.open(server.data), embedsink.connect(server.url, key=server.key("read"))):
        with pytest.raises(Refused, match=r'report "view" does not exist\. Did you mean "views"\?'):
            client.report("view")


def test_an_unknown_parameter_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"from: is not a parameter\. Parameters: since, until"):
        embedsink.open(tmp_path).report("views", **{"from": "2025"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="deployment: the list is empty"):
        embedsink.open(tmp_path).report("views", deployment=[])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"deployment": "12"}, 'deployment: "12" is not an integer. Examples: deployment=12, deployment=[12, 13].'),
        ({"deployment": True}, "deployment: true is not an integer."),
        ({"deployment": 12.5}, "deployment: 12.5 is not an integer."),
        ({"deployment": [None]}, "deployment: null is not an integer."),
        ({"deployment": [1, "2"]}, 'deployment: "2" is not an integer.'),
        (
            {"since": 5},
            "since: 5 is not a date, a datetime or text such as 2026-11-01 or 7d. Omit it to select everything.",
        ),
        ({"until": ["7d"]}, 'until: ["7d"] is not a date'),
        ({"tenant": 5}, "tenant: 5 is not text."),
        ({"surface": date(2025, 11, 1)}, 'surface: "2025-11-01" is not text.'),
        ({"limit": "5"}, 'limit: "5" is not an integer.'),
        ({"limit": True}, "limit: true is not an integer."),
        ({"columns": 5}, "columns: 5 is not a list of names."),
        ({"by": 5}, "by: 5 is not a list of names. Omit it to use the default."),
        ({"group": 5}, "group: 5 is not text."),
        ({"timezone": 2}, "timezone: 2 is not text."),
        ({"name": None}, 'report: null is not a name. Example: "views".'),
    ],
    ids=str,
)
def test_both_clients_report_a_wrong_type_alike(tmp_path: Path, params: Any, message: str) -> None:
    for client in (embedsink.open(tmp_path), embedsink.connect("http://localhost:1", key=KEY)):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
            client.report(**({"name": "views"} | params))


@pytest.mark.server
@pytest.mark.parametrize("params", [{"tenant": "\ud800"}, {"since": "\ud800"}, {"name": "\ud800"}], ids=ascii)
def test_a_lone_surrogate_is_reported_as_a_wrong_parameter(server: RunningServer, params: Any) -> None:
    for client in (embedsink.open(server.data), embedsink.connect(server.url, key=server.key("read"))):
        with pytest.raises(Refused, match=r'"\\ud800'):
            client.report(**({"name": "views"} | params))


@pytest.mark.server
def test_deployments_may_be_numpy_integers(server: RunningServer) -> None:
    opened = embedsink.open(server.data)
    deployments = opened.report("views")["deployment"].unique()
    assert_frame_equal(opened.report("views", deployment=deployments), opened.report("views", deployment=[1, 2]))


@pytest.mark.server
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", 'sql: Parser Error: syntax error at or near "selec"'),
        ("select * from read_csv('missing.csv')", "sql: IO Error: No files found that match"),
        ("select * from nope", "sql: Catalog Error: Table with name nope does not exist!"),
        ("delete from event", 'sql: Invalid Input Error: Cannot execute statement of type "DELETE"'),
        (" \n", "sql: is empty."),
    ],
)
def test_a_wrong_statement_is_reported_with_duckdbs_message(server: RunningServer, sql: str, message: str) -> None:
    with pytest.raises(Refused, match=f"^{re.escape(message)}"):
        embedsink.open(server.data).sql(sql)


@pytest.mark.server
def test_a_wrong_column_in_sql_is_reported_with_candidates_and_its_position(server: RunningServer) -> None:
    with pytest.raises(Refused) as refused:
        embedsink.open(server.data).sql("select count(*),\n       surfac\nfrom event")
    binder, candidates, *_ = str(refused.value).splitlines()
    assert binder.startswith('sql: Binder Error: Referenced column "surfac" not found')
    assert candidates.startswith("Candidate bindings: ")
    assert '"surface"' in candidates
    assert "LINE 2:        surfac\n               ^" in str(refused.value)


@pytest.mark.server
@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("select ? || ? as found", ["a", "b"]),
        ("select $2 || $1 as found", ("b", "a")),
        ("select $one || $two as found", {"one": "a", "two": "b"}),
    ],
)
def test_sql_accepts_parameters(server: RunningServer, sql: str, parameters: Any) -> None:
    assert embedsink.open(server.data).sql(sql, parameters)["found"].tolist() == ["ab"]


@pytest.mark.server
def test_sql_parameters_are_values_and_never_sql(server: RunningServer) -> None:
    opened = embedsink.open(server.data)
    assert len(opened.sql("select * from event where type = ? limit ?", ["view", numpy.int64(1)])) == 1
    assert opened.sql("select * from event where type = $1", ["' or true --"]).empty
    with pytest.raises(
        Refused, match=r"(?s)^sql: Invalid Input Error: .*parameters: 2\nPass a list for \? and \$1, or"
    ):
        opened.sql("select ?, ?", [1])


@pytest.mark.parametrize("parameters", [5, "view", b"5 bytes"])
def test_sql_parameters_are_a_list_or_a_dictionary(tmp_path: Path, parameters: Any) -> None:
    with pytest.raises(TypeError, match=r"^parameters: .* is neither a list nor a dictionary\."):
        embedsink.open(tmp_path).sql("select ?", parameters)


people = pandas.DataFrame({"viewer": ["global"]})


@pytest.mark.server
def test_sql_can_read_frames_of_its_caller(server: RunningServer) -> None:
    # Variables inside embedsink have the same names.
    text = result = pandas.DataFrame({"surface": ["dashboard"], "colour": ["blue"]})
    opened = embedsink.open(server.data)
    colours = opened.sql("select distinct colour from event join text using (surface)")
    assert colours["colour"].tolist() == ["blue"]
    assert opened.sql("select count(*) as n from result where colour = ?", ["blue"])["n"].tolist() == [1]
    assert opened.sql("from people")["viewer"].tolist() == ["global"]
    assert text is result


@pytest.mark.server
def test_a_view_hides_a_frame_of_the_same_name(server: RunningServer) -> None:
    opened = embedsink.open(server.data)
    views = opened.report("views", columns=["surface"], limit=1)
    assert len(opened.sql("from views").columns) > len(views.columns)


@pytest.mark.server
def test_sql_can_not_read_variables_of_embedsink(server: RunningServer) -> None:
    for name in ("pandas", "reader", "parameters", "caller", "_EVERYTHING_SCOPE", "_embedsink_execute"):
        with pytest.raises(Refused, match=rf"^sql: .*{name}"):
            embedsink.open(server.data).sql(f"from {name}")


def test_sql_that_is_not_text_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^sql: 5 is not a string\."):
        embedsink.open(tmp_path).sql(5)  # type: ignore[arg-type]


def test_sql_on_a_server_is_refused_with_advice() -> None:
    connected = embedsink.connect("https://events.example.com/", key=KEY)
    with pytest.raises(Refused, match=r"^sql: a server does not run SQL\.") as refused:
        connected.sql("select 1")
    assert "embedsink.open" in str(refused.value)
    assert "GET https://events.example.com/api/v1/analytics.duckdb, with a read key" in str(refused.value)


@pytest.mark.server
def test_a_folder_with_a_downloaded_snapshot_can_be_opened(server: RunningServer, tmp_path: Path) -> None:
    response = server.get("/api/v1/analytics.duckdb", key=server.key("read"))
    (tmp_path / "analytics.duckdb").write_bytes(response.body)
    assert len(embedsink.open(tmp_path).sql("select * from event")) >= 2 * len(EVENTS)


def test_a_missing_folder_or_snapshot_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"data folder .*elsewhere: does not exist"):
        embedsink.open(tmp_path / "elsewhere")
    with pytest.raises(Misconfigured, match=r"analytics\.duckdb: does not exist"):
        embedsink.open(tmp_path).report("views")
    (tmp_path / "analytics.duckdb").touch()
    with pytest.raises(Misconfigured, match=r"analytics\.duckdb: is a file\. Pass the folder that contains it\."):
        embedsink.open(tmp_path / "analytics.duckdb")


@pytest.mark.parametrize(
    ("url", "key", "message"),
    [
        ("events.example.com", KEY, "not the URL of a server"),
        ("ftp://events.example.com", KEY, "not the URL of a server"),
        ("http://events.example.com", KEY, "unencrypted"),
        ("https://u:p@events.example.com", KEY, "user or a password"),
        ("http://localhost:1", "", "key: is missing"),
        ("http://localhost:1", KEY[:-1], "incomplete"),
    ],
)
def test_a_malformed_url_or_key_is_refused_before_a_request(
    url: str, key: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EMBEDSINK_KEY", raising=False)
    with pytest.raises(Misconfigured, match=message) as error:
        embedsink.connect(url, key=key)
    assert KEY[:-1] not in str(error.value)


def test_the_key_may_be_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDSINK_KEY", KEY)
    embedsink.connect("https://events.example.com")


def test_path_segments_are_escaped() -> None:
    request = HttpClient("https://events.example.com/", KEY)._request(("reports", "../../admin?x.json"))
    assert request.full_url == "https://events.example.com/api/v1/reports/..%2F..%2Fadmin%3Fx.json"


def test_importing_the_package_imports_nothing_slow() -> None:
    script = "import sys, json, embedsink; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.check_output([sys.executable, "-c", script]))
    assert not {"duckdb", "pandas", "pydantic", "starlette", "typer"} & set(modules)
