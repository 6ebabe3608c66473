"""The login at a real OpenID provider, in Chromium."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.http.pages.test_provider_login import server_with
from tests.support.login_provider import running_provider

pytestmark = pytest.mark.server


def test_a_reader_logs_in_at_the_provider_and_out_again(browser: Browser, tmp_path: Path) -> None:
    with running_provider() as provider, server_with(tmp_path, provider) as server, browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{server.url}/dashboards/inspector")
        page.get_by_role("link", name="Log in at 127.0.0.1").click()
        page.get_by_role("button", name="guest").click()
        expect(page.get_by_role("alert")).to_contain_text("guest@example.com may not read the dashboards.")
        page.get_by_role("link", name="Log in at 127.0.0.1").click()
        page.get_by_role("button", name="ann").click()
        expect(page).to_have_url(f"{server.url}/dashboards/inspector")
        [cookie] = [cookie for cookie in context.cookies() if cookie["name"].startswith("embedsink_login")]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
        assert not any("pending" in cookie["name"] for cookie in context.cookies())
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(f"{server.url}/login")
        page.goto(f"{server.url}/dashboards/overview")
        expect(page).to_have_url(f"{server.url}/login?next=%2Fdashboards%2Foverview")
