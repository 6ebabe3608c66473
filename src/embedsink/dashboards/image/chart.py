"""One chart as SVG: the spec with its rows, size and colours, rendered by vl-convert.

static/dashboards/tiles.js builds the same spec in the browser.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from embedsink.dashboards.image.svg import FONT, TEXT_CHARACTERS_MAX, strip_unsafe
from embedsink.dashboards.image.text import display_name
from embedsink.dashboards.model import VEGA_LITE, Chart
from embedsink.dashboards.theme import Palette, vega_config
from embedsink.dashboards.vega_spec import complete_spec
from embedsink.errors import Misconfigured

_DATE_FORMATS = {"hour": "%H:%M", "month": "%b %Y"}
# Vega counts UTF-16 code units and can truncate a long label inside a surrogate pair.
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_PLACEHOLDER = "\u25a1"


def chart_svg(spec: dict[str, Any], *, tile: str) -> str:
    """Return the SVG of a spec that contains its rows.

    Args:
        spec: a complete Vega-Lite spec.
        tile: the id of the chart, for the error message.

    Raises:
        Misconfigured: Vega-Lite can't draw the spec.
    """
    import vl_convert  # Imported here: the import takes 60 ms and 30 MiB.

    text = json.dumps(spec, ensure_ascii=False)
    for attempt in dict.fromkeys((text, _ASTRAL.sub(_PLACEHOLDER, text))):
        try:
            svg: str = vl_convert.vegalite_to_svg(attempt, vl_version=VEGA_LITE, allowed_base_urls=[])
        except ValueError as error:
            reason = str(error).strip().splitlines()[0]
        else:
            return svg
    raise Misconfigured(f"chart {tile}: Vega-Lite can't draw its spec ({reason}). Correct the dashboard file.")


def spec_with_data(
    chart: Chart, answer: Mapping[str, Any], palette: Palette, *, width: float, height: float
) -> dict[str, Any]:
    """Return the complete spec of a chart with its rows.

    Args:
        chart: the chart with the spec of its file.
        answer: the columns, rows, rows of the previous period, and the time axis.
        palette: the colours.
        width, height: the size of the image in pixels.
    """
    spec = complete_spec(chart)
    labels = _Labels()
    rows, before = (_objects(answer["columns"], answer[name], labels) for name in ("rows", "before"))
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


class _Labels:
    """Labels of limited length. Different texts get different labels, because Vega merges bars with equal labels."""

    def __init__(self) -> None:
        self._by_text: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def label(self, text: str) -> str:
        # Characters that XML can't represent crash vl-convert's text measurement.
        if len(text) <= TEXT_CHARACTERS_MAX:
            return strip_unsafe(display_name(text))
        if text not in self._by_text:
            start = strip_unsafe(display_name(text[:TEXT_CHARACTERS_MAX]))
            self._counts[start] += 1
            self._by_text[text] = f"{start}… {self._counts[start]}"
        return self._by_text[text]


def _objects(names: Sequence[str], rows: Sequence[Sequence[Any]], labels: _Labels) -> list[dict[str, Any]]:
    values = ([labels.label(value) if isinstance(value, str) else value for value in row] for row in rows)
    return [dict(zip(names, row, strict=False)) for row in values]
