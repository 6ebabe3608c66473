"""One server for the tests of this folder, which run in Chromium and in Firefox."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.engines import ENGINES, USUAL_ENGINES
from tests.browser.stage import Stage, open_stage
from tests.support.browser_package import built_package
from tests.support.programs import require
from tests.support.servers import running_server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test in the browsers of the option `--engine`, unless the test names its own."""
    if "stage" in metafunc.fixturenames and not _names_its_engines(metafunc):
        engines = metafunc.config.getoption("--engine") or USUAL_ENGINES
        metafunc.parametrize("stage", engines, indirect=True, scope="package")


def _names_its_engines(metafunc: pytest.Metafunc) -> bool:
    return any("stage" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))


@pytest.fixture(scope="package")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A browser, a server behind a gate, a host's site and a tenant's site."""
    engine = ENGINES[request.param]
    require(engine.program)
    # One per folder, not per session: it keeps an event loop running, and tests of other folders run their own.
    with (
        running_server(tmp_path_factory.mktemp("stage") / "data") as server,
        sync_playwright() as playwright,
        open_stage(playwright, engine, server) as built,
    ):
        yield built


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built copy of the npm package."""
    return built_package(tmp_path_factory)


@pytest.fixture(autouse=True)
def _afresh(request: pytest.FixtureRequest) -> Iterator[None]:
    """Begin each test with an open gate, and end it without open pages and without exceptions."""
    yield
    if "stage" in request.fixturenames:
        stage: Stage = request.getfixturevalue("stage")
        stage.clear()
        stage.check_that_nothing_was_thrown()
