"""The documentation pages contain the API description and the report catalog, and are complete without scripts."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from embedsink.engine import now_ms
from embedsink.http.pages.docs import TABS, docs_pages
from embedsink.http.resources import describe_api
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.reports.catalog import Report, ReportColumn
from embedsink.settings import Settings
from embedsink.store.database import Store
from tests.http.pages.html import Page
from tests.support.app import Server, open_server, problem
from tests.support.programs import require
from tests.support.servers import running_server

DESCRIBED = describe_api(Settings()).document
OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    (method, path, operation) for path, item in DESCRIBED["paths"].items() for method, operation in item.items()
]
HOSTILE = "<script>alert(1)</script> \"quoted\" 'single' & `<b>code</b>` {{ 7 * 7 }} ${IFS}"
BODIES = ["One envelope", "An array", "NDJSON", "A delivery"]
API_PAGES = [f"/docs/api/{tag['name'].lower()}" for tag in DESCRIBED["tags"]]


@pytest.fixture(scope="module")
def reports(server: Server) -> list[dict[str, Any]]:
    """Return the report catalog."""
    catalog: list[dict[str, Any]] = server.get("/api/v1/reports", key=server.key("read")).json()
    assert len(catalog) >= 20
    return catalog


@pytest.fixture(scope="module")
def pages(server: Server, reports: list[dict[str, Any]]) -> dict[str, Page]:
    """Return all documentation pages of a server with default settings, by path."""
    paths = [*(tab.path for tab in TABS), *API_PAGES, *(f"/docs/reports/{report['name']}" for report in reports)]
    responses = {path: server.get(path) for path in paths}
    assert {path: response.status_code for path, response in responses.items() if response.status_code != 200} == {}
    return {path: Page(response.text) for path, response in responses.items()}


def shown(text: str) -> str:
    """Return a sentence as a page shows it: code without backticks."""
    return text.replace("`", "")


def page_of(pages: dict[str, Page], operation: dict[str, Any]) -> Page:
    """Return the page of an operation's group."""
    return pages[f"/docs/api/{operation['tags'][0].lower()}"]


def body_shown(page: Page, title: str) -> bytes:
    """Return the request body of an example."""
    [body] = re.findall(r"--data-binary '([^']+)'", page.code[f"{title}, with curl"])
    return str(body).encode()


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=lambda part: str(part)[:40])
def test_each_operation_is_complete(pages: dict[str, Page], method: str, path: str, operation: dict[str, Any]) -> None:
    name, page = operation["operationId"], page_of(pages, operation)
    assert name in page.ids
    assert (2, f"{method.upper()} {path} #") in page.headings
    assert shown(operation["summary"]) in page.text
    parameters = page.tables[f"Parameters of {name}"].rows if operation["parameters"] else []
    assert [(row[0], row[2]) for row in parameters] == [
        (f"{parameter['name']} {parameter['in']}", shown(parameter.get("description", "")))
        for parameter in operation["parameters"]
    ]
    assert all(row[1] for row in parameters)
    responses = page.tables[f"Responses of {name}"]
    assert [row[0] for row in responses.rows] == list(operation["responses"])
    for links, response in zip(responses.links, operation["responses"].values(), strict=True):
        content = response.get("content", {}).get("application/problem+json")
        reasons = content["schema"]["allOf"][1]["properties"]["reason"]["enum"] if content else []
        assert links == [f"/docs/errors#reason-{reason}" for reason in reasons]


def test_the_api_page_lists_every_operation(pages: dict[str, Page]) -> None:
    rows = [
        row for label, table in pages["/docs/api"].tables.items() if label[:10] == "Operations" for row in table.rows
    ]
    assert {row[0] for row in rows} == {f"{method.upper()} {path}" for method, path, _ in OPERATIONS}


def test_each_report_has_a_page_with_every_column(pages: dict[str, Page], reports: list[dict[str, Any]]) -> None:
    questions = pages["/docs/reports"].tables["All reports"].rows
    assert questions == [[report["name"], shown(report["question"])] for report in reports]
    for report in reports:
        page = pages[f"/docs/reports/{report['name']}"]
        assert (1, report["title"]) in page.headings
        assert shown(report["grain"]) in page.text
        assert page.tables[f"Columns of {report['name']}"].rows == [
            [column["name"], column["type"], column["unit"], shown(column["description"])]
            for column in report["columns"]
        ]


