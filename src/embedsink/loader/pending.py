"""The sealed segments in the journal: which of them the store has, which wait, and since when."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from embedsink.journal.segment import IDENTITY_LENGTH, OPEN, SEALED, Segment, identity_of, number_of

TOGETHER_BYTES_MAX = 32 * 1_048_576
TOGETHER_COUNT_MAX = 256


class PendingSegments:
    """The loader's side of the journal's folder. All but `grow` and `waiting_since` belongs to its thread.

    Args:
        folder: where the segments lie.
        on_removed: called with the bytes of each that is taken out.
    """

    def __init__(self, folder: Path, *, on_removed: Callable[[int], None]) -> None:
        self.loaded: dict[str, int] = {}  # of those that lie there, by identity, with their bytes
        self._folder = folder
        self._on_removed = on_removed
        self._waiting_since: float | None = None  # as of the last look
        self._grown_at: float | None = None  # since that look

    def grow(self) -> None:
        """A segment was sealed."""
        if self._grown_at is None:
            self._grown_at = time.time()

    @property
    def waiting_since(self) -> float | None:
        """When the oldest was written that is not in the store; epoch seconds, None when all are."""
        return min((at for at in (self._waiting_since, self._grown_at) if at is not None), default=None)

    def waiting(self) -> Iterator[list[Path]]:
        """Those that are not in the store, oldest first: with each step what is loaded in one transaction."""
        self._grown_at = None  # first, so that one that is sealed behind this look sets it again
        names = sorted(name for name in self._names() if name[:IDENTITY_LENGTH] not in self.loaded)
        paths = (self._folder / name for name in names if identity_of(name))
        for some in _together(path for path in paths if path.is_file()):
            self._waiting_since = some[0].stat().st_mtime
            yield some
        self._waiting_since = None

    def oldest_number(self) -> int | None:
        """The lowest number of all, open ones too; None without any."""
        oldest = min(filter(identity_of, self._names((OPEN, SEALED))), default=None)
        return None if oldest is None else number_of(self._folder / oldest)

    def add_loaded(self, segments: Iterable[Segment]) -> None:
        """These are in the store."""
        self.loaded |= {segment.identity: segment.byte_count for segment in segments}

    def delete(self, covered: Mapping[str, int]) -> list[Path]:
        """Delete segments that snapshots cover, but for the newest of all.

        Args:
            covered: their identities, with the bytes that were loaded of each.

        Returns:
            Those that have more bytes. They stay.
        """
        longer: list[Path] = []
        if not covered:
            return longer
        for name in sorted(filter(identity_of, self._names()))[:-1]:
            covered_bytes = covered.get(name[:IDENTITY_LENGTH])
            if covered_bytes is None:
                continue
            path = self._folder / name
            byte_count = path.stat().st_size
            if byte_count > covered_bytes:
                longer.append(path)
            else:
                path.unlink()
                self.loaded.pop(name[:IDENTITY_LENGTH], None)
                self._on_removed(byte_count)
        return longer

    def remove(self, byte_count: int) -> None:
        """One of so many bytes was set aside."""
        self._on_removed(byte_count)

    def _names(self, suffixes: tuple[str, ...] = (SEALED,)) -> Iterator[str]:
        # There may be 100,000, at each look: no path is made for each, and no file looked at.
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(suffixes):
                    yield entry.name


def _together(waiting: Iterable[Path]) -> Iterator[list[Path]]:
    """Those that are loaded in one transaction: many small ones, or a large one, so that its memory has a bound."""
    some: list[Path] = []
    byte_count = 0
    for path in waiting:
        path_bytes = path.stat().st_size
        if some and (byte_count + path_bytes > TOGETHER_BYTES_MAX or len(some) == TOGETHER_COUNT_MAX):
            yield some
            some, byte_count = [], 0
        some.append(path)
        byte_count += path_bytes
    if some:
        yield some
