"""The login: a cookie for a key, which grants no more than the key, and which other sites can't use."""

import gzip
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

import embedsink.http.pages.dashboards
import embedsink.http.pages.login
import embedsink.http.pages.vega_bundle
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.http.app import Demo
from embedsink.http.pages.templating import render
from embedsink.http.pages.vega_bundle import VegaBundle
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import view

PAGE = "/dashboards/overview"
REPORT = "/api/v1/reports/views"
FORM = {"content-type": "application/x-www-form-urlencoded"}


def log_in(server: Server, key: str, *, next_: str = "", headers: dict[str, str] | None = None) -> httpx2.Response:
    form = httpx2.QueryParams({"key": key, "next": next_})
    return server.request("POST", "/login", content=str(form), headers=FORM | (headers or {}))


def cookie_of(response: httpx2.Response) -> str:
    assert response.status_code == 303, response.text
    return response.headers["set-cookie"].partition(";")[0]


def with_cookie(server: Server, path: str, cookie: str, **headers: str) -> httpx2.Response:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.get(path, headers={"cookie": cookie} | header_fields)


def test_without_a_login_a_page_redirects_to_the_form_and_back(server: Server) -> None:
    response = server.get(f"{PAGE}?period=30d")
    assert response.status_code == 303
    assert response.headers["location"] == "/login?next=%2Fdashboards%2Foverview%3Fperiod%3D30d"
    form = server.get(response.headers["location"])
    assert form.status_code == 200
    assert 'name="key"' in form.text
    assert 'value="/dashboards/overview?period=30d"' in form.text


def test_a_read_key_opens_pages_and_reports(server: Server) -> None:
    response = log_in(server, server.key("read"), next_=f"{PAGE}?period=30d")
    assert response.headers["location"] == f"{PAGE}?period=30d"
    attributes = set(response.headers["set-cookie"].split("; ")[1:])
    assert attributes == {"Max-Age=43200", "Path=/", "HttpOnly", "SameSite=Lax"}
    cookie = cookie_of(response)
    assert with_cookie(server, PAGE, cookie).status_code == 200
    assert with_cookie(server, REPORT, cookie, sec_fetch_site="same-origin").status_code == 200


def test_over_https_the_cookie_is_secure(tmp_path: Any) -> None:
    with open_server(tmp_path, https_only=True) as server:
        form = str(httpx2.QueryParams({"key": server.key("read")}))
        response = server.request("POST", "/login", content=form, headers=FORM, base_url="https://test")
        assert response.headers["set-cookie"].startswith("__Host-embedsink_login=")
        assert "; Secure" in response.headers["set-cookie"]
        assert problem(server.get("/login")) == "plain_http"


def test_a_login_ends_with_its_key(server: Server) -> None:
    key = server.key("read")
    cookie = cookie_of(log_in(server, key))
    server.revoke(key)
    assert with_cookie(server, PAGE, cookie).status_code == 303
    assert with_cookie(server, REPORT, cookie).status_code == 401


def test_a_login_expires(tmp_path: Any) -> None:
    with open_server(tmp_path, login_timeout_s=60) as server:
        set_clock = partial(setattr, server.state["credentials"].sessions, "_clock")
        started_at = time.time()
        cookie = cookie_of(log_in(server, server.key("read")))
        assert with_cookie(server, PAGE, cookie).status_code == 200
        set_clock(lambda: started_at + 59)
        assert with_cookie(server, PAGE, cookie).status_code == 200
        set_clock(lambda: started_at + 62)
        assert with_cookie(server, PAGE, cookie).status_code == 303


def test_a_login_ends_without_use(tmp_path: Any) -> None:
    with open_server(tmp_path, login_idle_timeout_s=60) as server:
        now = [time.time()]
        server.state["credentials"].sessions._clock = lambda: now[0]
        cookie = cookie_of(log_in(server, server.key("read")))
        for _ in range(3):
            now[0] += 59
            assert with_cookie(server, PAGE, cookie).status_code == 200
        now[0] += 60
        assert with_cookie(server, PAGE, cookie).status_code == 303


@pytest.mark.parametrize(
    ("timeout_s", "duration"),
    [(60, "1 minute"), (90, "90 seconds"), (1_800, "30 minutes"), (3_600, "1 hour"), (5_400, "90 minutes")],
)
def test_the_form_names_the_duration_of_a_login(tmp_path: Any, timeout_s: int, duration: str) -> None:
    with open_server(tmp_path, login_timeout_s=timeout_s) as server:
        form = " ".join(server.get("/login").text.split())
        expected = f"ends after {duration}, after 2 hours without use, when the key expires or is revoked, or when the"
        assert expected in form


@pytest.mark.parametrize("forged", ["{}A", "x{}", ""])
def test_a_forged_cookie_opens_nothing(server: Server, forged: str) -> None:
    name, _, value = cookie_of(log_in(server, server.key("read"))).partition("=")
    assert with_cookie(server, PAGE, f"{name}={value}").status_code == 200
    cookie = f"{name}={forged.format(value)}"
    assert with_cookie(server, PAGE, cookie).status_code == 303
    assert with_cookie(server, REPORT, cookie).status_code == 401