def test_each_report_links_to_its_rows_and_schema(
    server: Server, pages: dict[str, Page], reports: list[dict[str, Any]]
) -> None:
    key = server.key("read")
    for report in reports:
        page = pages[f"/docs/reports/{report['name']}"]
        links = [link for link in page.links if link.startswith("/api/v1/reports/")]
        assert [link.removeprefix(f"/api/v1/reports/{report['name']}") for link in links] == [
            ".json",
            ".csv",
            ".parquet",
            ".arrow",
            "/schema",
        ]
        for link in (links[1], links[-1]):
            assert server.get(link, key=key).status_code == 200, link


def test_every_message_type_is_described(pages: dict[str, Page]) -> None:
    page, schemas = pages["/docs/messages"], DESCRIBED["components"]["schemas"]
    for type_, address in schemas["Envelope"]["discriminator"]["mapping"].items():
        payload = schemas[schemas[address.rpartition("/")[2]]["properties"]["payload"]["$ref"].rpartition("/")[2]]
        assert (2, f"{type_} #") in page.headings
        fields = payload.get("properties", {})
        rows = page.tables[f"Payload of {type_}"].rows if fields else []
        assert [(row[0], row[2]) for row in rows] == [
            (name, "required" if name in payload.get("required", ()) else "optional") for name in fields
        ]


def test_every_reason_is_explained(pages: dict[str, Page]) -> None:
    rows = pages["/docs/errors"].tables["All reasons"].rows
    assert [row[:3] for row in rows] == [
        [str(reason), str(reason.status or ""), shown(reason.sentence)] for reason in Reason
    ]
    assert all(row[3] for row in rows)


def test_each_kind_of_key_lists_its_operations(pages: dict[str, Page]) -> None:
    table = pages["/docs/sending"].tables["Kinds of keys"]
    listed = {
        row[0]: {link.partition("#")[2] for link in links} for row, links in zip(table.rows, table.links, strict=True)
    }
    for _, _, operation in OPERATIONS:
        kinds = {name.removesuffix("Key") for scheme in operation["security"] for name in scheme}
        documented_kinds = kinds - {"admin"} or kinds
        assert {kind for kind, ids in listed.items() if operation["operationId"] in ids} == documented_kinds


def test_every_link_leads_to_a_page_and_an_id(server: Server, pages: dict[str, Page]) -> None:
    ids = {path: set(page.ids) for path, page in pages.items()}
    other_links = set()
    for path, page in pages.items():
        assert len(page.ids) == len(ids[path]), path
        for link in page.links:
            target, _, anchor = link.partition("#")
            if (target or path) in pages:
                assert not anchor or anchor in ids[target or path], f"{path} links to {link}"
            elif not link.startswith("/api/v1/reports/"):
                other_links.add(link)
    assert "/dashboards/" in other_links
    for link in other_links:
        assert server.get(link).status_code in (200, 303), link


def test_the_anchors_of_the_former_single_page_lead_to_the_new_pages(pages: dict[str, Page]) -> None:
    old = {"send", "a-delivery", "browser", "keys", "messages", "operations", "group-Reading", "reports", "reasons"}
    assert {*old, "message-svc:event:view", "report-views"} <= set(pages["/docs"].ids)


def test_headings_skip_no_level(pages: dict[str, Page]) -> None:
    for path, page in pages.items():
        levels = [level for level, _ in page.headings]
        assert levels.count(1) == 1, path
        assert levels[0] == 1, path
        assert all(level <= before + 1 for before, level in pairwise(levels)), path


