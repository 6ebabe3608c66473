"""What is damaged, and what is lost: kept in `aside/`, never deleted, and told until a person has seen to it."""

import logging
import time
from pathlib import Path

from embedsink.folder import LOST
from embedsink.segment import OPEN, SEALED, number_of, set_aside

log = logging.getLogger(__name__)


class Aside:
    """The folder `aside/`.

    Args:
        folder: where it lies.
        told: gets a sentence for each thing that waits for a person, as `/readyz` says it.
    """

    def __init__(self, folder: Path, *, told: list[str]) -> None:
        self._folder = folder
        self._told = told

    def look(self) -> None:
        """Tell what lies there from before."""
        for path in sorted([*self._folder.glob(f"*{SEALED}*"), *self._folder.glob(f"*{OPEN}*")]):
            self._told.append(f"aside/{path.name}: is damaged and not loaded. Mend it, or move it elsewhere.")
        for path in sorted(self._folder.glob(f"{LOST}*")):
            self._told.append(f"aside/{path.name}: {path.read_text(encoding='utf-8').strip()}")

    def look_for_a_gap(self, journal: Path, *, after: int) -> None:
        """Tell of segments that lie in neither store nor journal: numbers follow each other, so they were lost.

        Args:
            journal: the folder of the segments.
            after: the highest number that the store has.
        """
        here = {number_of(path) for path in (*journal.glob("*"), *self._folder.glob("*"))} - {0}
        missing = sorted(set(range(after + 1, max(here, default=0))) - here)
        if missing:
            self._declare_lost(f"journal: {_named(missing)} in neither the store nor the journal.")

    def keep_segment(self, segment: Path, why: str) -> None:
        """Keep a segment that can't be loaded."""
        set_aside(segment, aside=self._folder)
        told = f"journal {segment.name}: {why}. It is kept in aside/; everything else is loaded."
        self._told.append(told)
        log.error("segment_set_aside", extra={"detail": told})

    def keep_store(self, store: Path, why: str, *, instead: str) -> None:
        """Keep whatever is left of a store. Nobody has to see to it: what is done `instead` makes up for it."""
        if store.exists():
            log.error("store_set_aside", extra={"detail": f"store.duckdb: {why}. It is kept in aside/, and {instead}."})
            set_aside(store, aside=self._folder)

    def keep_snapshot(self, snapshot: Path) -> None:
        """Keep a snapshot that is as damaged as the store that was begun from it."""
        set_aside(snapshot, aside=self._folder)

    def _declare_lost(self, what: str) -> None:
        """Say it now, and at every start until a person has seen to it."""
        path = self._folder / f"{LOST}{time.time_ns()}.txt"
        sentence = f"{what} Restore a backup, or accept the loss: then move this file elsewhere."
        path.write_text(sentence + "\n", encoding="utf-8")
        self._told.append(f"aside/{path.name}: {sentence}")
        log.error("lost", extra={"detail": sentence})


def _named(missing: list[int]) -> str:
    """Segments by their numbers, with their verb."""
    first, last = missing[0], missing[-1]
    if first == last:
        return f"segment {first:,} is"
    if last - first + 1 == len(missing):
        return f"the segments {first:,} to {last:,} are"
    return f"{len(missing):,} of the segments {first:,} to {last:,} are"