def test_a_restart_ends_all_logins(tmp_path: Any) -> None:
    with open_server(tmp_path) as server:
        cookie = cookie_of(log_in(server, server.key("read")))
    with open_server(tmp_path) as server:
        assert with_cookie(server, PAGE, cookie).status_code == 303


def test_a_login_reads_and_never_writes(server: Server) -> None:
    cookie = cookie_of(log_in(server, server.key("admin")))
    sent = server.request("POST", "/api/v1/events", json=view(), headers={"cookie": cookie})
    assert problem(sent) == "no_credential"
    assert problem(server.request("POST", "/api/v1/quarantine/replay", headers={"cookie": cookie})) == "no_credential"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_cannot_use_the_cookie(server: Server, site: str) -> None:
    cookie = cookie_of(log_in(server, server.key("read")))
    assert with_cookie(server, REPORT, cookie, sec_fetch_site=site).status_code == 401
    assert with_cookie(server, PAGE, cookie, sec_fetch_site=site, sec_fetch_mode="cors").status_code == 303
    # A link in a mail or a chat opens the page.
    assert with_cookie(server, PAGE, cookie, sec_fetch_site=site, sec_fetch_mode="navigate").status_code == 200


def test_a_form_of_another_site_cannot_log_in_or_out(server: Server) -> None:
    key = server.key("read")
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {"origin": "null"}):
        assert problem(log_in(server, key, headers=headers)) == "wrong_origin"
        assert problem(server.request("POST", "/logout", headers=headers)) == "wrong_origin"
    assert log_in(server, key, headers={"origin": "http://test", "sec-fetch-site": "same-origin"}).status_code == 303


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "[", "://", "http://test/", "http://a@test"])
def test_an_invalid_origin_counts_as_another_site(server: Server, origin: str) -> None:
    key = server.key("read")
    cookie = cookie_of(log_in(server, key))
    assert problem(log_in(server, key, headers={"origin": origin})) == "wrong_origin"
    assert with_cookie(server, PAGE, cookie, origin=origin).status_code == 303
    assert problem(with_cookie(server, REPORT, cookie, origin=origin)) == "no_credential"


def test_logging_out_ends_the_session_and_deletes_the_cookie(server: Server) -> None:
    key = server.key("read")
    cookie, other_cookie = cookie_of(log_in(server, key)), cookie_of(log_in(server, key))
    response = server.request("POST", "/logout", headers={"cookie": cookie})
    assert with_cookie(server, PAGE, cookie).status_code == 303
    assert with_cookie(server, REPORT, cookie).status_code == 401
    assert with_cookie(server, PAGE, other_cookie).status_code == 200
    assert (response.status_code, response.headers["location"]) == (303, "/login")
    assert response.headers["set-cookie"].startswith("embedsink_login=; Max-Age=0; ")


@pytest.mark.parametrize("kind", ["none", "ingest", "revoked"])
def test_the_form_reports_a_key_that_cannot_read(server: Server, kind: str) -> None:
    key = "es_read_wrong" if kind == "none" else server.key("ingest" if kind == "ingest" else "read")
    if kind == "revoked":
        server.revoke(key)
    response = log_in(server, key, next_=PAGE)
    assert response.status_code == 401
    assert "set-cookie" not in response.headers
    assert key not in response.text
    message = (
        "This is an ingest key. Dashboards need a read key." if kind == "ingest" else "This key is unknown, expired"
    )
    assert message in response.text
    assert f'value="{PAGE}"' in response.text


def test_wrong_keys_cause_no_lockout(server: Server) -> None:
    responses = [log_in(server, f"es_read_{number}") for number in range(40)]
    assert {response.status_code for response in responses} == {401}
    assert log_in(server, server.key("read")).status_code == 303


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "/dashboards/\\..\\x",
        "/docs",
        "/dashboards/\r\nx: y",
    ],
)
def test_a_login_never_redirects_to_another_site(server: Server, target: str) -> None:
    assert log_in(server, server.key("read"), next_=target).headers["location"] == "/dashboards/"


def test_other_request_bodies_are_refused(server: Server) -> None:
    assert problem(server.request("POST", "/login", json={"key": "x"})) == "media_type"
    assert problem(server.request("POST", "/login", content=b"k" * 20_000, headers=FORM)) == "body_too_large"
    assert problem(server.request("POST", "/login", content=b"&".join([b"a=1"] * 99), headers=FORM)) == "bad_parameter"


def test_a_large_form_names_the_limit_of_the_form(server: Server) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"key=" + b"k" * 20_000

    for content in (b"key=" + b"k" * 20_000, parts()):
        response = server.request("POST", "/login", content=content, headers=FORM)
        assert problem(response) == "body_too_large"
        assert "16,384 bytes, the limit of this form" in response.json()["detail"]


