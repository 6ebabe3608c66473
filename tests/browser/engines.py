"""The browsers of these tests: Debian's Chromium and Firefox, driven by Playwright, and WebKitGTK."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

from playwright.sync_api import Browser, BrowserContext, Error, Page, Playwright

from tests.browser.webkit import WebKit
from tests.support.chromium import ARGUMENTS, PROGRAM, WITH_BACK_FORWARD_CACHE


class Engine(Protocol):
    """A browser.

    Args:
        program: the name of the program.
        refreshes_session_storage: whether a page that returns from the back/forward cache has the sessionStorage of the
            next page. In Firefox, it has its own as of when it left.
        names_failed_imports: whether the error of a failed import names the URL of the module.
    """

    program: str
    refreshes_session_storage: bool
    names_failed_imports: bool

    def launch(self, playwright: Playwright) -> Browser:
        """Start the browser."""

    def open_profile(self, playwright: Playwright, folder: Path) -> BrowserContext:
        """Start the browser with the data in a folder, and with a back/forward cache."""

    def kill(self, page: Page) -> None:
        """Kill the process of a tab."""

    def is_exception(self, error: Error) -> bool:
        """Return whether an error is an exception in a script."""


class Chromium:
    """Debian's Chromium."""

    program = "chromium"
    refreshes_session_storage = True
    names_failed_imports = True

    def launch(self, playwright: Playwright) -> Browser:
        """Start the browser."""
        return playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)

    def open_profile(self, playwright: Playwright, folder: Path) -> BrowserContext:
        """Start the browser with the data in a folder, and with a back/forward cache."""
        return playwright.chromium.launch_persistent_context(
            folder,
            executable_path=WITH_BACK_FORWARD_CACHE,
            args=ARGUMENTS,
            ignore_default_args=["--disable-back-forward-cache"],
        )

    def kill(self, page: Page) -> None:
        """Kill the process of a tab."""
        with contextlib.suppress(Error):
            page.goto("chrome://crash")

    def is_exception(self, error: Error) -> bool:
        """Return whether an error is an exception in a script."""
        return True


class Firefox:
    """Debian's Firefox ESR, by WebDriver BiDi."""

    program = "firefox-esr"
    refreshes_session_storage = False
    names_failed_imports = True
    _options: ClassVar[dict[str, Any]] = {
        "channel": "moz-firefox",
        "executable_path": Path(__file__).with_name("firefox.sh"),
        # Each tab has a process of its own, so that one can be killed without the others.
        "firefox_user_prefs": {"dom.ipc.processCount.webIsolated": 100},
    }

    def launch(self, playwright: Playwright) -> Browser:
        """Start the browser."""
        return playwright.firefox.launch(**self._options)

    def open_profile(self, playwright: Playwright, folder: Path) -> BrowserContext:
        """Start the browser with the data in a folder. It has a back/forward cache."""
        return playwright.firefox.launch_persistent_context(folder, **self._options)

    def kill(self, page: Page) -> None:
        """Kill the process of a tab: the one that uses the CPU while the page runs a loop."""
        page.evaluate("setTimeout(() => { const end = Date.now() + 1_000; while (Date.now() < end); })")
        before = dict(_cpu_times())
        time.sleep(0.8)
        used = {pid: ticks - before.get(pid, ticks) for pid, ticks in _cpu_times()}
        os.kill(max(used, key=lambda pid: used[pid]), signal.SIGKILL)

    def is_exception(self, error: Error) -> bool:
        """Return whether an error is an exception in a script. Others are about requests and policies."""
        return "\n    at " in (error.stack or "")


def _cpu_times() -> Iterator[tuple[int, int]]:
    """Yield the id and the CPU time, in clock ticks, of each process of a Firefox tab that this process has started."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid = int(path.name)
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            parents[pid] = int(fields[1])
            if b"-contentproc" in (path / "cmdline").read_bytes():
                ticks[pid] = int(fields[11])
    for pid, used in ticks.items():
        ancestor = pid
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            yield pid, used


ENGINES: dict[str, Engine] = {"chromium": Chromium(), "firefox": Firefox(), "webkit": WebKit()}
# WebKitGTK is slow to drive, so its tests run only on demand: `scripts/test tests/browser --engine webkit`.
USUAL_ENGINES = ("chromium", "firefox")