def test_pages_run_no_script_and_load_nothing_from_other_servers(server: Server, pages: dict[str, Page]) -> None:
    for page in pages.values():
        assert not page.tags & {"script", "style", "iframe", "object", "embed", "form", "base"}
        assert not {name for name in page.attributes if name.startswith("on")}
        assert "style" not in page.attributes
        assert not [link for link in page.links if "//" in link]
    headers = server.get("/docs/api").headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "style-src": "'self'",
        "img-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_hostile_text_is_escaped() -> None:
    column = ReportColumn(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    report = Report("views", HOSTILE, HOSTILE, HOSTILE, [column])
    pages = docs_pages(describe_api(Settings()), [report], base_url=f"https://{HOSTILE}")
    table = Page(pages["/docs/reports/views"]).tables["Columns of views"]
    text = " ".join(HOSTILE.split())
    assert table.rows == [[text, text, text, shown(text)]]
    for html in pages.values():
        assert "<script" not in html
        assert not Page(html).tags & {"script", "b"}


@pytest.mark.parametrize("title", BODIES)
def test_each_example_is_accepted_unchanged(server: Server, pages: dict[str, Page], title: str) -> None:
    page = pages["/docs/sending"]
    [type_] = re.findall(r"Content-Type: ([a-z/-]+)", page.code[f"{title}, with curl"])
    response = server.post(body_shown(page, title), key=server.key(), type_=type_)
    assert response.status_code == 202
    assert response.json()["rejected"] == []
    assert response.json()["accepted"] == (2 if title in ("An array", "NDJSON") else 1)


def test_pages_contain_the_service_name_and_the_limits_of_this_server() -> None:
    settings = Settings(service_name="acme", events_max=7)
    pages = docs_pages(describe_api(settings), [], base_url="https://events.example.com")
    page = Page(pages["/docs/sending"])
    assert "at most 7 envelopes" in " ".join(page.text.split())
    assert "acme-embed" in page.code["A forwarder in JavaScript"]
    assert "https://events.example.com/api/v1/events" in page.code["A forwarder in JavaScript"]
    assert (2, "acme:event:view #") in Page(pages["/docs/messages"]).headings
    assert not [path for path, html in pages.items() if "svc" in Page(html).text]
    parsed = parse(body_shown(page, "A delivery"), now_ms(), settings.rules())
    assert (len(parsed.accepted), parsed.rejected) == (1, [])


def test_pages_require_no_key_and_head_returns_the_headers_of_get(server: Server) -> None:
    response, head = server.get("/docs"), server.request("HEAD", "/docs")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == response.headers
    assert "www-authenticate" not in response.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_methods_are_not_allowed(server: Server, method: str) -> None:
    response = server.request(method, "/docs")
    assert (response.status_code, problem(response)) == (405, "method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", ["/docs/nothing", "/docs/reports/nothing", "/docs/api/reading/nothing", "/docs/"])
def test_unknown_pages_are_not_found(server: Server, path: str) -> None:
    response = server.get(path)
    assert (response.status_code, problem(response)) == (404, "not_found")


def test_a_link_may_carry_parameters(server: Server) -> None:
    assert server.get("/docs?utm_source=mail").content == server.get("/docs").content


def test_an_unchanged_page_answers_304_for_the_same_address_only(server: Server) -> None:
    path = "/docs/sending"
    first = server.get(path)
    second_response = server.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (second_response.status_code, second_response.content) == (304, b"")
    assert second_response.headers["etag"] == first.headers["etag"]
    assert second_response.headers["content-security-policy"] == first.headers["content-security-policy"]
    other_host_response = server.get(
        path, headers={"If-None-Match": first.headers["etag"], "Host": "other.example.com"}
    )
    assert other_host_response.status_code == 200
    assert "http://other.example.com/api/v1/events" in other_host_response.text


def test_pages_need_the_store_only_until_they_are_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_server(tmp_path / "data") as server:
        with monkeypatch.context() as patch:
            patch.setattr(server.engine, "store", Store(tmp_path / "never-opened.duckdb"))
            response = server.get("/docs")
            assert (response.status_code, problem(response)) == (503, "not_ready")
        assert server.get("/docs").status_code == 200
        monkeypatch.setattr(server.engine, "store", Store(tmp_path / "never-opened.duckdb"))
        assert server.get("/docs/reports").status_code == 200


def test_a_server_that_shows_no_page_does_not_import_jinja2() -> None:
    code = "import sys, embedsink.http.server; print({'jinja2', 'markupsafe'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


@pytest.mark.server
def test_shell_examples_work_when_pasted(tmp_path: Path) -> None:
    require("curl")
    with running_server(tmp_path / "data") as server:
        code: dict[str, str] = {}
        for path in ("/docs/sending", "/docs/reports"):
            code |= Page(server.get(path).body.decode()).code
        keys = {"INGEST_KEY": server.key("ingest"), "READ_KEY": server.key("read")}
        lines = "\n".join(text for label, text in code.items() if label.endswith("with curl"))
        result = subprocess.run(["sh", "-c", lines], env=os.environ | keys, capture_output=True, text=True, check=True)
    *responses, header = result.stdout.splitlines()[:5]
    assert responses == [f'{{"accepted":{count},"rejected":[]}}' for count in (1, 2, 2, 1)]
    assert header.startswith("period_start,")
