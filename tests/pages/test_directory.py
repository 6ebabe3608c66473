"""Departments and groups in the filters of a dashboard, in a real browser."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.pages.watching import Reader, reader_at
from tests.support.given import write_segment
from tests.support.servers import RunningServer, running_server, wait_until

NOT_AVAILABLE = "not available by department or group"


@pytest.fixture
def people(tmp_path: Path, bundle: Path) -> Iterator[RunningServer]:
    """Start a server whose journal has two people of different departments, and a view of each."""
    data = tmp_path / "data"
    shutil.copytree(bundle, data / "pages")
    (data / "journal").mkdir()
    now = (datetime.now(UTC) - timedelta(minutes=1)).isoformat(timespec="milliseconds").replace("+00:00", "")
    events = [{"type": "view", "viewer": viewer, "session": viewer, "at": now} for viewer in ("u1", "u2", "u2")]
    people = [{"user": "u1", "department": "Sales"}, {"user": "u2", "department": "Support"}]
    write_segment(data / "journal", [*people, {"group": "Analysts", "members": ["u1"]}, *events])
    with running_server(data) as server:
        admin = server.key("admin")
        wait_until(lambda: server.get("/api/v1/reports/views", key=admin).json() != [], description="loaded")
        yield server


def test_a_department_limits_the_tiles_that_have_one(browser: Browser, people: RunningServer) -> None:
    with reader_at(browser, people, key=people.key("read")) as reader:
        reader.open("overview")
        assert reader.number("views") == "3"
        reader.page.click("#more summary")
        reader.wait(lambda: suggestions(reader, "department") == ["Support", "Sales"], "suggested departments")
        reader.wait(lambda: suggestions(reader, "group") == ["Analysts"], "suggested groups")
        reader.page.fill('input[name="department"]', "Sales")
        reader.page.press('input[name="department"]', "Enter")
        reader.wait(lambda: reader.number("views") == "1", "the views of the department")
        assert reader.page.inner_text("#chips").startswith("Department: Sales")
        reader.open("exports", "?group=Analysts")
        assert NOT_AVAILABLE in reader.page.inner_text('[data-tile="leavers"]')
        reader.page.click('[data-tile="leavers"] .empty button')
        reader.wait(lambda: reader.page.locator(f"text={NOT_AVAILABLE}").count() == 0, "all tiles have data")
        assert reader.page.locator("#chips button").count() == 0


def suggestions(reader: Reader, name: str) -> list[str]:
    """Return the suggested values of a filter."""
    values: list[str] = reader.page.eval_on_selector_all(f"#{name}s option", "options => options.map((o) => o.value)")
    return values
