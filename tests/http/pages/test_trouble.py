"""What is refused on a page: a page for browsers, a problem for programs."""

import pytest

from tests.http.asking import Server, problem

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def logged_in(server: Server) -> dict[str, str]:
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = server.ask("POST", "/login", content=f"key={server.key('read')}", headers=form)
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


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
def test_a_browser_gets_the_same_in_words(server: Server, path: str, status: int, reason: str, words: str) -> None:
    headers = logged_in(server)
    assert problem(server.get(path, headers=headers)) == reason
    page = server.get(path, headers=headers | BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert words in page.text
    assert 'href="/dashboards/"' in page.text
    assert page.headers["x-request-id"]
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")


def test_what_is_in_the_address_stays_text(server: Server) -> None:
    page = server.get("/dashboards/<script>alert(1)</script>", headers=logged_in(server) | BROWSER)
    assert page.status_code == 404
    assert "<script" not in page.text


def test_no_other_address_answers_in_words(server: Server) -> None:
    assert problem(server.get("/api/v1/reports/none", headers=BROWSER, key=server.key("read"))) == "not_found"
    assert problem(server.get("/nothing", headers=BROWSER)) == "not_found"


def test_what_others_add_to_a_link_is_left_out(server: Server) -> None:
    answer = server.get("/dashboards/overview?utm_source=mail&tenant=a%26b&fbclid=1&deployment=1&deployment=2")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/dashboards/overview?tenant=a%26b&deployment=1&deployment=2"
    assert server.get("/dashboards/?utm_source=mail").headers["location"] == "/dashboards/"
    by_others = "utm_medium=x&gad_source=1&gclid=1&msclkid=1&__hstc=1&_ga=1&ref=slack&li_fat_id=1"
    assert server.get(f"/dashboards/overview?{by_others}").headers["location"] == "/dashboards/overview"


def test_the_inspector_has_no_period_and_leaves_out_the_one_that_a_tab_leads_with(server: Server) -> None:
    answer = server.get("/dashboards/inspector?timezone=UTC&period=24h&tenant=acme")
    assert answer.headers["location"] == "/dashboards/inspector?tenant=acme"
