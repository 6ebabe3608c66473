"""A chart's Vega-Lite spec with its rows, its size and its colours; static/dashboards/tiles.js does the same."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from embedsink.dashboards.image.svg import FONT, TEXT_CHARACTERS_MAX, seen
from embedsink.dashboards.image.text import named
from embedsink.dashboards.model import Chart
from embedsink.dashboards.theme import Palette, vega_config
from embedsink.dashboards.vega_spec import completed

_DATE_FORMATS = {"hour": "%H:%M", "month": "%b %Y"}


def whole_spec(
    chart: Chart, answer: Mapping[str, Any], palette: Palette, *, width: float, height: float
) -> dict[str, Any]:
    """The spec of a chart that has rows.

    Args:
        chart: with the file's spec.
        answer: its columns, rows, those of the period before, and its time.
        palette: the colours.
        width, height: of the picture.
    """
    spec = completed(chart)
    texts = _Texts()
    rows, before = (_objects(answer["columns"], answer[name], texts) for name in ("rows", "before"))
    parameters = {
        "span": answer.get("span"),
        "ticks": answer.get("ticks"),
        "date_format": _DATE_FORMATS.get(str(answer.get("interval")), "%-d %b"),
    }
    return spec | {
        "width": width,
        "height": height,
        "datasets": {"rows": rows, "before": before, "marks": [{"at": at} for at in answer.get("marks") or []]},
        "params": [*spec.get("params", []), *({"name": name, "value": value} for name, value in parameters.items())],
        "config": vega_config(palette) | {"font": FONT},
    }


class _Texts:
    """Texts as they are drawn, as long as a label may be. What differs stays different, or two bars would be one."""

    def __init__(self) -> None:
        self._drawn: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def drawn(self, text: str) -> str:
        # What measures text ends the whole process where XML can't hold a character.
        if len(text) <= TEXT_CHARACTERS_MAX:
            return seen(named(text))
        if text not in self._drawn:
            start = seen(named(text[:TEXT_CHARACTERS_MAX]))
            self._counts[start] += 1
            self._drawn[text] = f"{start}… {self._counts[start]}"
        return self._drawn[text]


def _objects(names: Sequence[str], rows: Sequence[Sequence[Any]], texts: _Texts) -> list[dict[str, Any]]:
    values = ([texts.drawn(value) if isinstance(value, str) else value for value in row] for row in rows)
    return [dict(zip(names, row, strict=False)) for row in values]
