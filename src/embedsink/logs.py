"""Structured logs: one JSON object a line on stderr, whatever text stands in it."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from embedsink.errors import without_keys

_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, what happened, and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; line breaks and control characters in it are escaped."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().strip(),
            "logger": record.name,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # Whatever was logged, by whomever: no key reaches a log.
        return without_keys(json.dumps(line, default=str))


def log_as_json(level: int = logging.INFO) -> None:
    """Send everything that this program and its server log to stderr, as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
