"""Charts are drawn as SVG for any labels and any spec."""

from typing import Any

import pytest

from embedsink.dashboards.image.chart import chart_svg
from embedsink.dashboards.theme import LIGHT, vega_config
from embedsink.errors import Misconfigured
from tests.dashboards.image.svg_reader import texts_of


def bars(*names: str) -> dict[str, Any]:
    """Return a spec with a bar for each name, in the theme that truncates labels."""
    return {
        "data": {"values": [{"name": name, "count": 1} for name in names]},
        "mark": "bar",
        "encoding": {"y": {"field": "name", "type": "nominal"}, "x": {"field": "count", "type": "quantitative"}},
        "config": vega_config(LIGHT),
    }


@pytest.mark.parametrize("length", [43, 48, 49, 54, 55])
def test_a_label_truncated_within_an_emoji_is_drawn(length: int) -> None:
    words = "Revenue of all the regions and product lines of the whole group"[:length]
    svg = chart_svg(bars(f"{words}🚀 and everything else that there is to it, of the year"), tile="one")
    assert "Revenue of all the regions" in " ".join(texts_of(svg))


def test_labels_of_emojis_only_are_drawn() -> None:
    assert "<svg" in chart_svg(bars("😀" * 200, "🚀"), tile="one")


def test_an_emoji_within_the_limit_is_kept() -> None:
    assert "🚀 up" in chart_svg(bars("🚀 up"), tile="one")


def test_an_invalid_spec_raises_an_error_with_its_tile() -> None:
    with pytest.raises(
        Misconfigured, match=r"^chart one: Vega-Lite can't draw its spec \(.+\)\. Correct the dashboard file"
    ):
        chart_svg({"mark": "zigzag", "encoding": {}}, tile="one")
