"""The input of an image: the answers of its sections, and its caption."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class SectionAnswer:
    """The data of a section, as returned by `/api/v1/dashboards/{name}/sections/{section}`.

    Args:
        span: the start and end of the time axis, in epoch milliseconds of the reader's local time.
        interval: the length of a period.
        compared: whether the data includes the previous period.
        charts: by tile id: `columns`, `rows`, `before`, `value`, `value_before`, `is_cut`.
    """

    span: tuple[int, int]
    interval: str | None
    compared: bool
    charts: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Caption:
    """The lines above the tiles: filters, time of rendering, and time of the snapshot, if any.

    Args:
        made_at: the time of rendering.
        timezone: the time zone of all times.
        narrowed: the active filters by name.
        snapshot_at: the time of the snapshot that the data comes from.
    """

    made_at: datetime
    timezone: str = "UTC"
    narrowed: Mapping[str, str] = field(default_factory=dict)
    snapshot_at: datetime | None = None
