"""What all tests share."""

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import settings

from embedsink.store.database import Store
from tests.support.rows import views_over_nothing
from tests.support.stores import open_store

# No deadline, because tests share the machine. `scripts/test --hypothesis-profile thorough` searches for hours.
for profile, max_examples in {"quick": 10, "usual": 15, "thorough": 2_000}.items():
    settings.register_profile(profile, max_examples=max_examples, deadline=None)
settings.load_profile("usual")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that workers end together."""
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Every view over empty tables, for the tests that hold one against an oracle in Python."""
    with views_over_nothing() as views:
        yield views


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store for all tests of a module: opening takes a while, and the cases are many."""
    store = open_store(tmp_path_factory.mktemp("store") / "store.duckdb")
    yield store
    store.close()