def test_a_form_with_a_large_declared_length_is_refused_before_it_is_read(server: Server) -> None:
    async def never() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""  # type: ignore[unreachable]

    headers = FORM | {"content-length": "20000"}
    assert problem(server.request("POST", "/login", content=never(), headers=headers)) == "body_too_large"


def test_pages_run_only_our_scripts_and_cannot_be_framed(server: Server) -> None:
    cookie = cookie_of(log_in(server, server.key("read")))
    for path in (PAGE, "/dashboards/", "/login"):
        policy = with_cookie(server, path, cookie).headers["content-security-policy"]
        directives = set(policy.split("; "))
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= directives
        assert "unsafe" not in policy


def test_pages_are_rendered_outside_the_event_loop(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    writers: list[threading.Thread] = []

    def recorded(template: str, **words: Any) -> str:
        writers.append(threading.current_thread())
        return render(template, **words)

    monkeypatch.setattr(embedsink.http.pages.login, "render", recorded)
    monkeypatch.setattr(embedsink.http.pages.dashboards, "render", recorded)
    cookie = cookie_of(log_in(server, server.key("read")))
    for path in (PAGE, "/dashboards/", "/dashboards/inspector", "/login"):
        assert with_cookie(server, path, cookie).status_code == 200
    assert log_in(server, "wrong").status_code == 401
    assert len(writers) == 5
    assert threading.main_thread() not in writers  # the thread of the event loop


def test_configured_origins_may_frame_pages(tmp_path: Any) -> None:
    with open_server(tmp_path, https_only=True, frame_origins="https://app.example.com") as server:
        form = str(httpx2.QueryParams({"key": server.key("read")}))
        response = server.request("POST", "/login", content=form, headers=FORM, base_url="https://test")
        assert "frame-ancestors https://app.example.com" in response.headers["content-security-policy"]
        # In a frame, the cookie is a third-party cookie.
        assert response.headers["set-cookie"].endswith("; Secure; SameSite=None; Partitioned")


def test_a_request_with_a_key_ignores_the_cookie(server: Server) -> None:
    cookie = cookie_of(log_in(server, server.key("read")))
    dead = server.key("read")
    server.revoke(dead)
    # A request with a key uses the key, not the cookie.
    assert server.get(REPORT, key=dead, headers={"cookie": cookie}).status_code == 401


def test_the_bundle_is_not_built_without_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[bytes] = []

    async def make() -> bytes:
        built.append(gzip.compress(b"drawn"))
        return built[-1]

    monkeypatch.setattr(embedsink.http.pages.vega_bundle, "_build_in_child", make)
    with open_server(tmp_path) as server:
        path = VegaBundle(server.folder).path
        assert problem(server.get(path)) == "not_ready"
        assert server.get(PAGE).status_code == 303
        assert problem(server.get(path)) == "not_ready"
        assert (built, list(server.folder.path.glob("pages/*"))) == ([], [])
        with_cookie(server, PAGE, cookie_of(log_in(server, server.key("read"))))
        assert server.get(path).text == "drawn"
        assert len(built) == len(list(server.folder.path.glob("pages/*"))) == 1
        assert problem(server.get("/pages/vega/0000000000000000.js")) == "not_found"


def test_the_demo_opens_without_a_login_only_on_its_own_machine(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.create()
    _, token = KeyStore(folder.keys).create(KeyKind.READ, now=time.time())
    with open_server(tmp_path, demo=Demo((), token)) as server:
        page = server.get(PAGE, base_url="http://127.0.0.1:8322")
        assert page.status_code == 200
        cookie = page.headers["set-cookie"].partition(";")[0]
        report = server.get(REPORT, headers={"cookie": cookie}, base_url="http://127.0.0.1:8322")
        assert report.status_code == 200
        # Another site may resolve its name to this address (DNS rebinding), and would then have the same origin.
        assert server.get(PAGE, base_url="http://rebound.example:8322").status_code == 303
        assert server.get(REPORT, base_url="http://127.0.0.1:8322").status_code == 401


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8321", "embedsink_login_8321"),
        ("127.0.0.1:8322", "embedsink_login_8322"),
        ("[::1]:8321", "embedsink_login_8321"),
        ("[::1]", "embedsink_login"),
        ("events.example.com", "embedsink_login"),
    ],
)
def test_servers_on_one_host_have_a_cookie_each(server: Server, host: str, name: str) -> None:
    form = str(httpx2.QueryParams({"key": server.key("read")}))
    at = {"base_url": f"http://{host}"}
    cookie = cookie_of(server.request("POST", "/login", content=form, headers=FORM, **at))
    assert cookie.partition("=")[0] == name
    headers = {"cookie": f"{cookie}; embedsink_login_9=of.another.server", "sec-fetch-site": "same-origin"}
    assert server.get(REPORT, headers=headers, **at).status_code == 200
    assert server.get(REPORT, headers=headers, base_url="http://127.0.0.1:9").status_code == 401


def test_other_servers_require_a_login(server: Server) -> None:
    assert server.get(PAGE, base_url="http://127.0.0.1:8321").status_code == 303
