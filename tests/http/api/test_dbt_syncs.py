"""`/api/v1/deployments/{deploymentId}/dbt-sync/{syncJobId}/result`: spec 2.1 to 2.3, 4.1 and 5."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from embedsink.http import sync_body
from embedsink.http.sync_body import parse_instant_us
from embedsink.key_scope import EVERYTHING
from embedsink.store.sql_files import read_sql
from tests.support.app import PAGE, Server, open_server, problem
from tests.support.envelopes import KEY, KEY_CUT, view
from tests.support.servers import wait_until

RESULT: dict[str, Any] = {
    "syncJobId": "job1",
    "generatedFiles": [{"path": "model/cubes/orders.yml"}, {"path": "model/cubes/customers.yml"}],
    "manifestStats": {"models": 42, "sources": 7, "macros": 0},
    "svcCount": 12,
    "completedAt": "2026-11-02T10:00:00.123Z",
    "durationMs": 8412,
}


def address(job: str = "job1", deployment: object = 1) -> str:
    return f"/api/v1/deployments/{deployment}/dbt-sync/{job}/result"


def result(job: str = "job1", **fields: Any) -> dict[str, Any]:
    return deepcopy(RESULT) | {"syncJobId": job} | fields


def put(server: Server, body: Any, path: str | None = None, *, key: str | None, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    job = body.get("syncJobId", "job1") if isinstance(body, dict) else "job1"
    header_fields = {"content-type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return server.request("PUT", path or address(job), key=key, content=content, headers=header_fields)


def loaded_count(server: Server) -> int:
    with server.engine.store.reader(EVERYTHING.variables()) as reader:
        return sum(len(rows) for rows in reader.rows("sync_in_scope"))


def has_no_pending_results(server: Server) -> bool:
    server.get("/healthz")  # The event loop runs only during a request.
    return not server.engine.syncs._unloaded


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server that loads at once."""
    with open_server(tmp_path_factory.mktemp("quick"), segment_seal_s=0.01) as opened:
        yield opened
        with opened.engine.store.reader(EVERYTHING.variables()) as reader:
            rows = {check: reader._fetch_all(sql) for check, sql in read_sql("checks").items()}
        assert {check: found for check, found in rows.items() if found} == {}


def test_a_recorded_result_is_readable_at_once_with_exactly_the_body_of_the_spec(server: Server) -> None:
    recorded = put(server, RESULT, key=server.key("sync"))
    assert recorded.status_code == 200
    # This server never loads, so only the journal has the result.
    read = server.get(address(), key=server.key("read"))
    assert read.status_code == 200
    assert read.headers["content-type"] == "application/json"
    assert read.json() == recorded.json() == RESULT
    assert list(read.json()) == list(RESULT)
    [line] = [line for line in server.journaled() if line["kind"] == "sync" and line["deployment"] == 1]
    assert line["result"] == RESULT


def test_a_loaded_result_reads_the_same(quick: Server) -> None:
    body = result("loaded", generatedFiles=[{"path": f"cubes/{index:05}.yml"} for index in range(5_000)])
    before = loaded_count(quick)
    assert put(quick, body, key=quick.key("sync")).status_code == 200
    wait_until(lambda: loaded_count(quick) > before, description="it is loaded")
    wait_until(lambda: has_no_pending_results(quick), description="no result is pending")
    assert quick.get(address("loaded"), key=quick.key("read")).json() == body
    assert put(quick, body, key=quick.key("sync")).json() == body
    assert problem(put(quick, body | {"durationMs": 1}, key=quick.key("sync"))) == "conflict"


