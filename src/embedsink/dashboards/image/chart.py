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
from embedsink.dashboards.vega_spec import BEFORE, MARKS, ROWS, complete_spec
from embedsink.errors import Misconfigured

_DATE_FORMATS = {"hour": "%H:%M", "month": "%b %Y"}
# Characters that are a surrogate pair in UTF-16. Vega can truncate a long label between the two surrogates.
_SURROGATE_PAIR_CHARACTER = re.compile("[\U00010000-\U0010ffff]")
_PLACEHOLDER = "\u25a1"


def chart_svg(spec: dict[str, Any], *, tile: str) -> str:
    """Return the SVG of a spec that contains its rows.

    Args:
        spec: a complete Vega-Lite spec.
        tile: the id of the chart, for the error message.

    Raises:
        Misconfigured: Vega-Lite can't draw the spec.
    """
    try:
        return _convert_with_retry(json.dumps(spec, ensure_ascii=False))
    except ValueError as error:
        reason = str(error).strip().splitlines()[0]
        raise Misconfigured(
            f"chart {tile}: Vega-Lite can't draw its spec ({reason}). Correct the dashboard file."
        ) from None


def _convert_with_retry(spec: str) -> str:
    """Convert a spec to SVG. If that fails, try again without the characters that are a surrogate pair in UTF-16.

    Vega can truncate a label between the two surrogates, which is then invalid text.
    """
    try:
        return _convert(spec)
    except ValueError:
        without_pairs = _SURROGATE_PAIR_CHARACTER.sub(_PLACEHOLDER, spec)
        if without_pairs == spec:
            raise
        return _convert(without_pairs)


def _convert(spec: str) -> str:
    """Convert a spec to SVG. Raise ValueError if Vega-Lite can't draw the spec."""
    import vl_convert  # Imported here: the import takes 60 ms and 30 MiB.

    # The empty list prevents the spec from loading remote data.
    svg: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    return svg


def spec_with_data(
    chart: Chart, data: Mapping[str, Any], palette: Palette, *, width: float, height: float
) -> dict[str, Any]:
    """Return the complete spec of a chart with its rows.

    Args:
        chart: the chart, with the partial spec from its file.
        data: the columns, the rows, the rows of the previous period, the time axis and the marks.
        palette: the colours.
        width, height: the size of the image in pixels.
    """
    spec = complete_spec(chart)
    labels = _Labels()  # shared, so that a text has the same label in both periods
    signals = {
        "span": data.get("span"),
        "ticks": data.get("ticks"),
        "date_format": _DATE_FORMATS.get(str(data.get("interval")), "%-d %b"),
    }
    params = [*spec.get("params", []), *({"name": name, "value": value} for name, value in signals.items())]
    return spec | {
        "width": width,
        "height": height,
        "datasets": {
            ROWS: _row_objects(data["columns"], data["rows"], labels),
            BEFORE: _row_objects(data["columns"], data["before"], labels),
            MARKS: [{"at": time} for time in data.get("marks") or []],
        },
        "params": params,
        "config": vega_config(palette) | {"font": FONT},  # the font of images, which replaces that of pages
    }


class _Labels:
    """The labels of texts. Labels are short, and unique for each text, because Vega merges bars with equal labels."""

    def __init__(self) -> None:
        self._by_text: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def label(self, text: str) -> str:
        """Return the label of a text. A long text is shortened, and gets a number that makes the label unique."""
        # Characters that XML can't represent crash vl-convert's text measurement.
        beginning = strip_unsafe(display_name(text[:TEXT_CHARACTERS_MAX]))
        if len(text) <= TEXT_CHARACTERS_MAX:
            return beginning
        if text not in self._by_text:
            self._counts[beginning] += 1
            self._by_text[text] = f"{beginning}… {self._counts[beginning]}"
        return self._by_text[text]


def _row_objects(names: Sequence[str], rows: Sequence[Sequence[Any]], labels: _Labels) -> list[dict[str, Any]]:
    """Return rows as objects by column name, with labels instead of texts."""
    objects = []
    for row in rows:
        values = [labels.label(value) if isinstance(value, str) else value for value in row]
        objects.append(dict(zip(names, values, strict=False)))
    return objects
