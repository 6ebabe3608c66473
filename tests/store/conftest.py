"""A store, whose checks must pass at the end of each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from tests.support.loaded_store import LoadedStore
from tests.support.stores import open_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("segments")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Store]:
    """Open a store that rolls up every event. Its tests clear the tables."""
    store = open_store(folder / "store.duckdb", StoreLimits(rollup_from_count=1))
    yield store
    store.close()


@pytest.fixture
def loaded_store(tmp_path: Path) -> Iterator[LoadedStore]:
    loaded_store = LoadedStore(tmp_path)
    yield loaded_store
    assert loaded_store.failed_checks() == {}
    loaded_store.store.close()