@pytest.mark.parametrize("name", ["server", "quick"])
def test_a_repeated_result_changes_nothing_and_another_result_is_a_conflict(
    name: str, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(name)
    key, body = server.key("sync"), result("again")
    reordered = json.dumps(dict(reversed(body.items())), indent=4).encode()
    for same in (body, body, reordered):
        assert put(server, same, address("again"), key=key).status_code == 200
    for field, other in [
        ("durationMs", 8413),
        ("svcCount", 13),
        ("completedAt", "2026-11-02T10:00:00.124Z"),
        ("generatedFiles", list(reversed(body["generatedFiles"]))),
        ("manifestStats", body["manifestStats"] | {"macros": 1}),
        ("novel", 1),
    ]:
        response = put(server, body | {field: other}, key=key)
        assert (response.status_code, problem(response)) == (409, "conflict")
        assert "8412" not in response.text
    assert server.get(address("again"), key=server.key("read")).json() == body


def test_the_same_job_of_two_deployments_has_two_results(server: Server) -> None:
    key, reader = server.key("sync"), server.key("read")
    for deployment in (3, 4):
        assert put(server, result("both", svcCount=deployment), address("both", deployment), key=key).status_code == 200
    assert [server.get(address("both", n), key=reader).json()["svcCount"] for n in (3, 4)] == [3, 4]


def test_an_unknown_job_and_a_job_of_another_deployment_answer_404(server: Server) -> None:
    put(server, result("elsewhere"), address("elsewhere", 2), key=server.key("sync"))
    for path in (address("unknown", 1), address("elsewhere", 1), address("x" * 5_000), address("%00"), address("%FF")):
        response = server.get(path, key=server.key("read"))
        assert (response.status_code, problem(response)) == (404, "not_found")


@pytest.mark.parametrize("deployment", ["x", "1.5", "1e3", "９", "+1", "0x1", "1_0", "9" * 20, "%20", "true"])
def test_a_deployment_that_is_not_an_integer_answers_400(server: Server, deployment: str) -> None:
    for kind, method in (("read", "GET"), ("sync", "GET"), ("sync", "PUT")):
        response = server.request(method, address(deployment=deployment), key=server.key(kind))
        assert (response.status_code, problem(response)) == (400, "bad_parameter")
        assert response.json()["detail"].startswith("deploymentId: "), (
            "the detail has the parameter's name in the API description"
        )


def test_an_ingest_key_cannot_record_a_result(server: Server) -> None:
    before = len(server.journaled())
    for public in (server.key(), server.key(origins=[PAGE]), server.key(deployments=[1]), server.key("read")):
        response = put(server, result("taken", svcCount=666), key=public)
        assert (response.status_code, problem(response)) == (403, "wrong_kind")
    assert len(server.journaled()) == before
    assert put(server, result("taken"), key=server.key("sync", deployments=[1])).json() == result("taken")


def test_a_sync_key_reads_only_recorded_results(server: Server) -> None:
    key = server.key("sync", deployments=[1])
    assert put(server, result("own"), key=key).status_code == 200
    assert server.get(address("own"), key=key).json() == result("own")
    for path in ("reports", "reports/sync_impact", "quarantine", "deployments", "events/live", "analytics.duckdb"):
        assert problem(server.get(f"/api/v1/{path}", key=key)) == "wrong_kind"
    assert problem(server.post(view(), key=key)) == "wrong_kind"
    assert problem(server.request("POST", "/api/v1/quarantine/replay", key=key)) == "wrong_kind"
    for deployment, reason in ((1, "not_found"), (2, "out_of_scope")):
        assert problem(server.get(address("other", deployment), key=key)) == reason


def test_a_deployment_outside_the_scope_is_named_as_in_the_path(server: Server) -> None:
    response = server.get(address(deployment=2), key=server.key("read", deployments=[1]))
    assert (response.status_code, problem(response)) == (403, "out_of_scope")
    assert response.json()["detail"] == "deploymentId: 2 is outside the key's scope. Use a key for it."


def test_without_a_key_no_other_error_is_reported(server: Server) -> None:
    for path in (address(), address(deployment="x"), address("unknown")):
        for method in ("GET", "PUT"):
            response = server.request(method, path)
            assert (response.status_code, problem(response)) == (401, "no_credential")


def test_whether_a_job_exists_is_hidden_outside_the_scope(server: Server) -> None:
    put(server, result("secret"), address("secret", 1), key=server.key("sync"))
    reader = server.key("read", deployments=[2])
    responses = [server.get(address(job, 1), key=reader) for job in ("secret", "unknown")]
    assert [response.status_code for response in responses] == [403, 403]
    assert responses[0].content == responses[1].content


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"syncJobId": 7}, "syncJobId"),
    ({"syncJobId": None}, "syncJobId"),
    ({"syncJobId": "another"}, "syncJobId"),
    ({"generatedFiles": None}, "generatedFiles"),
    ({"generatedFiles": {"path": "a"}}, "generatedFiles"),
    ({"generatedFiles": "a"}, "generatedFiles"),
    ({"generatedFiles": ["a"]}, "generatedFiles[0]"),
    ({"generatedFiles": [{"path": "a"}, {}]}, "generatedFiles[1].path"),
    ({"generatedFiles": [{"path": 1}]}, "generatedFiles[0].path"),
    ({"generatedFiles": [{"path": None}]}, "generatedFiles[0].path"),
    ({"generatedFiles": [{"path": "x" * 4_097}]}, "generatedFiles[0].path"),
    ({"manifestStats": None}, "manifestStats"),
    ({"manifestStats": 42}, "manifestStats"),
    ({"manifestStats": []}, "manifestStats"),
    ({"svcCount": 1.5}, "svcCount"),
    ({"svcCount": True}, "svcCount"),
    ({"svcCount": -1}, "svcCount"),
    ({"svcCount": 2**53}, "svcCount"),
    ({"durationMs": "8412"}, "durationMs"),
    ({"durationMs": 8412.5}, "durationMs"),
    ({"durationMs": None}, "durationMs"),
    ({"completedAt": 1_763_596_800_000}, "completedAt"),
    ({"completedAt": "yesterday"}, "completedAt"),
    ({"completedAt": "2026-02-30T10:00:00Z"}, "completedAt"),
    ({"completedAt": "2026-11-02"}, "completedAt"),
    ({"completedAt": ""}, "completedAt"),
    ({"completedAt": "0001-01-01T00:00:00+14:00"}, "completedAt"),
    ({"completedAt": "9999-12-01T09:30:00Z"}, "completedAt"),
    ({"novel": "x" * 16_384}, "body"),
    ({"novel": "\0"}, "novel"),
]


