"""The current values of a dashboard's gauges, which the server measures itself."""

import time
from collections.abc import Callable
from typing import Any

from embedsink.dashboards.model import Gauge, Measure, Section
from embedsink.engine import Engine


def read_gauges(engine: Engine, section: Section, *, is_hidden: bool) -> dict[str, Any]:
    """Return the value of each gauge in a section, by the gauge's id.

    Args:
        engine: the open data folder.
        section: the section.
        is_hidden: whether to return None for each value, because the key must not see totals over all deployments.
    """
    return {
        tile.id: {"value": None if is_hidden else MEASURES[tile.measure](engine)}
        for tile in section.tiles
        if isinstance(tile, Gauge)
    }


def _loading_delay_s(engine: Engine) -> float:
    """Return how long the oldest pending event has waited to be loaded; 0 if no event is pending."""
    waiting_since = engine.loader.waiting_since()
    if waiting_since is None:
        return 0.0
    return max(0.0, time.time() - waiting_since)  # The clock may have been set back.


def _snapshot_age_s(engine: Engine) -> float | None:
    """Return the age of the snapshot; None before the first snapshot."""
    published_at = engine.loader.status.snapshot_at
    if published_at is None:
        return None
    return max(0.0, time.time() - published_at)  # The clock may have been set back.


MEASURES: dict[Measure, Callable[[Engine], Any]] = {
    "loading_delay_s": _loading_delay_s,
    "journal_segment_count": lambda engine: engine.journal.capacity.segment_count,
    "journal_bytes": lambda engine: engine.journal.capacity.byte_count,
    "snapshot_age_s": _snapshot_age_s,
    "damaged_count": lambda engine: len(engine.loader.status.damaged),
}
