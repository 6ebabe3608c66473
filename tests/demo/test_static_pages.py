"""The static pages of the demo."""

import asyncio
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette

from embedsink.demo.static_pages import demo_headers, page_routes, read_pages
from embedsink.http.app import HANDLERS
from tests.support.app import open_server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("index.html", "main.js", "page.css", "icon.svg", "notes.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "hidden.html").write_text("hidden")
    return tmp_path


def ask(
    folder: Path, path: str, *, loopback_only: bool = False, host: str = "engine.example", known: str = ""
) -> httpx2.Response:
    headers = demo_headers(frames="https://embed.example", framed_by="'none'")
    routes = page_routes("/demo/", read_pages(folder), headers, loopback_only=loopback_only)
    app = Starlette(routes=routes, exception_handlers=HANDLERS)

    async def get() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://engine.example") as client:
            return await client.get(path, headers={"Host": host, "If-None-Match": known})

    return asyncio.run(get())


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/demo/", "text/html; charset=utf-8"),
        ("/demo/main.js", "text/javascript; charset=utf-8"),
        ("/demo/page.css", "text/css; charset=utf-8"),
        ("/demo/icon.svg", "image/svg+xml"),
    ],
)
def test_a_page_has_its_media_type_and_policy(folder: Path, path: str, media_type: str) -> None:
    response = ask(folder, path)

    assert response.status_code == 200
    assert response.headers["content-type"] == media_type
    assert response.headers["x-content-type-options"] == "nosniff"
    rules = response.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-src https://embed.example"} <= {
        *rules
    }
    assert "unsafe" not in response.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/demo/", "/demo/main.js"])
def test_a_cached_page_answers_304(folder: Path, path: str) -> None:
    first = ask(folder, path)
    second_response = ask(folder, path, known=first.headers["etag"])
    assert (second_response.status_code, second_response.content) == (304, b"")
    assert second_response.headers["cache-control"] == "no-cache"
    assert second_response.headers["content-security-policy"] == first.headers["content-security-policy"]
    (folder / "main.js").write_text("another")
    (folder / "index.html").write_text("another")
    assert ask(folder, path, known=first.headers["etag"]).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/demo/index.html", "/demo/notes.txt", "/demo/below/hidden.html", "/demo/hidden.html", "/demo/..%2fmain.js"],
)
def test_other_paths_are_not_found(folder: Path, path: str) -> None:
    assert ask(folder, path).status_code == 404


@pytest.mark.parametrize("path", ["/", "/demo"])
def test_a_path_without_its_slash_is_redirected(folder: Path, path: str) -> None:
    response = ask(folder, path)

    assert response.status_code == 307
    assert response.headers["location"] == "/demo/"


def test_serve_has_no_static_pages(tmp_path: Path) -> None:
    with open_server(tmp_path) as server:
        for path in ("/demo", "/demo/", "/demo/host.json", "/demo/main.js"):
            assert server.get(path).status_code == 404, path
        assert server.get("/").headers["location"] == "/dashboards/", "the root URL redirects to the dashboards"


@pytest.mark.parametrize("host", ["127.0.0.1:8322", "127.0.0.2:8322", "localhost:8322", "LOCALHOST", "[::1]:8322"])
def test_loopback_pages_are_shown_at_loopback_names(folder: Path, host: str) -> None:
    assert ask(folder, "/demo/main.js", loopback_only=True, host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["engine.example:8322", "localhost.engine.example", "127.0.0.1.engine.example", "engine.localhost", "0.0.0.0", ""],
)
def test_loopback_pages_are_not_shown_at_other_names(folder: Path, host: str) -> None:
    response = ask(folder, "/demo/main.js", loopback_only=True, host=host)
    assert response.status_code == 404
    assert response.json()["detail"].startswith(f'host: "{host}" is not 127.0.0.1 or localhost.')
