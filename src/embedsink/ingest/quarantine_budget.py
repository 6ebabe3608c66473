"""How much the quarantine may keep of a key and day. What goes beyond it is only counted."""

import time
from collections.abc import Iterable

_DAY_S = 86_400


class QuarantineBudget:
    """The bytes and the rejections of each key on the current UTC day.

    There are no more entries than keys, so they are never cleared.

    Args:
        bytes_per_day: journal bytes of a key.
        count_per_day: rejections of a key.
    """

    def __init__(self, *, bytes_per_day: int, count_per_day: int) -> None:
        self._bytes_per_day = bytes_per_day
        self._count_per_day = count_per_day
        self._day = 0
        self._spent: dict[str, tuple[int, int]] = {}

    def begin_with(self, spent: Iterable[tuple[str, int, int]]) -> None:
        """Count what the store has of today: keys, their bytes and their rejections."""
        self._day = _today()
        self._spent = {key_id: (byte_count, count) for key_id, byte_count, count in spent}

    def has_room(self, key_id: str, *, byte_count: int, count: int) -> bool:
        """Return whether so much more may be kept of a key."""
        spent_bytes, spent_count = self._spent_by(key_id)
        return spent_bytes + byte_count <= self._bytes_per_day and spent_count + count <= self._count_per_day

    def charge(self, key_id: str, *, byte_count: int, count: int) -> None:
        """Count what is durable. Until then it is not counted, so a key may exceed its budget by what is in flight."""
        spent_bytes, spent_count = self._spent_by(key_id)
        self._spent[key_id] = spent_bytes + byte_count, spent_count + count

    def _spent_by(self, key_id: str) -> tuple[int, int]:
        today = _today()
        if today != self._day:
            self._day, self._spent = today, {}
        return self._spent.get(key_id, (0, 0))


def _today() -> int:
    return int(time.time() // _DAY_S)
