"""The page says what the description and the catalog say: each operation, parameter, reason, report and column."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from embedsink.engine import now_ms
from embedsink.http.pages.docs import docs_page
from embedsink.http.resources import describe_api
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report, ReportColumn
from embedsink.settings import Settings
from embedsink.store.database import Store
from tests.http.asking import Server, open_server, problem
from tests.http.pages.reading import Page
from tests.programs import require
from tests.servers import running_server

DESCRIBED = describe_api(Settings()).document
OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    (method, path, operation) for path, item in DESCRIBED["paths"].items() for method, operation in item.items()
]
HOSTILE = "<script>alert(1)</script> \"quoted\" 'too' & `<b>code</b>` {{ 7 * 7 }} ${IFS}"
BODIES = ["One envelope", "An array", "NDJSON", "A delivery"]


@pytest.fixture(scope="module")
def page(server: Server) -> Page:
    """The page of a server with the default settings."""
    answer = server.get("/docs")
    assert answer.status_code == 200
    return Page(answer.text)


def shown(text: str) -> str:
    """A sentence as a reader sees it: what stands in backticks is code."""
    return text.replace("`", "")


def body_shown(page: Page, title: str) -> bytes:
    """The body in one of the examples."""
    [body] = re.findall(r"--data-binary '([^']+)'", page.code[f"{title}, with curl"])
    return str(body).encode()


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=lambda part: str(part)[:40])
def test_it_shows_each_operation_whole(page: Page, method: str, path: str, operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    assert name in page.ids
    assert (4, f"{method.upper()} {path} #") in page.headings
    assert shown(operation["summary"]) in page.text
    parameters = page.tables[f"Parameters of {name}"].rows if operation["parameters"] else []
    assert [(row[0], row[2]) for row in parameters] == [
        (f"{one['name']} {one['in']}", shown(one.get("description", ""))) for one in operation["parameters"]
    ]
    assert all(row[1] for row in parameters)
    answers = page.tables[f"Answers of {name}"]
    assert [row[0] for row in answers.rows] == list(operation["responses"])
    for links, response in zip(answers.links, operation["responses"].values(), strict=True):
        content = response.get("content", {}).get("application/problem+json")
        reasons = content["schema"]["allOf"][1]["properties"]["reason"]["enum"] if content else []
        assert links == [f"#reason-{reason}" for reason in reasons]


def test_it_shows_each_report_with_every_column(server: Server, page: Page) -> None:
    reports = server.get("/api/v1/reports", key=server.key("read")).json()
    assert len(reports) >= 20
    questions = page.tables["All reports"].rows
    assert questions == [[report["name"], shown(report["question"])] for report in reports]
    for report in reports:
        assert (3, f"{report['title']} {report['name']} #") in page.headings
        assert shown(report["grain"]) in page.text
        assert page.tables[f"Columns of {report['name']}"].rows == [
            [column["name"], column["type"], column["unit"], shown(column["description"])]
            for column in report["columns"]
        ]


def test_it_links_to_the_rows_and_the_schema_of_each_report(server: Server, page: Page) -> None:
    key = server.key("read")
    links = [link for link in page.links if link.startswith("/api/v1/reports/")]
    names = {report["name"] for report in server.get("/api/v1/reports", key=key).json()}
    assert {link.split("/")[4].partition(".")[0] for link in links} == names
    assert len(links) == 5 * len(names)
    for link in links:
        if link.endswith((".csv", "/schema")):
            assert server.get(link, key=key).status_code == 200, link


def test_it_shows_every_message_of_the_protocol(page: Page) -> None:
    schemas = DESCRIBED["components"]["schemas"]
    for type_, address in schemas["Envelope"]["discriminator"]["mapping"].items():
        payload = schemas[schemas[address.rpartition("/")[2]]["properties"]["payload"]["$ref"].rpartition("/")[2]]
        assert (3, f"{type_} #") in page.headings
        fields = payload.get("properties", {})
        rows = page.tables[f"Payload of {type_}"].rows if fields else []
        assert [(row[0], row[2]) for row in rows] == [
            (name, "required" if name in payload.get("required", ()) else "optional") for name in fields
        ]


def test_it_explains_every_reason(page: Page) -> None:
    rows = page.tables["All reasons"].rows
    assert [row[:3] for row in rows] == [
        [str(reason), str(reason.status or ""), shown(reason.sentence)] for reason in Reason
    ]
    assert all(row[3] for row in rows)


def test_it_says_what_each_kind_of_key_may(page: Page) -> None:
    table = page.tables["Kinds of keys"]
    may = {row[0]: set(links) for row, links in zip(table.rows, table.links, strict=True)}
    for _, _, operation in OPERATIONS:
        kinds = {name.removesuffix("Key") for scheme in operation["security"] for name in scheme}
        alone = kinds - {"admin"} or kinds
        assert {kind for kind, links in may.items() if f"#{operation['operationId']}" in links} == alone


def test_every_link_inside_leads_somewhere_and_no_place_stands_twice(server: Server, page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    others = {link for link in page.links if not link.startswith(("#", "/api/v1/reports/"))}
    assert others
    for link in others:
        assert server.get(link).status_code == 200, link


def test_headings_leave_no_level_out(page: Page) -> None:
    levels = [level for level, _ in page.headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(level <= before + 1 for before, level in pairwise(levels))


def test_nothing_in_it_runs_or_comes_from_elsewhere(server: Server, page: Page) -> None:
    assert not page.tags & {"script", "style", "iframe", "object", "embed", "form", "img", "base"}
    assert not {name for name in page.attributes if name.startswith("on")}
    assert "style" not in page.attributes
    assert not [link for link in page.links if "//" in link]
    headers = server.get("/docs").headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "style-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_hostile_words_stay_words() -> None:
    column = ReportColumn(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    report = Report("views", HOSTILE, HOSTILE, HOSTILE, [column])
    html = docs_page(describe_api(Settings()), [report], address=f"https://{HOSTILE}")
    page = Page(html)
    as_it_was = " ".join(HOSTILE.split())
    assert page.tables["Columns of views"].rows == [[as_it_was, as_it_was, as_it_was, shown(as_it_was)]]
    assert not page.tags & {"script", "b"}
    assert "49" not in page.tables["Columns of views"].rows[0][0]
    assert "<script" not in html


@pytest.mark.parametrize("title", BODIES)
def test_each_body_is_accepted_as_it_is_shown(server: Server, page: Page, title: str) -> None:
    [type_] = re.findall(r"Content-Type: ([a-z/-]+)", page.code[f"{title}, with curl"])
    answer = server.post(body_shown(page, title), key=server.key(), type_=type_)
    assert answer.status_code == 202
    assert answer.json()["rejected"] == []
    assert answer.json()["accepted"] == (2 if title in ("An array", "NDJSON") else 1)


def test_it_speaks_the_vendors_words_and_this_servers_limits() -> None:
    settings = Settings(service_name="acme", events_max=7)
    page = Page(docs_page(describe_api(settings), [], address="https://events.example.com"))
    assert "at most 7 envelopes" in " ".join(page.text.split())
    assert "acme-embed" in page.code["A forwarder in JavaScript"]
    assert "https://events.example.com/api/v1/events" in page.code["A forwarder in JavaScript"]
    assert (3, "acme:event:view #") in page.headings
    assert "svc" not in page.text
    parsed = parse(body_shown(page, "A delivery"), now_ms(), settings.rules())
    assert (len(parsed.accepted), parsed.rejected) == (1, [])


def test_it_is_everybodys_and_head_is_get_without_a_body(server: Server) -> None:
    answer, head = server.get("/docs"), server.ask("HEAD", "/docs")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == answer.headers
    assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_no_other_method_is_answered(server: Server, method: str) -> None:
    answer = server.ask(method, "/docs")
    assert (answer.status_code, problem(answer)) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_a_link_may_carry_parameters(server: Server) -> None:
    assert server.get("/docs?utm_source=mail").content == server.get("/docs").content


def test_whoever_has_it_gets_304_until_its_address_is_another(server: Server) -> None:
    first = server.get("/docs")
    again = server.get("/docs", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    elsewhere = server.get("/docs", headers={"If-None-Match": first.headers["etag"], "Host": "other.example.com"})
    assert elsewhere.status_code == 200
    assert "http://other.example.com/api/v1/events" in elsewhere.text


def test_it_waits_for_the_store_and_then_needs_it_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_server(tmp_path / "data") as server:
        with monkeypatch.context() as patch:
            patch.setattr(server.engine, "store", Store(tmp_path / "never-opened.duckdb"))
            answer = server.get("/docs")
            assert (answer.status_code, problem(answer)) == (503, "not_ready")
        assert server.get("/docs").status_code == 200
        monkeypatch.setattr(server.engine, "store", Store(tmp_path / "never-opened.duckdb"))
        assert server.get("/docs").status_code == 200


def test_a_server_that_shows_no_page_does_not_load_templates() -> None:
    look = "import sys, embedsink.http.server; print({'jinja2', 'markupsafe'} & set(sys.modules))"
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert seen.stdout == "set()\n"


@pytest.mark.server
def test_its_shell_lines_work_as_they_are_pasted(tmp_path: Path) -> None:
    require("curl")
    with running_server(tmp_path / "data") as server:
        code = Page(server.get("/docs").body.decode()).code
        keys = {"INGEST_KEY": server.key("ingest"), "READ_KEY": server.key("read")}
        lines = "\n".join(text for label, text in code.items() if label.endswith("with curl"))
        done = subprocess.run(["sh", "-c", lines], env=os.environ | keys, capture_output=True, text=True, check=True)
    *answers, header = done.stdout.splitlines()[:5]
    assert answers == [f'{{"accepted":{count},"rejected":[]}}' for count in (1, 2, 2, 1)]
    assert header.startswith("period_start,")
