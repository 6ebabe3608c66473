"""How charts look, in light and in dark: Vega-Lite's `config` in the colours of http/pages/static/base.css."""

from dataclasses import dataclass
from typing import Any

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one scheme. `accent` is the one colour; `series` tells several apart, the accent first.

    `ground` is a card's, `desk` is below the cards; `good` and `bad` tell changes.
    """

    ground: str
    desk: str
    good: str
    bad: str
    ink: str
    quiet: str
    line: str
    accent: str
    series: tuple[str, ...]
    warm: tuple[str, ...]


LIGHT = Palette(
    ground="#ffffff",
    desk="#f4f6f8",
    good="#0a6b4c",
    bad="#b42318",
    ink="#1f2328",
    quiet="#59636e",
    line="#e4e8ec",
    accent="#0b5cad",
    series=("#0b5cad", "#2a9d8f", "#8a6fd1", "#d08c2a", "#b0417e", "#7a8794", "#5d8a2e", "#a65e3a"),
    warm=("#c0392b", "#e08e45"),
)
DARK = Palette(
    ground="#151c24",
    desk="#0d1218",
    good="#4cc38a",
    bad="#ff8a7a",
    ink="#e6edf3",
    quiet="#9aa5b1",
    line="#27303a",
    accent="#4c96ea",
    series=("#4c96ea", "#3fbfb3", "#a48be8", "#e0a95a", "#d977ad", "#8b98a5", "#8fbf5a", "#d08a66"),
    warm=("#f0705f", "#e0a35a"),
)


_LEGEND = {
    "orient": "top",
    "direction": "horizontal",
    "title": None,
    "titleOrient": "left",
    "titleFontWeight": 400,
    "titlePadding": 12,
    "symbolType": "square",
    "symbolSize": 90,
    "offset": 10,
    "labelLimit": 160,
    "columnPadding": 16,
    # As many side by side as there is room for, by what the names take beside a square: some 7 px a character, the
    # longest half as many again as usual, and no more than the limit of a label. In a page the room is that of the
    # tile but for an axis: what the plot has is known only when room was made for the legend's lines.
    "columns": {
        "signal": "max(1, floor((containerSize()[0] > 0 ? min(width, containerSize()[0] - 60) : width)"
        " / (36 + min(160, 10 * length(join(domain('color'), '')) / length(domain('color'))))))"
    },
}


def vega_config(palette: Palette) -> dict[str, Any]:
    """The `config` of a Vega-Lite spec."""
    text = {"labelColor": palette.quiet, "titleColor": palette.quiet, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": "transparent",
        # Axes have as many digits as their steps need.
        "tooltipFormat": {"numberFormat": ",.3~f"},
        "font": FONT,
        "padding": {"left": 0, "right": 2, "top": 4, "bottom": 4},
        "view": {"stroke": None},
        "title": {
            "anchor": "start",
            "color": palette.ink,
            "subtitleColor": palette.quiet,
            "fontSize": 15,
            "subtitleFontSize": 12,
            "subtitlePadding": 6,
            "offset": 16,
        },
        "axis": text
        | {
            "domain": False,
            "ticks": False,
            "gridColor": palette.line,
            "labelPadding": 8,
            "titleFontWeight": 400,
            "titlePadding": 10,
            "labelLimit": 220,
        },
        "axisX": {"grid": False, "domain": True, "domainColor": palette.line, "labelFlush": True, "tickCount": 7},
        "axisY": {"tickCount": 4},
        "axisBand": {"grid": False, "domain": False},
        "legend": text | _LEGEND,
        "mark": {"color": palette.accent, "tooltip": True},
        "bar": {"color": palette.accent},
        "line": {"color": palette.accent, "strokeWidth": 2, "strokeCap": "round", "strokeJoin": "round"},
        "area": {"color": palette.accent, "fillOpacity": 0.18, "line": True},
        "rule": {"color": palette.quiet},
        "text": {"color": palette.ink, "fontSize": 12},
        "point": {"filled": True, "size": 44, "opacity": 1},
        "range": {
            "category": list(palette.series),
            "ordinal": list(palette.series),
            "outcome": [palette.series[0], palette.series[5], *reversed(palette.warm)],
            "usual": [palette.accent, palette.warm[0]],
        },
        "style": _styles(palette),
    }


def _styles(palette: Palette) -> dict[str, Any]:
    """What the files of dashboards name in `style`, and the period before."""
    quiet = {"color": palette.quiet, "strokeWidth": 1.5}
    return {
        "moment": quiet | {"strokeDash": [1, 3], "strokeCap": "round"},
        "before": quiet | {"strokeDash": [3, 4]},
        "round": {"cornerRadiusEnd": 3},
    }
