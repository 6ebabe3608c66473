"""Refused requests for pages: a page for browsers, a problem for programs."""

from urllib.parse import quote_plus

import pytest

from embedsink.http.pages.dashboards import NEXT_QUERY_CHARACTERS_MAX, UNKNOWN_NAMES_MAX
from tests.support.app import Server, problem

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def logged_in(server: Server) -> dict[str, str]:
    form = {"content-type": "application/x-www-form-urlencoded"}
    response = server.request("POST", "/login", content=f"key={server.key('read')}", headers=form)
    return {"cookie": response.headers["set-cookie"].partition(";")[0]}


@pytest.mark.parametrize(
    ("path", "status", "reason", "words"),
    [
        ("/dashboards/overveiw", 404, "not_found", "Did you mean &#34;overview&#34;?"),
        ("/dashboards/overview?period=7d&period=30d", 400, "bad_parameter", "Give it once."),
        ("/dashboards/overview?deploymnt=1", 400, "bad_parameter", "Did you mean &#34;deployment&#34;?"),
        ("/dashboards/inspector?sesion=x", 400, "bad_parameter", "Did you mean &#34;session&#34;?"),
        ("/dashboards/a/b", 404, "not_found", "/dashboards/a/b"),
        ("/login?nxt=1", 400, "bad_parameter", "parameter &#34;nxt&#34; does not exist."),
    ],
)
def test_a_browser_gets_the_error_as_a_page(server: Server, path: str, status: int, reason: str, words: str) -> None:
    headers = logged_in(server)
    assert problem(server.get(path, headers=headers)) == reason
    page = server.get(path, headers=headers | BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert words in page.text
    assert 'href="/dashboards/"' in page.text
    assert page.headers["x-request-id"]
    policy = page.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'"} <= set(policy)


def test_values_of_the_url_are_escaped(server: Server) -> None:
    page = server.get("/dashboards/<script>alert(1)</script>", headers=logged_in(server) | BROWSER)
    assert page.status_code == 404
    assert "<script" not in page.text


def test_other_paths_answer_with_json(server: Server) -> None:
    assert problem(server.get("/api/v1/reports/none", headers=BROWSER, key=server.key("read"))) == "not_found"
    assert problem(server.get("/nothing", headers=BROWSER)) == "not_found"


def test_parameters_added_by_other_sites_are_removed(server: Server) -> None:
    headers = logged_in(server)
    asked = "utm_source=mail&tenant=a%26b&fbclid=1&deployment=1&deployment=2"
    response = server.get(f"/dashboards/overview?{asked}", headers=headers)
    assert response.status_code == 303
    assert response.headers["location"] == "/dashboards/overview?tenant=a%26b&deployment=1&deployment=2"
    assert server.get("/dashboards/?utm_source=mail", headers=headers).headers["location"] == "/dashboards/"
    by_others = "utm_medium=x&gad_source=1&gclid=1&msclkid=1&__hstc=1&_ga=1&ref=slack&li_fat_id=1"
    response = server.get(f"/dashboards/overview?{by_others}", headers=headers)
    assert response.headers["location"] == "/dashboards/overview"


def test_the_inspector_removes_the_period_of_a_link(server: Server) -> None:
    asked = "timezone=UTC&period=24h&tenant=acme"
    response = server.get(f"/dashboards/inspector?{asked}", headers=logged_in(server))
    assert response.headers["location"] == "/dashboards/inspector?tenant=acme"


def test_too_many_unknown_parameters_are_refused(server: Server) -> None:
    headers, page = logged_in(server), "/dashboards/overview"
    names = [f"other{number}=1" for number in range(UNKNOWN_NAMES_MAX + 1)]
    assert server.get(f"{page}?{'&'.join(names[1:])}", headers=headers).headers["location"] == page
    response = server.get(f"{page}?{'&'.join(names)}", headers=headers)
    assert (response.status_code, problem(response)) == (400, "bad_parameter")
    assert f"has {len(names)} unknown parameters" in response.json()["detail"]


def test_the_query_is_not_parsed_before_the_login(server: Server) -> None:
    for asked in ("sinse=7d", "since=7d&since=1d", "utm_source=mail", "&".join(f"o{number}" for number in range(40))):
        location = server.get(f"/dashboards/overview?{asked}").headers["location"]
        assert location == f"/login?next={quote_plus(f'/dashboards/overview?{asked}')}"


def test_a_login_redirects_without_a_key_in_the_url(server: Server) -> None:
    key = server.key("read")
    assert key not in server.get(f"/dashboards/overview?access_token={key}").headers["location"]


def test_a_login_redirects_without_a_query_that_is_too_long(server: Server) -> None:
    for length, is_retained in ((NEXT_QUERY_CHARACTERS_MAX, True), (NEXT_QUERY_CHARACTERS_MAX + 1, False)):
        query = f"tenant={'%' * (length - len('tenant='))}"
        location = server.get(f"/dashboards/overview?{query}").headers["location"]
        destination = f"/dashboards/overview?{query}" if is_retained else "/dashboards/overview"
        assert location == f"/login?next={quote_plus(destination)}"
        assert server.get(location).status_code == 200
