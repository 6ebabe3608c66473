"""How the demo ends: Ctrl-C, SIGTERM or a closed terminal, noticed where nothing is half done."""

import signal
import time
from types import FrameType, TracebackType
from typing import Any, Self

SLICE_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """Somebody asked the demo to end."""


class Stop:
    """Whether the demo was asked to end. While it is entered, signals only set it: nothing is torn in the middle."""

    def __init__(self) -> None:
        self._is_asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # Under nohup a closed terminal is no reason to end.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def check(self) -> None:
        """Raises Stopped once the demo was asked to end."""
        if self._is_asked:
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep; raises Stopped within a tenth of a second of being asked."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, SLICE_S))
        self.check()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True
