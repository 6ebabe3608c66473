"""The loader's status for `/readyz` and `/metrics`."""

import logging
from dataclasses import dataclass, field

from embedsink.errors import EmbedsinkError
from embedsink.store.duckdb_errors import SqlFailed, StoreBroken, StoreDamaged, StoreRefused
from embedsink.store.ledger import LoadCounts

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoaderStatus:
    """Counters, times and messages of the loader."""

    segment_count: int = 0
    received_count: int = 0
    accepted_count: int = 0
    duplicate_count: int = 0
    quarantined_count: int = 0
    conflict_count: int = 0
    load_duration_s: float = 0.0
    snapshot_count: int = 0
    snapshot_duration_s: float = 0.0
    snapshot_at: float | None = None  # in epoch seconds
    reopened_count: int = 0  # how often a broken store was closed, to be opened again
    load_error: str | None = None
    snapshot_error: str | None = None
    thread_error: str | None = None
    damaged: list[str] = field(default_factory=list)

    @property
    def error(self) -> str | None:
        """The messages about what prevents loading or publishing; None if nothing does."""
        if self.thread_error:
            return self.thread_error
        errors = [error for error in (self.load_error, self.snapshot_error) if error]
        return " ".join(errors) if errors else None

    def add(self, counts: LoadCounts) -> None:
        """Add the counts of a load."""
        self.segment_count += counts.segment_count
        self.received_count += counts.received_count
        self.accepted_count += counts.accepted_count
        self.duplicate_count += counts.duplicate_count
        self.quarantined_count += counts.quarantined_count
        self.conflict_count += counts.conflict_count


def error_message(failure: Exception) -> str:
    """Return a message for `/readyz` that says what failed and what happens next. Log the traceback of a bug."""
    match failure:
        case StoreDamaged():
            return f"store: {failure}. It is being rebuilt."
        case StoreBroken():
            return f"store: {failure}. It is being reopened."
        case StoreRefused() | SqlFailed() | OSError():
            return f"store: {failure}. Loading continues when this is resolved."
        case EmbedsinkError():
            return str(failure)
    log.error("bug", exc_info=failure)
    return f"loader: interrupted by a bug ({type(failure).__name__}); see the log. The loader retries."
