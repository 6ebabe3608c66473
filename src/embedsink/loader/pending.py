"""The sealed segments in the journal: which are loaded, which are pending, and since when."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from embedsink.journal.segment import IDENTITY_LENGTH, OPEN, SEALED, Segment, identity_of, number_of

BATCH_BYTES_MAX = 32 * 1_048_576
BATCH_COUNT_MAX = 256


class PendingSegments:
    """The loader's view of the journal's folder. All but `on_sealed` and `waiting_since` belongs to its thread.

    Args:
        folder: the folder of the segments.
        on_removed: called with the size in bytes of each segment that leaves the folder.
    """

    def __init__(self, folder: Path, *, on_removed: Callable[[int], None]) -> None:
        self.loaded: dict[str, int] = {}  # the sizes of loaded segments in the folder, by identity
        self._folder = folder
        self._on_removed = on_removed
        self._waiting_since: float | None = None  # as of the last listing
        self._sealed_at: float | None = None  # since that listing

    def on_sealed(self) -> None:
        """Note that a segment was sealed."""
        if self._sealed_at is None:
            self._sealed_at = time.time()

    @property
    def waiting_since(self) -> float | None:
        """When the oldest pending segment was written, in epoch seconds; None if all are loaded."""
        return min((at for at in (self._waiting_since, self._sealed_at) if at is not None), default=None)

    def batches(self) -> Iterator[list[Path]]:
        """Yield the pending segments, oldest first, in batches for one transaction each."""
        self._sealed_at = None  # before the listing, so that a segment sealed after it sets this again
        names = sorted(name for name in self._names() if name[:IDENTITY_LENGTH] not in self.loaded)
        paths = (self._folder / name for name in names if identity_of(name))
        for batch in _batches(path for path in paths if path.is_file()):
            self._waiting_since = batch[0].stat().st_mtime
            yield batch
        self._waiting_since = None

    def oldest_number(self) -> int | None:
        """Return the lowest number of all segments, open ones included; None without any."""
        oldest = min(filter(identity_of, self._names((OPEN, SEALED))), default=None)
        return None if oldest is None else number_of(self._folder / oldest)

    def add_loaded(self, segments: Iterable[Segment]) -> None:
        """Note that these segments are in the store."""
        self.loaded |= {segment.identity: segment.byte_count for segment in segments}

    def delete_covered(self, covered: Mapping[str, int]) -> list[Path]:
        """Delete the segments that snapshots cover, except the newest segment of all.

        Args:
            covered: the bytes that were loaded of each segment, by identity.

        Returns:
            The covered segments that are longer than what was loaded. They are not deleted.
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

    def count_removed(self, byte_count: int) -> None:
        """Count a segment that was moved to `damaged/`."""
        self._on_removed(byte_count)

    def _names(self, suffixes: tuple[str, ...] = (SEALED,)) -> Iterator[str]:
        # A listing may have 100,000 names, so create no path objects and read no file status here.
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(suffixes):
                    yield entry.name


def _batches(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield batches of many small segments or of one large one, so that a load's memory is limited."""
    batch: list[Path] = []
    batch_bytes = 0
    for path in paths:
        byte_count = path.stat().st_size
        if batch and (batch_bytes + byte_count > BATCH_BYTES_MAX or len(batch) == BATCH_COUNT_MAX):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(path)
        batch_bytes += byte_count
    if batch:
        yield batch
