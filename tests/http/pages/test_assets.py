"""The style sheets, scripts and pictures of pages."""

import pytest

from embedsink.http.pages.assets import page_files
from tests.http.pages.html import Page
from tests.support.app import Server, problem

NAMES = list(page_files())
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def test_every_style_sheet_of_a_page_exists(server: Server) -> None:
    html = server.get("/docs").text
    for name in ("base.css", "docs.css"):
        assert name in NAMES
        assert f'<link rel="stylesheet" href="/pages/{name}">' in html
    assert Page(html).tags >= {"link"}


def test_all_pages_have_the_same_icon(server: Server) -> None:
    for path in ("/docs", "/login"):
        html = server.get(path).text
        assert html.count('<link rel="icon" href="/pages/mark.svg" type="image/svg+xml">') == 1
        assert html.count('<img src="/pages/mark.svg"') == 1
        assert "<svg" not in html


@pytest.mark.parametrize("name", NAMES)
def test_a_cached_asset_gets_304(server: Server, name: str) -> None:
    first = server.get(f"/pages/{name}")
    assert first.status_code == 200
    assert first.headers["content-type"] == TYPES[name.rpartition(".")[2]]
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.content == page_files()[name].content
    tag = first.headers["etag"]
    second_response = server.get(f"/pages/{name}", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (second_response.status_code, second_response.content, second_response.headers["etag"]) == (304, b"", tag)
    assert server.get(f"/pages/{name}", headers={"If-None-Match": '"other"'}).status_code == 200


def test_each_asset_has_its_own_etag() -> None:
    assert len({file.tag for file in page_files().values()}) == len(NAMES) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_assets_load_nothing_from_other_servers(name: str) -> None:
    text = page_files()[name].content.decode()
    assert "url(" not in text
    assert "@import" not in text
    assert "//" not in text.replace("http://www.w3.org/2000/svg", "") or name.endswith(".js")


@pytest.mark.parametrize("name", ["none.css", "..%2Fdocs.py", "%2e%2e%2fdocs.py", "base.css%00", "BASE.CSS"])
def test_other_paths_are_not_found(server: Server, name: str) -> None:
    response = server.get(f"/pages/{name}")
    assert (response.status_code, problem(response)) == (404, "not_found")


def test_a_link_may_carry_parameters(server: Server) -> None:
    assert server.get("/pages/base.css?v=1").content == server.get("/pages/base.css").content


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_other_methods_are_not_allowed(server: Server, method: str) -> None:
    response = server.request(method, "/pages/base.css")
    assert (response.status_code, problem(response)) == (405, "method_not_allowed")


def test_head_is_get_without_a_body(server: Server) -> None:
    head = server.request("HEAD", "/pages/base.css")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == server.get("/pages/base.css").headers
