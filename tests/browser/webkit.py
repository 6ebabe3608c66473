"""WebKitGTK, driven by WebDriver (W3C Recommendation): `scripts/test tests/browser --engine webkit`.

WebKit is the engine of Safari. Playwright can't drive Debian's WebKitGTK, so the classes of this module have the
methods of Playwright that the tests use. What WebDriver can't do skips the test.
"""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.servers import free_port, wait_until

PROGRAM = "WebKitWebDriver"
DISPLAY_PROGRAM = "Xvfb"
_BROWSER = "/usr/lib/x86_64-linux-gnu/webkit2gtk-4.1/MiniBrowser"
# Evaluates a text as Playwright does: if its value is a function, the function is called with the argument.
_EVALUATE = """
    const [text, arg, done] = arguments;
    (async () => {
        const value = (0, eval)(text);
        return typeof value == "function" ? value(arg) : value;
    })().then((value) => done(JSON.stringify({ value })), (error) => done(JSON.stringify({ error: `${error}` })));"""
_POLL_S = 0.02


class WebKitError(Exception):
    """The browser refuses a command, or a script throws an exception."""


def unsupported(ability: str) -> NoReturn:
    """Skip the test, because WebDriver lacks an ability."""
    pytest.skip(f"WebDriver can't {ability}")


class WebKitFrame:
    """A frame of a page, by its position; None is the page itself."""

    def __init__(self, page: "WebKitPage", index: int | None) -> None:
        self._page = page
        self._index = index

    def evaluate(self, text: str, arg: object = None) -> Any:
        """Return the value of an expression, or of the function that it evaluates to."""
        self._page.context.select(self._page.handle, self._index)
        result = json.loads(
            self._page.context.call("POST", "execute/async", {"script": _EVALUATE, "args": [text, arg]})
        )
        if "error" in result:
            raise WebKitError(result["error"])
        return result.get("value")

    def wait_for_function(self, text: str, *, arg: object = None, timeout: float | None = None) -> None:
        """Wait until an expression, or the function that it evaluates to, is true. `timeout` is in milliseconds."""
        timeout_s = self._page.context.timeout_s if timeout is None else timeout / 1_000
        until = time.monotonic() + timeout_s
        while not self.evaluate(text, arg):
            assert time.monotonic() < until, f"{text} is false after {timeout_s:g} s"
            time.sleep(_POLL_S)


class WebKitPage(WebKitFrame):
    """A window."""

    def __init__(self, context: "WebKitContext", handle: str) -> None:
        super().__init__(self, None)
        self.context = context
        self.handle = handle

    @property
    def frames(self) -> list[WebKitFrame]:
        """The page itself and its frames."""
        if self.evaluate("[...document.querySelectorAll('*')].some((element) => element.shadowRoot)"):
            unsupported("select a frame in a shadow tree")
        return [self, *(WebKitFrame(self, index) for index in range(self.evaluate("window.length")))]

    def goto(self, url: str) -> None:
        """Open a URL, and wait until it has loaded."""
        self._navigate("url", url=url)

    def reload(self) -> None:
        """Load the page again."""
        self._navigate("refresh")

    def go_back(self) -> None:
        """Return to the page before."""
        self._navigate("back")

    def close(self) -> None:
        """Close the window."""
        self.context.select(self.handle)
        self.context.call("DELETE", "window")
        self.context.forget_selection()

    def wait_for_timeout(self, timeout: float) -> None:
        """Wait for this many milliseconds."""
        time.sleep(timeout / 1_000)

    def on(self, event: str, listener: object) -> NoReturn:
        """Skip the test."""
        unsupported(f"report the event {event}")

    def expose_function(self, name: str, function: object) -> NoReturn:
        """Skip the test."""
        unsupported("call a function of the test")

    def add_init_script(self, script: str) -> NoReturn:
        """Skip the test."""
        unsupported("run a script before those of the page")

    def _navigate(self, command: str, **parameters: str) -> None:
        self.context.select(self.handle)
        self.context.call("POST", command, parameters)
        self.context.forget_selection()


