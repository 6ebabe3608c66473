"""Fixtures and settings that all tests share."""

import os
from collections.abc import Generator, Iterator
from typing import TypeVar

import duckdb
import pytest
from hypothesis import settings

from embedsink.store.database import Store
from tests.support.rows import connect_in_memory
from tests.support.stores import open_store

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# No deadline, because tests share the machine. `scripts/test --hypothesis-profile thorough` searches for hours. CI uses
# `few` with the next version of DuckDB, because its tests with the pinned version search for faults of embedsink.
for profile, max_examples in {"few": 4, "quick": 10, "usual": 15, "thorough": 2_000}.items():
    settings.register_profile(profile, max_examples=max_examples, deadline=None)
settings.load_profile("usual")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the browsers."""
    parser.addoption(
        "--engine",
        action="append",
        choices=["chromium", "firefox", "webkit"],
        help="run the tests of tests/browser in this browser (repeatable; default: chromium and firefox)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slow files first, and the files without servers last, so that all workers end at about the same time."""
    marked = {name: {item.path for item in items if item.get_closest_marker(name)} for name in ("slow", "server")}
    items.sort(key=lambda item: (item.path not in marked["slow"], item.path not in marked["server"]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, let each skipped test fail: a skip would hide a missing program or permission."""
    return _skip_failed_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI, let each skipped file fail too."""
    return _skip_failed_in_ci((yield))


def _skip_failed_in_ci(report: Report) -> Report:
    if isinstance(report.longrepr, tuple) and "CI" in os.environ:
        *_, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"A test that CI can't run: {reason}"
    return report


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory database with empty tables and all views, for comparisons with an oracle in Python."""
    with connect_in_memory() as views:
        yield views


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Open one store for all tests of a module, because opening it for each case would be slow."""
    store = open_store(tmp_path_factory.mktemp("store") / "store.duckdb")
    yield store
    store.close()
