"""The light and dark chart themes: Vega-Lite's `config` in the colours of the dashboard pages.

The style sheets base.css and dashboards.css in http/pages/static define these colours.
"""

from dataclasses import dataclass
from typing import Any

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a theme. `card` is the background of a tile, `page` the background behind the tiles.

    `series` are the colours of the series of a chart. `warm` are the colours of failures.
    """

    card: str
    page: str
    good: str
    bad: str
    text: str
    muted: str
    border: str
    accent: str
    series: tuple[str, ...]
    warm: tuple[str, ...]


LIGHT = Palette(
    card="#ffffff",
    page="#f4f6f8",
    good="#0a6b4c",
    bad="#b42318",
    text="#1f2328",
    muted="#59636e",
    border="#e4e8ec",
    accent="#0b5cad",
    series=("#0b5cad", "#2a9d8f", "#8a6fd1", "#d08c2a", "#b0417e", "#7a8794", "#5d8a2e", "#a65e3a"),
    warm=("#c0392b", "#e08e45"),
)
DARK = Palette(
    card="#151c24",
    page="#0d1218",
    good="#4cc38a",
    bad="#ff8a7a",
    text="#e6edf3",
    muted="#9aa5b1",
    border="#27303a",
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
    # The number of legend columns that fit the width. An entry takes 36 px, and 10 px for each character of the average
    # name, at most the label limit. On a page, the width of the plot is known only after the legend has its height. So
    # the width is that of the tile, minus 60 px for the axis.
    "columns": {
        "signal": "max(1, floor((containerSize()[0] > 0 ? min(width, containerSize()[0] - 60) : width)"
        " / (36 + min(160, 10 * length(join(domain('color'), '')) / length(domain('color'))))))"
    },
}


def vega_config(palette: Palette) -> dict[str, Any]:
    """Return the `config` of a Vega-Lite spec."""
    return {
        "background": "transparent",
        # Only for tooltips: Vega chooses the digits of axes.
        "tooltipFormat": {"numberFormat": ",.3~f"},
        "font": FONT,
        "padding": {"left": 0, "right": 2, "top": 4, "bottom": 4},
        "view": {"stroke": None},
        **_text_config(palette),
        **_axis_config(palette),
        **_mark_config(palette),
        "range": {
            "category": list(palette.series),
            "ordinal": list(palette.series),
            # From answered to failed: blue, grey, orange, red.
            "outcome": [palette.series[0], palette.series[5], *reversed(palette.warm)],
            "usual": [palette.accent, palette.warm[0]],  # usual, unusual
        },
        "style": _styles(palette),
    }


def _text_config(palette: Palette) -> dict[str, Any]:
    """Return the config of titles and legends."""
    return {
        "title": {
            "anchor": "start",
            "color": palette.text,
            "subtitleColor": palette.muted,
            "fontSize": 15,
            "subtitleFontSize": 12,
            "subtitlePadding": 6,
            "offset": 16,
        },
        "legend": _label_config(palette) | _LEGEND,
    }


def _axis_config(palette: Palette) -> dict[str, Any]:
    """Return the config of axes."""
    return {
        "axis": _label_config(palette)
        | {
            "domain": False,
            "ticks": False,
            "gridColor": palette.border,
            "labelPadding": 8,
            "titleFontWeight": 400,
            "titlePadding": 10,
            "labelLimit": 220,
        },
        "axisX": {"grid": False, "domain": True, "domainColor": palette.border, "labelFlush": True, "tickCount": 7},
        "axisY": {"tickCount": 4},
        "axisBand": {"grid": False, "domain": False},
    }


def _label_config(palette: Palette) -> dict[str, Any]:
    """Return the config of labels and titles, which axes and legends share."""
    return {"labelColor": palette.muted, "titleColor": palette.muted, "labelFontSize": 12, "titleFontSize": 12}


def _mark_config(palette: Palette) -> dict[str, Any]:
    """Return the config of marks such as bars and lines."""
    return {
        "mark": {"color": palette.accent, "tooltip": True},
        "bar": {"color": palette.accent},
        "line": {"color": palette.accent, "strokeWidth": 2, "strokeCap": "round", "strokeJoin": "round"},
        "area": {"color": palette.accent, "fillOpacity": 0.18, "line": True},
        "rule": {"color": palette.muted},
        "text": {"color": palette.text, "fontSize": 12},
        "point": {"filled": True, "size": 44, "opacity": 1},
    }


def _styles(palette: Palette) -> dict[str, Any]:
    """Return the styles that dashboard files name, and the style of the previous period."""
    thin_line = {"color": palette.muted, "strokeWidth": 1.5}
    return {
        "moment": thin_line | {"strokeDash": [1, 3], "strokeCap": "round"},
        "before": thin_line | {"strokeDash": [3, 4]},
        "round": {"cornerRadiusEnd": 3},
    }
