"""The style sheets that pages share."""

import pytest

from embedsink.http.pages.files import stylesheets
from tests.http.asking import Server, problem
from tests.http.pages.reading import Page

NAMES = list(stylesheets())


def test_every_style_sheet_of_a_page_is_there(server: Server) -> None:
    html = server.get("/docs").text
    for name in NAMES:
        assert f'<link rel="stylesheet" href="/pages/{name}">' in html
    assert Page(html).tags >= {"link"}


@pytest.mark.parametrize("name", NAMES)
def test_whoever_has_it_gets_304(server: Server, name: str) -> None:
    first = server.get(f"/pages/{name}")
    assert first.status_code == 200
    assert first.headers["content-type"] == "text/css; charset=utf-8"
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.content == stylesheets()[name].content
    tag = first.headers["etag"]
    again = server.get(f"/pages/{name}", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert server.get(f"/pages/{name}", headers={"If-None-Match": '"other"'}).status_code == 200


def test_each_has_a_tag_of_its_own() -> None:
    assert len({sheet.tag for sheet in stylesheets().values()}) == len(NAMES) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_it_brings_nothing_from_elsewhere(name: str) -> None:
    text = stylesheets()[name].content.decode()
    assert "url(" not in text
    assert "@import" not in text


@pytest.mark.parametrize("name", ["none.css", "..%2Fdocs.py", "%2e%2e%2fdocs.py", "base.css%00", "BASE.CSS"])
def test_nothing_else_is_shown(server: Server, name: str) -> None:
    answer = server.get(f"/pages/{name}")
    assert (answer.status_code, problem(answer)) == (404, "not_found")


def test_an_unknown_parameter_is_refused(server: Server) -> None:
    assert problem(server.get("/pages/base.css?v=1")) == "bad_parameter"


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_no_other_method_is_answered(server: Server, method: str) -> None:
    answer = server.ask(method, "/pages/base.css")
    assert (answer.status_code, problem(answer)) == (405, "method_not_allowed")


def test_head_is_get_without_a_body(server: Server) -> None:
    head = server.ask("HEAD", "/pages/base.css")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == server.get("/pages/base.css").headers
