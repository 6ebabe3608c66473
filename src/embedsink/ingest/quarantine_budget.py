"""The daily limits on what the quarantine stores for each key. Rejections beyond them are only counted."""

import time
from collections.abc import Iterable

_DAY_S = 86_400


class QuarantineBudget:
    """The bytes and the number of rejections that each key has stored on the current UTC day.

    The number of keys is limited, so entries are removed only at the end of the day.

    Args:
        bytes_per_day: the limit for a key, in bytes of the journal.
        count_per_day: the limit for a key, in rejections.
    """

    def __init__(self, *, bytes_per_day: int, count_per_day: int) -> None:
        self._bytes_per_day = bytes_per_day
        self._count_per_day = count_per_day
        self._day = 0
        self._used: dict[str, tuple[int, int]] = {}  # bytes and rejections on `_day`, by key id

    def restore_usage(self, usage: Iterable[tuple[str, int, int]]) -> None:
        """Set today's usage after a restart.

        Args:
            usage: for each key, its id, its bytes and its number of rejections.
        """
        self._day = _today()
        self._used = {key_id: (byte_count, count) for key_id, byte_count, count in usage}

    def is_within_budget(self, key_id: str, *, byte_count: int, count: int) -> bool:
        """Return whether the key may store this number of bytes and rejections in addition to today's usage."""
        used_bytes, used_count = self._usage_today(key_id)
        return used_bytes + byte_count <= self._bytes_per_day and used_count + count <= self._count_per_day

    def charge(self, key_id: str, *, byte_count: int, count: int) -> None:
        """Count durable rejections.

        A key may exceed its budget: several deliveries can pass the check before the first one is charged.
        """
        used_bytes, used_count = self._usage_today(key_id)
        self._used[key_id] = used_bytes + byte_count, used_count + count

    def _usage_today(self, key_id: str) -> tuple[int, int]:
        """Return the bytes and the number of rejections of a key today. On a new day, reset the usage of all keys."""
        today = _today()
        if today != self._day:
            self._day = today
            self._used = {}
        return self._used.get(key_id, (0, 0))


def _today() -> int:
    """Return the number of UTC days from 1970 until today."""
    return int(time.time() // _DAY_S)
