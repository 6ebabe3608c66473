"""The files that dashboards load: small scripts, and nothing from other servers."""

import re

import pytest

from embedsink.http.pages.assets import page_files
from tests.support.app import Server

OWN_BYTES_MAX = 30_000


def loaded_by(module: str) -> set[str]:
    """Return a module and all its imports, direct and indirect."""
    modules, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        modules.add(name)
        imported = re.findall(r'from "/pages/([a-z]+\.js)"', page_files()[name].content.decode())
        waiting += set(imported) - modules
    return modules


def test_a_dashboard_loads_less_than_30_kb_of_our_scripts() -> None:
    modules = loaded_by("dashboard.js")
    assert {"tiles.js", "format.js", "live.js", "filters.js"} <= modules
    assert sum(len(page_files()[name].content) for name in modules) <= OWN_BYTES_MAX


@pytest.mark.parametrize("name", sorted(page_files()))
def test_each_file_has_its_media_type_and_loads_nothing_from_elsewhere(server: Server, name: str) -> None:
    response = server.get(f"/pages/{name}")
    assert response.status_code == 200
    kind = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}[name.rpartition(".")[2]]
    assert response.headers["content-type"].startswith(kind)
    assert response.headers["x-content-type-options"] == "nosniff"
    text = response.text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?://|url\(|@import|innerHTML|eval\(", text)
