"""The bundle of Vega: built once, compressed for browsers that accept it, and reported if it is missing."""

import asyncio
import gzip
import sys
from pathlib import Path

import pytest

import embedsink.http.pages.vega_bundle
from tests.support.app import Server, open_server, problem

PROGRAM = b"// charts"
FORM = {"content-type": "application/x-www-form-urlencoded"}


def path_of(server: Server) -> str:
    """Return the URL path of the current bundle."""
    detail: str = server.get("/pages/vega/other.js").json()["detail"]
    return detail.rpartition(" ")[2].rstrip(".")


def open_dashboard(server: Server) -> None:
    """Open a page with a login, because only such a page builds the bundle."""
    login = server.request("POST", "/login", content=f"key={server.key('read')}", headers=FORM)
    cookie = login.headers["set-cookie"].partition(";")[0]
    assert server.get("/dashboards/overview", headers={"cookie": cookie}).status_code == 200


def keep_program(server: Server) -> None:
    """Write a bundle, as if an earlier start had left it."""
    file = server.folder.pages / f"vega-{Path(path_of(server)).stem}.js.gz"
    file.parent.mkdir()
    file.write_bytes(gzip.compress(PROGRAM))


def test_a_build_that_takes_too_long_answers_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedsink.http.pages.vega_bundle, "BUILD_S_MAX", 0.05)
    with open_server(tmp_path / "data") as server:
        open_dashboard(server)
        server._runner.run(asyncio.sleep(0.2))
        response = server.get(path_of(server))
        assert (response.status_code, problem(response)) == (503, "not_ready")
        assert "took more than 0.05 s" in response.json()["detail"]
        assert server.engine.counters["refused.internal_error"] == 0


def test_a_cached_bundle_that_cannot_be_read_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def build() -> bytes:
        return gzip.compress(PROGRAM)

    monkeypatch.setattr(embedsink.http.pages.vega_bundle, "_build_in_child", build)
    with open_server(tmp_path / "data") as server:
        (server.folder.pages / f"vega-{Path(path_of(server)).stem}.js.gz").mkdir(parents=True)
        assert problem(server.get(path_of(server))) == "not_ready"  # Only opening a dashboard starts a build.
        open_dashboard(server)
        assert server.get(path_of(server)).content == PROGRAM
        assert server.engine.counters["refused.internal_error"] == 0


def test_a_builder_that_cannot_be_started_answers_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    with open_server(tmp_path / "data") as server:
        open_dashboard(server)
        response = server.get(path_of(server))
        assert (response.status_code, problem(response)) == (503, "not_ready")
        assert "can't be started (No such file or directory)" in response.json()["detail"]


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0, identity", False), ("br", False), ("notgzip", False)],
)
def test_the_bundle_is_compressed_for_browsers_that_accept_it(
    tmp_path: Path, accepted: str, is_compressed: bool
) -> None:
    with open_server(tmp_path / "data") as server:
        keep_program(server)
        response = server.get(path_of(server), headers={"accept-encoding": accepted})
    assert response.status_code == 200
    assert (response.headers.get("content-encoding") == "gzip") == is_compressed
    assert response.content == PROGRAM
    assert response.headers["vary"] == "Accept-Encoding"
    assert response.headers["content-type"] == "text/javascript; charset=utf-8"


def test_a_cached_bundle_gets_304_before_it_is_built_again(tmp_path: Path) -> None:
    with open_server(tmp_path / "data") as server:
        path = path_of(server)
        assert problem(server.get(path)) == "not_ready"
        tag = f'W/"{Path(path).stem}"'
        response = server.get(path, headers={"if-none-match": tag})
        assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", tag)
        assert response.headers["vary"] == "Accept-Encoding"
