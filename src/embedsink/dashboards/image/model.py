"""The input of an image: the answers of its sections, and its caption."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class SectionAnswer:
    """What the charts of a section show, as `/api/v1/dashboards/{name}/sections/{section}` tells it.

    Args:
        span: where its time begins and ends, in epoch milliseconds of what the reader's clocks show.
        interval: how long a period is.
        compared: whether the period before is told too.
        charts: by their ids: `columns`, `rows`, `before`, `value`, `value_before`, `is_cut`.
    """

    span: tuple[int, int]
    interval: str | None
    compared: bool
    charts: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Caption:
    """What stands above the charts: of whom they are, and when they were made; `snapshot_at` where they are of one.

    `timezone` is that of its times.
    """

    made_at: datetime
    timezone: str = "UTC"
    narrowed: Mapping[str, str] = field(default_factory=dict)
    snapshot_at: datetime | None = None
