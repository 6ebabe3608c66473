"""A server with default settings, shared by the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.support.app import Server, open_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open an application with the default settings."""
    with open_server(tmp_path_factory.mktemp("data")) as opened:
        yield opened
