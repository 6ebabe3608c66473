"""Stop requests of the user: Ctrl-C, SIGTERM or a closed terminal. The demo stops between two of its steps."""

import signal
import time
from typing import Any, Self

CHECK_INTERVAL_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """The user asked the demo to stop."""


class Stop:
    """A flag that is set when the user asks the demo to stop. Inside the `with` block, a signal only sets the flag.

    So a signal never interrupts a request.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for signal_ in _SIGNALS:
            # `nohup` ignores SIGHUP, so that the demo continues after its terminal is closed.
            is_nohup = signal_ == signal.SIGHUP and signal.getsignal(signal_) == signal.SIG_IGN
            if not is_nohup:
                self._previous_handlers[signal_] = signal.signal(signal_, self._set_requested)
        return self

    def __exit__(self, *_: object) -> None:
        for signal_, handler in self._previous_handlers.items():
            signal.signal(signal_, handler)

    def check(self) -> None:
        """Raise Stopped if the user asked to stop."""
        if self._is_requested:
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep. Raise Stopped within 0.1 s after the user asks to stop."""
        deadline = time.monotonic() + seconds
        while (remaining_s := deadline - time.monotonic()) > 0:
            self.check()
            time.sleep(min(remaining_s, CHECK_INTERVAL_S))
        self.check()

    def _set_requested(self, *_: object) -> None:
        """Record that the user asked to stop. Each signal of `_SIGNALS` calls this handler."""
        self._is_requested = True