@pytest.mark.parametrize(("fields", "field_path"), WRONG, ids=lambda value: json.dumps(value)[:50])
def test_an_invalid_body_answers_422_and_names_the_field(
    server: Server, fields: dict[str, Any], field_path: str
) -> None:
    before = len(server.journaled())
    response = put(server, result("wrong") | fields, address("wrong"), key=server.key("sync"))
    assert (response.status_code, problem(response)) == (422, "invalid_body")
    assert [error["field"] for error in response.json()["errors"]] == [field_path]
    assert response.json()["detail"].startswith(f"{field_path}: ")
    assert len(server.journaled()) == before
    assert server.get(address("wrong"), key=server.key("read")).status_code == 404


def test_a_completion_may_be_ahead_by_a_clock_difference_only(server: Server) -> None:
    now = datetime.now(UTC)
    for ahead, status in ((timedelta(minutes=4), 200), (timedelta(minutes=6), 422)):
        body = result("ahead", completedAt=(now + ahead).isoformat())
        assert put(server, body, address("ahead", status), key=server.key("sync")).status_code == status
    # Refused results don't block a valid one.
    right = result("ahead", completedAt=now.isoformat())
    assert put(server, right, address("ahead", 422), key=server.key("sync")).json() == right


@pytest.mark.parametrize("field", RESULT)
def test_every_field_is_required(server: Server, field: str) -> None:
    body = {name: part for name, part in result("missing").items() if name != field}
    response = put(server, body, address("missing"), key=server.key("sync"))
    assert problem(response) == "invalid_body"
    assert [error["field"] for error in response.json()["errors"]] == [field]
    assert "is missing" in response.json()["detail"]


