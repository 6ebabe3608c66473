"""Structured logs: one JSON object a line on stderr, whatever text stands in it, and only so many lines a second."""

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

# A path or an error may be as long as a request. What is cut ends with an ellipsis.
VALUE_CHARACTERS_MAX = 512
TRACEBACK_CHARACTERS_MAX = 16_384
# Without a traceback. Escaped, a character may take twelve.
LINE_CHARACTERS_MAX = 8_192
_SHORT_CHARACTERS_MAX = 48
# Of one event. The lines beyond are counted.
LINES_PER_S = 20
BURST_LINES = 100
# Ours are some twenty; those of libraries may have values in their names.
EVENTS_MAX = 256
SUMMARY_S = 1.0
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message", "taskName"}

log = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, what happened, and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; line breaks and control characters in it are escaped, and what is too long is cut."""
        fields: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().strip(),
            "logger": record.name,
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        line = _encode(fields, VALUE_CHARACTERS_MAX)
        if len(line) > LINE_CHARACTERS_MAX:
            line = _encode(fields, _SHORT_CHARACTERS_MAX)
        if record.exc_info:
            line = f'{line[:-1]}, "traceback": {json.dumps(_cut_middle(self.formatException(record.exc_info)))}}}'
        # Whatever was logged, by whomever: no key reaches a log.
        return redact_keys(line)


class LineLimit(logging.Filter):
    """Pass at most `LINES_PER_S` lines a second of each event, after a burst; count the others.

    A line `lines_left_out` says once a second how many there were. So neither a client nor a bug fills the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}  # by event: lines left, and when that was
        self._left_out: Counter[str] = Counter()
        self._summary: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
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
                self._begin_summary()
        return passes

    def _begin_summary(self) -> None:
        if self._summary is None:
            summary = threading.Timer(SUMMARY_S, self._summarise)
            summary.daemon = True
            with contextlib.suppress(RuntimeError):  # No more threads: the next line that is left out tries again.
                summary.start()
                self._summary = summary

    def _summarise(self) -> None:
        with self._lock:
            counts, self._left_out, self._summary = self._left_out, Counter(), None
        for event, count in counts.items():
            log.warning("lines_left_out", extra={"of": event, "count": count})


def log_as_json(level: int = logging.INFO) -> None:
    """Send everything that this program and its server log to stderr, as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(LineLimit())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _encode(fields: dict[str, Any], characters_max: int) -> str:
    return json.dumps({name: _cut(value, characters_max) for name, value in fields.items()}, default=str)


def _cut(value: Any, characters_max: int) -> Any:
    """A value as it is, or the beginning of its text. Keys are taken out before, so that none is cut in two."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= characters_max else f"{redact_keys(text)[: characters_max - 1]}…"


def _cut_middle(text: str) -> str:
    """A traceback without its middle: it begins where the request came in, and ends with the exception."""
    text = redact_keys(text)
    if len(text) <= TRACEBACK_CHARACTERS_MAX:
        return text
    half = TRACEBACK_CHARACTERS_MAX // 2
    return f"{text[:half]}\n…\n{text[-half:]}"
