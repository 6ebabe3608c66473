"""Stop requests: Ctrl-C, SIGTERM or a closed terminal, noticed only between two steps."""

import signal
import time
from typing import Any, Self

CHECK_INTERVAL_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """The user asked the demo to stop."""


class Stop:
    """The stop request. Inside its `with` block, signals only set it, so that they never interrupt a step."""

    def __init__(self) -> None:
        self._is_requested = False
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # nohup ignores SIGHUP, so that a closed terminal does not end the demo.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._previous_handlers[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise Stopped after a stop request."""
        if self._is_requested:
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep; raise Stopped within 0.1 s of a stop request."""
        end = time.monotonic() + seconds
        while (remaining_s := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(remaining_s, CHECK_INTERVAL_S))
        self.check()

    def _request(self, *_: object) -> None:
        self._is_requested = True