@pytest.mark.parametrize("count", RESULT["manifestStats"])
def test_each_count_of_the_manifest_is_a_required_integer(server: Server, count: str) -> None:
    counts = RESULT["manifestStats"]
    absent = {name: number for name, number in counts.items() if name != count}
    for stats in (absent, *(counts | {count: value} for value in (None, "1", 1.5, True, -1, [1]))):
        response = put(server, result("counts", manifestStats=stats), key=server.key("sync"))
        assert (response.status_code, problem(response)) == (422, "invalid_body")
        assert [error["field"] for error in response.json()["errors"]] == [f"manifestStats.{count}"]


def test_up_to_20_invalid_fields_are_listed_at_once(server: Server) -> None:
    response = put(server, {}, key=server.key("sync"))
    assert sorted(error["field"] for error in response.json()["errors"]) == sorted(RESULT)
    many = {f"novel{number}": "\0" for number in range(50)}
    response = put(server, result() | many, key=server.key("sync"))
    assert len(response.json()["errors"]) == 20
    assert "Errors not listed: 30." in response.json()["detail"]


@pytest.mark.parametrize("file_count", [1, 1_000])
@pytest.mark.parametrize(("levels", "reason"), [(28, ""), (29, ""), (30, "too_deep"), (5_000, "too_deep")])
def test_a_too_deep_body_answers_400_with_any_number_of_files(
    quick: Server, file_count: int, levels: int, reason: str
) -> None:
    deep = "[" * levels + "]" * levels
    files = f'{{"path": "a", "novel": {deep}}}' + ', {"path": "b"}' * (file_count - 1)
    job = f"deep{file_count}-{levels}"
    body = json.dumps(result(job, generatedFiles=["files"])).replace('"files"', files).encode()
    response = put(quick, body, address(job), key=quick.key("sync"))
    assert response.status_code == (400 if reason else 200), response.text
    assert not reason or problem(response) == reason


@pytest.mark.parametrize("body", [b"null", b"[]", b"7", b'"x"'])
def test_a_body_that_is_not_an_object_answers_422(server: Server, body: bytes) -> None:
    assert problem(put(server, body, key=server.key("sync"))) == "invalid_body"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not_json"),
        (b"{", "not_json"),
        (b'{"a": "\xff"}', "not_utf8"),
        (b'{"a": 1, "a": 2}', "duplicate_key"),
        (b'{"a": 1e400}', "not_finite"),
        (b"[" * 33 + b"]" * 33, "too_deep"),
        (b" " * 1_048_577, "body_too_large"),
    ],
    ids=["empty", "json", "utf8", "duplicate", "finite", "deep", "large"],
)
def test_a_body_has_the_limits_of_ingest_and_is_not_stored_beyond_them(
    server: Server, body: bytes, reason: str
) -> None:
    before = len(server.journaled())
    assert problem(put(server, body, key=server.key("sync"))) == reason
    assert len(server.journaled()) == before


def test_only_json_and_gzip_are_accepted(server: Server) -> None:
    key, body = server.key("sync"), result("gzip")
    packed = gzip.compress(json.dumps(body).encode())
    assert put(server, packed, address("gzip"), key=key, content_encoding="gzip").json() == body
    assert problem(put(server, packed, address("gzip"), key=key, content_encoding="br")) == "encoding"
    assert problem(put(server, body, key=key, content_type="text/plain")) == "media_type"
    assert put(server, body, key=key, content_type="application/json; charset=utf-8").status_code == 200


