"""The limits of a journal."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """The limits of a journal, in bytes and seconds. The settings of the same names describe them."""

    segment_seal_s: float = 1.0
    segment_bytes_max: int = 8 * 1_048_576
    pending_bytes_max: int = 32 * 1_048_576
    journal_bytes_max: int = 4_096 * 1_048_576
    free_bytes_min: int = 8 * 1_048_576
