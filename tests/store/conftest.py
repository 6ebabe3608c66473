"""A store, whose checks must pass at the end of each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.loaded_store import LoadedStore


@pytest.fixture
def loaded_store(tmp_path: Path) -> Iterator[LoadedStore]:
    loaded_store = LoadedStore(tmp_path)
    yield loaded_store
    assert loaded_store.failed_checks() == {}
    loaded_store.store.close()