def test_a_refused_body_is_charged_by_its_size_unless_it_is_compressed(tmp_path: Path) -> None:
    with open_server(tmp_path, rate_address_bytes_per_s=2_097_152) as server:
        key = server.key("sync")
        assert problem(put(server, b"{", key=key, content_encoding="identity")) == "not_json"
        assert put(server, RESULT, key=key).status_code == 200
        assert problem(put(server, b"{", key=key, content_encoding="gzip")) == "encoding"
        assert problem(put(server, RESULT, key=key)) == "rate_limited"


def test_results_and_events_share_the_rate_of_a_key(tmp_path: Path) -> None:
    with open_server(tmp_path, rate_events_per_s=1) as server:
        key = server.key("admin")
        assert server.post(view(), key=key).status_code == 202
        assert put(server, RESULT, key=key).status_code == 200
        assert problem(put(server, RESULT, key=key)) == "rate_limited"


def test_results_waiting_to_be_loaded_are_limited(tmp_path: Path) -> None:
    with open_server(tmp_path, sync_bytes_max=4_096) as server:
        key = server.key("sync")
        large = result("large", generatedFiles=[{"path": "x" * 4_000}])
        assert put(server, large, key=key).status_code == 200  # A single result may exceed the limit.
        response = put(server, result("next"), key=key)
        assert problem(response) == "overloaded"
        assert "EMBEDSINK_SYNC_BYTES_MAX" in response.json()["detail"]
        assert put(server, large, key=key).status_code == 200  # The result is already stored.


def test_extra_fields_are_stored_and_not_returned(quick: Server) -> None:
    body = result("grown", branch="dbt/sync")
    body["manifestStats"]["tests"] = 5
    body["generatedFiles"][1]["status"] = "added"
    before = loaded_count(quick)
    assert put(quick, body, key=quick.key("sync")).json() == result("grown")
    wait_until(lambda: loaded_count(quick) > before, description="it is loaded")
    with quick.engine.store.reader(EVERYTHING.variables()) as reader:
        names = [column.name for column in reader.columns("sync_in_scope")]
        [row] = [
            row
            for rows in reader.rows("sync_in_scope")
            for row in (dict(zip(names, values, strict=True)) for values in rows)
            if row["sync_job_id"] == "grown"
        ]
    assert json.loads(row["extra"]) == {
        "branch": "dbt/sync",
        "manifestStats": {"tests": 5},
        "generatedFiles": {"1": {"status": "added"}},
    }
    assert put(quick, body, key=quick.key("sync")).json() == result("grown")
    assert problem(put(quick, result("grown"), key=quick.key("sync"))) == "conflict"


def test_the_count_field_contains_the_service_name(tmp_path: Path) -> None:
    body = {("acmeCount" if name == "svcCount" else name): part for name, part in RESULT.items()}
    with open_server(tmp_path, service_name="acme") as server:
        assert put(server, body, key=server.key("sync")).json() == body
        assert server.get(address(), key=server.key("read")).json() == body
        both = body | {"syncJobId": "both", "svcCount": "the vendor's own affair"}
        response = put(server, both, key=server.key("sync"))
        assert response.json() == body | {"syncJobId": "both"}
        response = put(server, RESULT, key=server.key("sync"))
        assert [error["field"] for error in response.json()["errors"]] == ["acmeCount"]
    with open_server(tmp_path) as server:  # The same result, with the field under another name.
        assert server.get(address(), key=server.key("read")).json() == RESULT
        assert put(server, RESULT, key=server.key("sync")).status_code == 200


@pytest.mark.parametrize(
    "job", ["a b", "äö", "a/b", "/", "x/result", "?", "%", "job:1", "x" * 256, "a\nb", "\n", "'; drop table"]
)
def test_a_job_may_have_any_name(quick: Server, job: str) -> None:
    path, body = address(quote(job, safe="")), result(job)
    assert put(quick, body, path, key=quick.key("sync")).json() == body
    assert quick.get(path, key=quick.key("read")).json() == body


