"""A chart's Vega-Lite spec with everything that the file leaves out: rows, size, colours, the axis of time.

It does what http/pages/static/dashboards/tiles.js does in a page, but for what a picture can't: tooltips and clicks.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from embedsink.charts import Chart
from embedsink.charts.theme import Palette, vega_config
from embedsink.pictures.svg import FONT, TEXT_CHARACTERS_MAX, seen

_AXIS_FORMATS = {"hour": "%H:%M", "month": "%b %Y"}
_NONE_LABEL = "isValid(datum.value) ? datum.label : '(none)'"
_LEGEND_COLUMN_PX = 110


def whole_spec(
    chart: Chart,
    answer: Mapping[str, Any],
    time: tuple[str | None, tuple[int, int]],
    palette: Palette,
    *,
    width: float,
) -> dict[str, Any]:
    """The spec of a chart that has rows.

    Args:
        chart: with the file's spec.
        answer: its columns, rows and those of the period before.
        time: how long a period is, and where time begins and ends.
        palette: the colours.
        width: of the picture; the height is the chart's.
    """
    texts = _Texts()
    values = _objects(answer["columns"], answer["rows"], texts)
    interval, span = _time_of(values, time)
    spec = deepcopy(chart.spec)
    for part in _parts(spec):
        _complete(part, values, interval, span)
    config = vega_config(palette) | {"font": FONT, "numberFormat": ",.3~f"}
    config["legend"] = config["legend"] | {"columns": max(2, int(width // _LEGEND_COLUMN_PX))}
    around: dict[str, Any] = {
        "width": width,
        "height": chart.height - 8,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"name": "rows", "values": values},
        "config": config,
    }
    if not chart.compare or not answer["before"]:
        return spec | around
    earlier = _objects(answer["columns"], answer["before"], texts)
    line = {
        "data": {"name": "before", "values": earlier},
        "mark": {"type": "line", "style": "before"},
        "encoding": {
            "x": {"field": chart.compare.x, "type": "temporal", "scale": {"type": "utc", "domain": list(span)}},
            "y": {"aggregate": "sum", "field": chart.compare.y, "type": "quantitative"},
        },
    }
    return around | {"layer": [spec, line]}


class _Texts:
    """Texts as they are drawn, as long as a label may be. What differs stays different, or two bars would be one."""

    def __init__(self) -> None:
        self._drawn: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def drawn(self, text: str) -> str:
        # What measures text ends the whole process where XML can't hold a character.
        if len(text) <= TEXT_CHARACTERS_MAX:
            return seen(text)
        if text not in self._drawn:
            start = seen(text[:TEXT_CHARACTERS_MAX])
            self._counts[start] += 1
            self._drawn[text] = f"{start}… {self._counts[start]}"
        return self._drawn[text]


def _objects(names: Sequence[str], rows: Sequence[Sequence[Any]], texts: _Texts) -> list[dict[str, Any]]:
    values = ([texts.drawn(value) if isinstance(value, str) else value for value in row] for row in rows)
    return [dict(zip(names, row, strict=False)) for row in values]


def _complete(part: dict[str, Any], values: list[dict[str, Any]], interval: str | None, span: tuple[int, int]) -> None:
    encoding = part.get("encoding")
    if not isinstance(encoding, dict):
        return
    encoding.pop("tooltip", None)
    x, y = encoding.get("x"), encoding.get("y")
    if isinstance(x, dict) and x.get("type") == "temporal":
        axis = {"format": _AXIS_FORMATS.get(str(interval), "%-d %b")} | _ticks(values, interval, span)
        x["axis"] = axis | (x.get("axis") or {})
        x["scale"] = {"domain": list(span)} | (x.get("scale") or {})
    if isinstance(y, dict) and y.get("type") == "nominal":
        y["axis"] = {"labelExpr": _NONE_LABEL} | (y.get("axis") or {})


def _parts(spec: Any) -> Iterator[dict[str, Any]]:
    if isinstance(spec, dict):
        yield spec
        for part in list(spec.values()):
            yield from _parts(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _parts(part)


def _time_of(
    values: list[dict[str, Any]], time: tuple[str | None, tuple[int, int]]
) -> tuple[str | None, tuple[int, int]]:
    """A report of days has days, whatever is asked for."""
    if "day" not in values[0]:
        return time
    return "day", (min(row["day"] for row in values), max(row["period_end"] for row in values))


def _ticks(values: list[dict[str, Any]], interval: str | None, span: tuple[int, int]) -> dict[str, Any]:
    """Days and longer periods are named below their middle."""
    middles = sorted({row["period_middle"] for row in values if "period_middle" in row})
    if interval == "hour" or not middles:
        return {}
    start, end = span
    steps = [after - before for before, after in itertools.pairwise(middles)]
    step = min(steps, default=end - start)
    first = middles[0] - (middles[0] - start) // step * step
    return {"values": list(range(first, end, step)), "labelOverlap": "greedy", "labelSeparation": 12}
