"""A store whose checks find nothing at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.loading import Loading


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[Loading]:
    loading = Loading(tmp_path)
    yield loading
    assert loading.offending() == {}
    loading.store.close()