def test_no_key_is_stored_in_any_field(quick: Server) -> None:
    body = result(KEY, generatedFiles=[{"path": KEY}], novel={KEY: KEY})
    for _ in range(2):
        response = put(quick, body, address(KEY), key=quick.key("sync"))
        assert response.status_code == 200, response.text
        assert response.json()["syncJobId"] == KEY_CUT
    for path in (address(KEY), address(KEY_CUT)):
        assert quick.get(path, key=quick.key("read")).json()["generatedFiles"] == [{"path": KEY_CUT}]
    assert KEY.encode() not in quick.journal_bytes()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-11-02T10:00:00Z", "2026-11-02T10:00:00+00:00"),
        ("2026-11-02T12:30:00+02:30", "2026-11-02T10:00:00+00:00"),
        ("2026-11-02T10:00:00", "2026-11-02T10:00:00+00:00"),
        ("20261102T100000Z", "2026-11-02T10:00:00+00:00"),
        ("2026-11-02T10:00:00.123456789Z", "2026-11-02T10:00:00.123456+00:00"),
        ("2026-11-02T10:00Z", "2026-11-02T10:00:00+00:00"),
    ],
)
def test_an_instant_is_parsed_as_iso_8601(text: str, same: str) -> None:
    assert parse_instant_us(text) == parse_instant_us(same)
    assert parse_instant_us("1970-01-01T00:00:00.000001Z") == 1


def test_concurrent_records_of_one_job_agree(tmp_path: Path) -> None:
    """Record two different results concurrently: exactly one is stored, and every answer agrees."""
    with open_server(tmp_path, segment_seal_s=0.01) as server:
        key = server.key("sync")

        async def all_at_once() -> list[httpx2.Response]:
            bodies = [result("race", svcCount=index % 2) for index in range(20)]
            headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
            return await asyncio.gather(
                *(
                    server._request("PUT", address("race"), list(httpx2.Headers(headers).raw), {"json": body})
                    for body in bodies
                )
            )

        responses = server._runner.run(all_at_once())
        won = server.get(address("race"), key=server.key("read")).json()["svcCount"]
        assert [response.status_code for response in responses] == [
            200 if index % 2 == won else 409 for index in range(20)
        ]
        assert len([line for line in server.journaled() if line["kind"] == "sync"]) == 1


def test_a_failed_disk_refuses_and_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with open_server(tmp_path) as server, monkeypatch.context() as patch:
        patch.setattr("embedsink.journal.open_segment.fdatasync", fail)
        assert problem(put(server, RESULT, key=server.key("sync"))) == "storage_failed"
        assert server.get(address(), key=server.key("read")).status_code == 404
        assert problem(put(server, RESULT, key=server.key("sync"))) == "storage_failed"


def test_a_closed_store_refuses_results(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    put(server, result("held"), key=server.key("sync"))
    monkeypatch.setattr(server.engine.store, "_connection", None)
    # Only the store knows whether the job already has a result.
    assert problem(put(server, result("new"), key=server.key("sync"))) == "not_ready"
    assert problem(server.get(address("new"), key=server.key("read"))) == "not_ready"
    assert server.get(address("held"), key=server.key("read")).status_code == 200


def test_other_methods_answer_405_with_the_allowed_methods(server: Server) -> None:
    response = server.request("POST", address(), key=server.key("sync"))
    assert problem(response) == "method_not_allowed"
    assert {"GET", "PUT"} <= set(response.headers["allow"].split(", "))


def test_an_unknown_parameter_is_refused(server: Server) -> None:
    assert problem(server.get(f"{address()}?deployment=2", key=server.key("read"))) == "bad_parameter"


def test_the_limits_equal_those_of_the_types() -> None:
    assert (sync_body.JOB_ID_CHARACTERS_MAX, sync_body.PATH_CHARACTERS_MAX, sync_body.EXTRA_BYTES_MAX) == (
        256,
        4_096,
        16_384,
    )
