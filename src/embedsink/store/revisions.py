"""Revisions: for each deployment, and for the directory, a text that changes when their rows may have changed."""

import secrets
from collections.abc import Collection, Iterable
from typing import NamedTuple

# With more deployments, all entries are discarded. Each deployment's revision then changes once without new rows.
DEPLOYMENTS_MAX = 10_000


class _Change(NamedTuple):
    change_number: int  # 1 for the first change of the process, 2 for the next one, …
    segment_number: int  # the number of the newest segment that was loaded by then


class Revisions:
    """The last change of each deployment's rows, by a load or a purge. One thread writes; any thread may read."""

    def __init__(self) -> None:
        self._random_part = ""  # a part of every revision, which `renew` replaces
        self._last_change = _Change(change_number=0, segment_number=0)
        self._default_change = self._last_change  # for deployments without an entry
        self._changes: dict[int, _Change] = {}  # by deployment
        self._directory_change_count = 0

    def renew(self) -> None:
        """Change the revisions of all deployments, by a new random text that is a part of each revision."""
        self._random_part = secrets.token_hex(8)

    def record_change(self, deployments: Iterable[int] | None, *, number: int) -> None:
        """Record that rows of these deployments have changed.

        Args:
            deployments: all changed deployments, and possibly unchanged ones; None if they are unknown.
            number: the number of the newest loaded segment; 0 for a purge.
        """
        change_number = self._last_change.change_number + 1
        self._last_change = _Change(change_number, max(self._last_change.segment_number, number))
        if deployments is None or len(self._changes) >= DEPLOYMENTS_MAX:
            # All deployments count as changed by this change. With too many entries, this limits the memory.
            self._default_change = self._last_change
            self._changes = {}
        self._changes |= dict.fromkeys(deployments or (), self._last_change)

    def record_directory_change(self) -> None:
        """Record that the directory has changed."""
        self._directory_change_count += 1

    def of_directory(self) -> str:
        """Return a string that changes when the directory may have changed. Hash it before a client gets it."""
        return f"{self._random_part} {self._directory_change_count}"

    def of(self, deployments: Collection[int] | None) -> str:
        """Return a string that changes when rows of these deployments may have changed; None means all deployments.

        The string reveals how often the server loads, so hash it before a client gets it.
        """
        if deployments is None:
            return f"{self._random_part} {self._last_change.change_number}"
        change_numbers = [(deployment, self._change_of(deployment).change_number) for deployment in sorted(deployments)]
        return f"{self._random_part} {change_numbers}"

    def segment_of_last_change(self, deployments: Collection[int]) -> int:
        """Return the number of the segment that was the newest when rows of these deployments last changed.

        Return 0 if these rows have not changed since the process started. Live streams of scoped keys use this number
        as their position, because loads of other deployments don't change it.
        """
        return max((self._change_of(deployment).segment_number for deployment in deployments), default=0)

    def _change_of(self, deployment: int) -> _Change:
        """Return the last change of a deployment; the default change if it has no entry."""
        return self._changes.get(deployment, self._default_change)
