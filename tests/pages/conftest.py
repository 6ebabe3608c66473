"""Debian's chromium, driven by Playwright, against the real program."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.programs import require


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module: it lives in an event loop that others must not find running."""
    require("chromium")
    with sync_playwright() as running:
        # Sandboxes need rights that containers don't give; the pages are our own.
        launched = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield launched
        launched.close()
