"""Examples contain the address of the reader's request, and never a hostile host that would run in a shell."""

from pathlib import Path

import pytest

from tests.http.pages.html import Page
from tests.support.app import Server, open_server


def address_shown(server: Server, host: str) -> str:
    code = Page(server.get("/docs/sending", headers={"Host": host}).text).code["One envelope, with curl"]
    return code.split()[2].removesuffix("/api/v1/events")


@pytest.mark.parametrize("host", ["events.example.com", "127.0.0.1:8321", "[::1]:8321", "a-b.example:1", "localhost"])
def test_the_base_url_is_the_address_of_the_reader(server: Server, host: str) -> None:
    assert address_shown(server, host) == f"http://{host}"


@pytest.mark.parametrize(
    "host",
    ["$(reboot)", "a;reboot", "a b", "a/b", "<b>", '"', "'", "a@b", "-oProxy", "", "a" * 300, "a:123456", "a\\b"],
)
def test_an_invalid_host_is_not_repeated(server: Server, host: str) -> None:
    assert address_shown(server, host) == "http://localhost"


def test_examples_use_https_where_keys_require_it(tmp_path: Path) -> None:
    with open_server(tmp_path, https_only=True) as server:
        assert address_shown(server, "events.example.com") == "https://events.example.com"
