"""Dashboards as files: what they may say, whether it is right, and what their charts show.

A dashboard is a file of `dashboards/`: sections of charts, each of them a report with a Vega-Lite spec, a table, or a
number. Pages and pictures are made of the same files.
"""

from embedsink.charts.answering import ChartAnswer, answer_section
from embedsink.charts.checking import check_dashboards, find_mistakes, without_mistakes
from embedsink.charts.clock import span_of
from embedsink.charts.completing import completed
from embedsink.charts.files import (
    INSPECTOR,
    dashboards_folder,
    dashboards_with,
    files_of,
    find_dashboard,
    is_address,
    parse_dashboard,
    read_dashboards,
)
from embedsink.charts.model import VEGA_LITE, Chart, Dashboard, Figure, Gauge, Measure, Section, Table, Tile
from embedsink.charts.period import PARAMETERS as PERIOD_PARAMETERS
from embedsink.charts.period import PERIOD_DEFAULT, PERIODS, Period, period_of
from embedsink.charts.theme import DARK, LIGHT, vega_config
from embedsink.charts.words import NOTHING

__all__ = [
    "DARK",
    "INSPECTOR",
    "LIGHT",
    "NOTHING",
    "PERIODS",
    "PERIOD_DEFAULT",
    "PERIOD_PARAMETERS",
    "VEGA_LITE",
    "Chart",
    "ChartAnswer",
    "Dashboard",
    "Figure",
    "Gauge",
    "Measure",
    "Period",
    "Section",
    "Table",
    "Tile",
    "answer_section",
    "check_dashboards",
    "completed",
    "dashboards_folder",
    "dashboards_with",
    "files_of",
    "find_dashboard",
    "find_mistakes",
    "is_address",
    "parse_dashboard",
    "period_of",
    "read_dashboards",
    "span_of",
    "vega_config",
    "without_mistakes",
]