class WebKitContext:
    """A browser with its own storage. Its driver allows one browser."""

    def __init__(self, display: str, on_close: "Callable[[WebKitContext], None]") -> None:
        self.timeout_s = 15.0
        self._on_close = on_close
        self._selected: tuple[str, int | None] | None = None
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/session"
        environment = os.environ | {"DISPLAY": display, "LIBGL_ALWAYS_SOFTWARE": "1"}
        self._driver = subprocess.Popen([PROGRAM, f"--port={port}"], env=environment)
        wait_until(self._open, description="WebKit starts")
        self._first_window = self.call("GET", "window")

    def _open(self) -> bool:
        browser = {"binary": _BROWSER, "args": ["--automation"]}
        capabilities = {"alwaysMatch": {"webkitgtk:browserOptions": browser}}
        try:
            session = self._request("POST", self._url, {"capabilities": capabilities})
        except urllib.error.URLError:
            return False
        self._url += f"/{session['sessionId']}"
        return True

    def new_page(self) -> WebKitPage:
        """Open a window. The first window of the browser remains empty, because the browser ends with its last one."""
        self.select(self._first_window)
        return WebKitPage(self, self.call("POST", "window/new", {"type": "window"})["handle"])

    def set_default_timeout(self, timeout: float) -> None:
        """Set the timeout of waits, in milliseconds."""
        self.timeout_s = timeout / 1_000

    def on(self, event: str, listener: object) -> None:
        """Ignore the listener: WebDriver does not report the exceptions of a page."""

    def set_offline(self, is_offline: bool) -> NoReturn:
        """Skip the test."""
        unsupported("take a browser offline")

    def add_init_script(self, script: str) -> NoReturn:
        """Skip the test."""
        unsupported("run a script before those of the page")

    def expect_page(self) -> NoReturn:
        """Skip the test."""
        unsupported("wait for a window that a page opens")

    def close(self) -> None:
        """Close all windows, and stop the browser."""
        for handle in self.call("GET", "window/handles"):
            self.select(handle)
            self.call("DELETE", "window")
        self._driver.terminate()
        self._driver.wait()
        self._on_close(self)

    def select(self, handle: str, frame_index: int | None = None) -> None:
        """Direct the next commands to a window, or to one of its frames."""
        if self._selected == (handle, frame_index):
            return
        self.call("POST", "window", {"handle": handle})
        self.call("POST", "frame", {"id": None})
        if frame_index is not None:
            self.call("POST", "frame", {"id": frame_index})
        self._selected = handle, frame_index

    def forget_selection(self) -> None:
        """Select again before the next command, because the page has changed."""
        self._selected = None

    def call(self, method: str, command: str, parameters: dict[str, Any] | None = None) -> Any:
        """Send a command to the browser. Return its value."""
        return self._request(method, f"{self._url}/{command}", parameters)

    def _request(self, method: str, url: str, parameters: dict[str, Any] | None) -> Any:
        body = None if parameters is None else json.dumps(parameters).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            with error:
                value = json.load(error)["value"]
            raise WebKitError(f"{value['error']}: {value['message']}") from None


class WebKitBrowser:
    """A display for the windows of all contexts."""

    def __init__(self) -> None:
        self.contexts: list[WebKitContext] = []
        command = [DISPLAY_PROGRAM, "-displayfd", "1", "-screen", "0", "1280x900x24", "-nolisten", "tcp"]
        self._display = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._display.stdout is not None
        self._name = f":{self._display.stdout.readline().strip()}"

    def new_context(self, **options: object) -> WebKitContext:
        """Open a browser with its own storage."""
        if options:
            unsupported(f"set {', '.join(options)}")
        context = WebKitContext(self._name, self.contexts.remove)
        self.contexts.append(context)
        return context

    def close(self) -> None:
        """Stop all browsers, and the display."""
        for context in list(self.contexts):
            context.close()
        with self._display:
            self._display.terminate()


class WebKit:
    """Debian's WebKitGTK."""

    program = PROGRAM
    refreshes_session_storage = True
    names_failed_imports = False

    def launch(self, playwright: object) -> Any:
        """Start the display of the browsers."""
        return WebKitBrowser()

    def open_profile(self, playwright: object, folder: Path) -> NoReturn:
        """Skip the test."""
        unsupported("open a browser with the data in a folder")

    def kill(self, page: object) -> NoReturn:
        """Skip the test."""
        unsupported("kill a tab")

    def is_exception(self, error: Exception) -> bool:
        """Return whether an error is an exception in a script."""
        return True
