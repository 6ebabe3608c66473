"""A rendered page in a real browser: it is displayed, loads nothing and logs nothing."""

from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Browser

from embedsink.dashboards.files import read_dashboards
from embedsink.dashboards.image.render import render
from embedsink.dashboards.image.sheet import Caption


def test_a_rendered_page_needs_nothing_else(browser: Browser, tmp_path: Path) -> None:
    dashboard = read_dashboards()["tenants"]
    rows = [[f"</svg><script>document.title='run'</script> {number}", number] for number in range(1, 6)]
    chart = next(tile for section in dashboard.sections for tile in section.tiles if tile.kind == "chart")
    section = next(section for section in dashboard.sections if chart in section.tiles)
    content = {"columns": ["tenant", "view_count"], "rows": rows, "before": []}
    section_data = {section.id: {chart.id: content}}
    file = tmp_path / "tenants.html"
    file.write_bytes(render(dashboard, section_data, Caption((0, 86_400_000), datetime.now(UTC)), format="html"))
    requests: list[str] = []
    messages: list[str] = []
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.goto(file.as_uri())
    assert (requests, messages) == ([file.as_uri()], [])
    assert page.title() == "Tenants · embedsink"
    assert page.locator("svg.sheet > g").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
