"""Structured logs: a JSON object per line on stderr, at a limited rate."""

import contextlib
import json
import logging
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from embedsink.errors import redact_keys

# A path or an error may be as long as a request. A shortened value ends with an ellipsis.
VALUE_CHARACTERS_MAX = 512
TRACEBACK_CHARACTERS_MAX = 16_384
# The limit of a line without its traceback. An escaped character may take twelve characters.
LINE_CHARACTERS_MAX = 8_192
_SHORT_CHARACTERS_MAX = 48
# The limits of each log event. Further lines are counted.
LINES_PER_S = 20
BURST_LINES = 100
# embedsink logs some twenty events. Libraries may put values into theirs.
EVENTS_MAX = 256
SUMMARY_INTERVAL_S = 1.0
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message", "taskName"}

log = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """A formatter that writes a record as a line of JSON: time, level, event, and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Control characters are escaped, and long values are shortened."""
        fields: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().strip(),
            "logger": record.name,
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        line = _encode(fields, VALUE_CHARACTERS_MAX)
        if len(line) > LINE_CHARACTERS_MAX:
            line = _encode(fields, _SHORT_CHARACTERS_MAX)
        if record.exc_info:
            line = f'{line[:-1]}, "traceback": {json.dumps(_shorten_middle(self.formatException(record.exc_info)))}}}'
        # Redact every line, so that no key reaches a log.
        return redact_keys(line)


class LineLimit(logging.Filter):
    """A filter that passes `LINES_PER_S` lines per second of each event after a burst, and counts the others.

    Once a second, a line `lines_skipped` reports their number. So neither a client nor a bug can fill the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}  # by event: lines left, and the time of the last update
        self._left_out: Counter[str] = Counter()
        self._summary: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is written."""
        event, now = str(record.msg)[:VALUE_CHARACTERS_MAX], time.monotonic()
        with self._lock:
            if len(self._buckets) > EVENTS_MAX:
                self._buckets.clear()
            left, at = self._buckets.get(event, (BURST_LINES, now))
            left = min(BURST_LINES, left + (now - at) * LINES_PER_S)
            passes = left >= 1
            self._buckets[event] = (left - passes, now)
            if not passes:
                self._left_out[event] += 1
                self._schedule_summary()
        return passes

    def _schedule_summary(self) -> None:
        if self._summary is None:
            summary = threading.Timer(SUMMARY_INTERVAL_S, self._write_summary)
            summary.daemon = True
            with contextlib.suppress(RuntimeError):  # No thread is available. The next omitted line retries.
                summary.start()
                self._summary = summary

    def _write_summary(self) -> None:
        with self._lock:
            counts, self._left_out, self._summary = self._left_out, Counter(), None
        for event, count in counts.items():
            log.warning("lines_skipped", extra={"of": event, "count": count})


def log_as_json() -> None:
    """Write all logs of this process to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(LineLimit())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _encode(fields: dict[str, Any], characters_max: int) -> str:
    return json.dumps({name: _shorten(value, characters_max) for name, value in fields.items()}, default=str)


def _shorten(value: Any, characters_max: int) -> Any:
    """Return a short value unchanged, else the start of its text. Keys are redacted first, so that none is split."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= characters_max else f"{redact_keys(text)[: characters_max - 1]}…"


def _shorten_middle(text: str) -> str:
    """Return a traceback without its middle. It keeps the entry point and the exception."""
    text = redact_keys(text)
    if len(text) <= TRACEBACK_CHARACTERS_MAX:
        return text
    half = TRACEBACK_CHARACTERS_MAX // 2
    return f"{text[:half]}\n…\n{text[-half:]}"
