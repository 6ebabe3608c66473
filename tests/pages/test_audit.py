"""The page of the audit trail in a real browser: entries, filters, pages, an empty list, phones and accessibility."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from embedsink.audit.entry import Action, Entry, Outcome, Via
from embedsink.audit.trail import AuditTrail
from embedsink.data_folder import DataFolder
from tests.pages.watching import Reader, reader_at
from tests.support.servers import RunningServer, running_server

PAGE = "/dashboards/audit"
HOSTILE = "<img src=x onerror=document.title='run'>\u202e{{7*7}}"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Start a server whose trail has more entries than a page."""
    with running_server(tmp_path_factory.mktemp("audited") / "data") as server:
        login = Entry(
            action=Action.LOGIN, actor="p_0123456789ab", actor_label="ann@example.com", via=Via.PROVIDER,
            client_address="192.0.2.7", detail={"kinds": ["read"], "subject": "ann"},
        )  # fmt: skip
        failed = Entry(
            action=Action.LOGIN_FAILED, actor="anonymous", via=Via.PAGE, client_address="2001:db8::/64", count=1_234,
            outcome=Outcome.REFUSED, detail={"cause": HOSTILE, HOSTILE: {"nested": [HOSTILE]}},
        )  # fmt: skip
        purge = Entry(action=Action.PURGE, actor=HOSTILE, via=Via.CLI, target=HOSTILE, outcome=Outcome.FAILED)
        AuditTrail(DataFolder(server.data)).append([*[login] * 120, failed, purge])
        yield server


@pytest.fixture
def admin(browser: Browser, audited: RunningServer) -> Iterator[Reader]:
    with reader_at(browser, audited, key=audited.key("admin")) as reader:
        yield reader


def test_the_page_shows_filters_and_pages_entries(admin: Reader) -> None:
    page = admin.page
    page.goto(f"{admin.server.url}/dashboards/")
    page.get_by_role("navigation").get_by_role("link", name="Audit").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(100)
    expect(rows.first).to_contain_text("Login")  # the login of this test
    failed = rows.filter(has_text="Login failed")
    expect(failed).to_contain_text("× 1,234")
    failed.get_by_text("Show").click()
    expect(failed.locator("dl")).to_contain_text(HOSTILE)
    assert page.title() == "Audit · embedsink"
    page.get_by_role("link", name="Older entries").click()
    expect(page.get_by_role("link", name="Newest entries")).to_be_visible()
    expect(rows.last).to_contain_text("Settings changed")
    page.get_by_label("Action").select_option("login")
    page.get_by_label("Actor").fill("ann@example.com")
    page.get_by_label("Since").fill("7d")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(f"{admin.server.url}{PAGE}?action=login&actor=ann%40example.com&since=7d&until=")
    expect(rows.first).to_contain_text("ann@example.com")
    download = page.get_by_role("link", name="Download CSV").get_attribute("href") or ""
    response = page.request.get(admin.server.url + download)
    assert len(response.text().splitlines()) == 121
    page.get_by_label("Actor").fill("bob")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No entry matches the filters.")).to_be_visible()
    page.get_by_role("link", name="Remove all filters").click()
    expect(rows).to_have_count(100)


def test_an_invalid_filter_is_explained(admin: Reader) -> None:
    admin.page.goto(f"{admin.server.url}{PAGE}?since=yesterday")
    expect(admin.page.get_by_role("alert")).to_contain_text('since: "yesterday" is not a time')
    expect(admin.page.get_by_label("Since")).to_have_value("yesterday")
    assert all("status of 400" in trouble for trouble in admin.troubles)
    admin.troubles.clear()


def test_readers_have_no_link_and_get_an_error_page(browser: Browser, audited: RunningServer) -> None:
    with reader_at(browser, audited, key=audited.key("read")) as reader:
        reader.page.goto(f"{audited.url}/dashboards/")
        expect(reader.page.get_by_role("link", name="Inspector")).to_have_count(2)
        expect(reader.page.get_by_role("link", name="Audit")).to_have_count(0)
        response = reader.page.goto(f"{audited.url}{PAGE}")
        assert response is not None
        assert response.status == 403
        expect(reader.page.get_by_role("alert")).to_contain_text("audit: is for admins.")
        reader.troubles.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 700, 380])
def test_the_page_is_accessible_and_fits(browser: Browser, audited: RunningServer, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    with reader_at(browser, audited, key=audited.key("admin"), viewport=size, color_scheme=scheme) as reader:
        for query in ("", "?actor=bob"):
            reader.page.goto(f"{audited.url}{PAGE}{query}")
            expect(reader.page.get_by_role("heading", name="Audit")).to_be_visible()
            assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
            results = Axe().run(reader.page)
            assert results.violations_count == 0, results.generate_report()
