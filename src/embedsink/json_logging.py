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
# The limit of each value if the line would exceed `LINE_CHARACTERS_MAX`.
_SHORT_VALUE_CHARACTERS_MAX = 48
# The limits of each log event. Further lines are counted.
LINES_PER_S = 20
BURST_LINES = 100
# The maximum number of events with a limit of their own. embedsink logs some thirty, but libraries put values into
# their events.
EVENTS_MAX = 256
SUMMARY_INTERVAL_S = 1.0
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message", "taskName"}

log = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """A formatter that writes a record as a line of JSON: time, level, event, logger, and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Control characters are escaped, long values are shortened, and API keys are redacted."""
        # Without a time zone, because `isoformat` would write +00:00 instead of Z.
        created_at = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        fields: dict[str, Any] = {
            "at": f"{created_at.isoformat(timespec='milliseconds')}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().strip(),  # Some messages of uvicorn end with a newline.
            "logger": record.name,
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        short_fields = _shorten_values(fields, VALUE_CHARACTERS_MAX)
        if len(json.dumps(short_fields, default=str)) > LINE_CHARACTERS_MAX:
            short_fields = _shorten_values(fields, _SHORT_VALUE_CHARACTERS_MAX)
        if record.exc_info:
            short_fields["traceback"] = _shorten_middle(self.formatException(record.exc_info))
        return redact_keys(json.dumps(short_fields, default=str))


class LineLimit(logging.Filter):
    """A rate limit for each log event, by a token bucket: a burst, then `LINES_PER_S` lines per second.

    Once a second, a line `lines_skipped` reports how many lines were skipped. So neither a client nor a bug can fill
    the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}  # by event: its tokens, and the time of the last update
        self._skipped_counts: Counter[str] = Counter()
        self._summary_timer: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record. A skipped record is counted for the next summary."""
        event = str(record.msg)[:VALUE_CHARACTERS_MAX]  # Libraries may log long messages.
        with self._lock:
            has_token = self._take_token(event)
            if not has_token:
                self._skipped_counts[event] += 1
                self._schedule_summary()
        return has_token

    def _take_token(self, event: str) -> bool:
        """Take a token from the bucket of an event. Return False if the bucket has no token."""
        if len(self._buckets) > EVENTS_MAX:
            self._buckets.clear()  # Limit the memory. Each event starts again with a full bucket.
        now = time.monotonic()
        tokens, updated_at = self._buckets.get(event, (BURST_LINES, now))
        tokens = min(BURST_LINES, tokens + (now - updated_at) * LINES_PER_S)
        has_token = tokens >= 1
        self._buckets[event] = (tokens - 1 if has_token else tokens, now)
        return has_token

    def _schedule_summary(self) -> None:
        """Schedule a summary, unless one is scheduled already."""
        if self._summary_timer is None:
            timer = threading.Timer(SUMMARY_INTERVAL_S, self._write_summary)
            timer.daemon = True
            with contextlib.suppress(RuntimeError):  # No thread is available. The next skipped line retries.
                timer.start()
                self._summary_timer = timer

    def _write_summary(self) -> None:
        """Log the number of skipped lines of each event."""
        with self._lock:
            skipped_counts = self._skipped_counts
            self._skipped_counts = Counter()
            self._summary_timer = None
        # Log without the lock, because `filter` acquires the lock for each line.
        for event, count in skipped_counts.items():
            log.warning("lines_skipped", extra={"of": event, "count": count})


def log_as_json(level: int) -> None:
    """Write the logs of this process at or above a level to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(LineLimit())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # It logs every request.


def _shorten_values(fields: dict[str, Any], characters_max: int) -> dict[str, Any]:
    """Return the fields with long values shortened."""
    return {name: _shorten(value, characters_max) for name, value in fields.items()}


def _shorten(value: Any, characters_max: int) -> Any:
    """Return a short value unchanged, and a long value as the beginning of its text.

    API keys are redacted before the text is cut, so that no part of a key remains.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) <= characters_max:
        return value
    return f"{redact_keys(text)[: characters_max - 1]}…"


def _shorten_middle(text: str) -> str:
    """Return a traceback; a long one without its middle, so that the entry point and the exception remain."""
    text = redact_keys(text)
    if len(text) <= TRACEBACK_CHARACTERS_MAX:
        return text
    half = TRACEBACK_CHARACTERS_MAX // 2
    return f"{text[:half]}\n…\n{text[-half:]}"
