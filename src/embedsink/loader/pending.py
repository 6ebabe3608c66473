"""The sealed segments in the journal's folder: which are loaded, and which are pending."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from embedsink.journal.segment import IDENTITY_LENGTH, OPEN, SEALED, Segment, identity_of, number_of

# The limits of the segments that one transaction loads.
BATCH_BYTES_MAX = 32 * 1_048_576
BATCH_SEGMENTS_MAX = 256


class PendingSegments:
    """The sealed segments in a folder. Only `on_sealed` and `waiting_since` may be used outside the loader's thread.

    Args:
        folder: the folder of the segments.
        on_removed: called with the size in bytes of each segment that is deleted or moved out of the folder.
    """

    def __init__(self, folder: Path, *, on_removed: Callable[[int], None]) -> None:
        # The loaded size of each segment in the folder, by identity.
        self.loaded_sizes: dict[str, int] = {}
        self._folder = folder
        self._on_removed = on_removed
        # The time of the oldest pending segment in the last listing, and of the first segment sealed after it.
        self._oldest_listed_at: float | None = None
        self._sealed_at: float | None = None

    def on_sealed(self) -> None:
        """Record when the first segment after the last listing was sealed."""
        if self._sealed_at is None:
            self._sealed_at = time.time()

    @property
    def waiting_since(self) -> float | None:
        """The time when the oldest pending segment was written, in epoch seconds; None if all are loaded."""
        times = [time_ for time_ in (self._oldest_listed_at, self._sealed_at) if time_ is not None]
        return min(times, default=None)

    def batches(self) -> Iterator[list[Path]]:
        """Yield the pending segments, oldest first, in batches for one transaction each."""
        self._sealed_at = None  # before the listing, so that a segment sealed after it sets this again
        # Nearly all of 100,000 names may be those of loaded segments. Compare a slice: `identity_of` would be too slow.
        names = sorted(name for name in self._names() if name[:IDENTITY_LENGTH] not in self.loaded_sizes)
        # The identity of a file that is not a segment is empty.
        paths = (self._folder / name for name in names if identity_of(name))
        for batch in _batches(path for path in paths if path.is_file()):
            self._oldest_listed_at = batch[0].stat().st_mtime
            yield batch
        self._oldest_listed_at = None

    def oldest_number(self) -> int | None:
        """Return the lowest number of all sealed and open segments; None if the folder has no segment."""
        # A name begins with the number in twelve digits. The identity of a file that is not a segment is empty.
        oldest_name = min(filter(identity_of, self._names((OPEN, SEALED))), default=None)
        return None if oldest_name is None else number_of(self._folder / oldest_name)

    def add_loaded(self, segments: Iterable[Segment]) -> None:
        """Record that these segments are in the store."""
        self.loaded_sizes |= {segment.identity: segment.byte_count for segment in segments}

    def delete_covered(self, covered_sizes: Mapping[str, int], *, newest_up_to: int = 0) -> list[Path]:
        """Delete the segments whose rows are in snapshots.

        Args:
            covered_sizes: the loaded size of each segment in the snapshots, by identity.
            newest_up_to: the newest segment stays if its number is higher. Then its number is not reused even if the
                ledger and `journal.last` are lost.

        Returns:
            The segments that are larger. They are not deleted, because a shorter file with that identity was loaded.
        """
        longer: list[Path] = []
        if not covered_sizes:
            return longer
        # The identity of a file that is not a segment is empty.
        segment_names = sorted(filter(identity_of, self._names()))
        for name in segment_names:
            identity = name[:IDENTITY_LENGTH]
            path = self._folder / name
            if identity not in covered_sizes or (name == segment_names[-1] and number_of(path) > newest_up_to):
                continue
            byte_count = path.stat().st_size
            if byte_count > covered_sizes[identity]:
                longer.append(path)
            else:
                path.unlink()
                self.loaded_sizes.pop(identity, None)
                self._on_removed(byte_count)
        return longer

    def report_removed(self, byte_count: int) -> None:
        """Call `on_removed` with the size of a segment, after the segment was moved to `damaged/`."""
        self._on_removed(byte_count)

    def _names(self, suffixes: tuple[str, ...] = (SEALED,)) -> Iterator[str]:
        """Yield the names of the files in the folder that have one of these suffixes, in any order."""
        # A listing may have 100,000 names, so create no path objects and read no file status here.
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(suffixes):
                    yield entry.name


def _batches(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Group segments into batches with a limited size and number of segments, which limits the memory of a load.

    A segment that exceeds the size limit is the only one in its batch.
    """
    batch: list[Path] = []
    batch_bytes = 0
    for path in paths:
        byte_count = path.stat().st_size
        if batch and (batch_bytes + byte_count > BATCH_BYTES_MAX or len(batch) == BATCH_SEGMENTS_MAX):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(path)
        batch_bytes += byte_count
    if batch:
        yield batch
