"""A chart's spec with what every chart has, so that no file says it: axes, time, sizes, and the period before.

A page and a picture add only their rows, their colours and these parameters, which are as the rows are:

    span          where time begins and ends
    ticks         the middles of its periods, where they are named below it; null leaves it to Vega
    date_format   how these are written (d3-time-format)
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from embedsink.dashboards.model import Chart

ROWS, BEFORE, MARKS = "rows", "before", "marks"
# What keeps the nature of the counts that it puts together.
_KEEPING = (None, "sum", "max", "min")
_COUNTING = ("count", "distinct")
_POSITIONS = ("x", "y")
# Nothing happens half. Vega has one step more than it is told to have room for: with 1 it would still halve it.
_WHOLE_STEP = 1.01
_BAR_PX_MAX = 28
_START = "(isValid(datum.period_start) ? datum.period_start : datum.day)"
_LABEL = "isValid(datum.value) ? datum.label : '(none)'"
_Spec = dict[str, Any]


def complete_spec(chart: Chart) -> _Spec:
    """The spec of a chart, in need of the datasets `rows`, `before` and `marks`, the parameters, and a width."""
    spec = deepcopy(chart.spec)
    layers = [_line(chart.compare.x, chart.compare.y)] if chart.compare else []
    if chart.marks:
        layers.append(_rules(chart.marks.title))
    _break_lines(spec)
    counts = _counts_of(spec)
    for part in _parts(spec):
        _limit_bar(part.get("mark"))
        _name_none(part.get("encoding", {}).get("color"))
        for channel in _POSITIONS:
            axis = part.get("encoding", {}).get(channel)
            if isinstance(axis, dict):
                _complete(axis, channel, is_count=_is_count(axis, counts))
                layers += _widened(axis, channel)
    if layers:
        spec = {"layer": [spec, *layers]}
    return spec | {
        "data": {"name": ROWS},
        "autosize": {"type": "fit", "contains": "padding"},
        "config": {"mark": {"cursor": "pointer" if chart.select else "default"}},
    }


def _complete(axis: _Spec, channel: str, *, is_count: bool) -> None:
    own: _Spec = axis.get("axis") or {}
    scale: _Spec = axis.get("scale") or {}
    if axis.get("type") == "temporal" and channel == "x":
        axis["axis"] = {
            "values": {"signal": "ticks"},
            "labelExpr": "utcFormat(datum.value, date_format)",
            "labelOverlap": "greedy",
            "labelSeparation": 12,
        } | own
        axis["scale"] = {"domain": {"signal": "span"}} | scale
    elif axis.get("type") == "nominal" and channel == "y":
        axis["axis"] = {"labelExpr": _LABEL} | own
    elif axis.get("type") == "quantitative":
        across: _Spec = {"grid": True, "domain": False, "tickCount": 4, "labelSeparation": 8} if channel == "x" else {}
        axis["axis"] = across | ({"tickMinStep": _WHOLE_STEP} if is_count else {}) | own
        if is_count:
            # Where nothing happened, too, there is an axis and not a lone zero.
            axis["scale"] = {"domain": {"unionWith": [0, 1]}} | scale


def _name_none(colour: Any) -> None:
    """A legend names what has no name as an axis does."""
    if isinstance(colour, dict) and colour.get("type") == "nominal" and colour.get("legend", {}) is not None:
        colour["legend"] = {"labelExpr": _LABEL} | colour.get("legend", {})


def _widened(axis: _Spec, channel: str) -> Iterator[_Spec]:
    """What a domain is united with, as a layer that nobody sees: a layer that says so leaves out the others' values."""
    domain = (axis.get("scale") or {}).get("domain")
    if isinstance(domain, dict) and "unionWith" in domain:
        del axis["scale"]["domain"]
        yield {
            "data": {"values": [{"bound": bound} for bound in domain["unionWith"]]},
            "mark": {"type": "rule", "strokeWidth": 0, "tooltip": False, "aria": False},
            "encoding": {channel: {"field": "bound", "type": "quantitative", "title": None}},
        }


def _limit_bar(mark: Any) -> None:
    """One row alone would be a bar as high as the chart."""
    if isinstance(mark, dict) and isinstance(height := mark.get("height"), dict) and "band" in height:
        mark["height"] = {"expr": f"min({_BAR_PX_MAX}, {height['band']} * bandwidth('y'))"}


def _line(x: str, y: str) -> _Spec:
    """The period before, dashed."""
    return {
        "data": {"name": BEFORE},
        "mark": {"type": "line", "style": "before", "tooltip": False, "cursor": "default"},
        "encoding": {
            "x": {"field": x, "type": "temporal", "scale": {"type": "utc", "domain": {"signal": "span"}}},
            "y": {"aggregate": "sum", "field": y, "type": "quantitative"},
        },
    }


def _rules(title: str) -> _Spec:
    """Moments that are marked."""
    return {
        "data": {"name": MARKS},
        "mark": {"type": "rule", "style": "moment", "cursor": "default"},
        "encoding": {
            "x": {"field": "at", "type": "temporal", "scale": {"type": "utc", "domain": {"signal": "span"}}},
            "tooltip": [{"field": "at", "type": "temporal", "title": title}],
        },
    }


def _break_lines(spec: _Spec) -> None:
    """A line ends where a period has no row, and begins anew after it: nothing is known of what lies between."""
    shared = spec.get("encoding", {})
    for part in [spec, *spec.get("layer", [])]:
        encoding = shared | part.get("encoding", {})
        mark = part.get("mark")
        is_line = mark == "line" or (isinstance(mark, dict) and mark.get("type") == "line")
        if not is_line or encoding.get("x", {}).get("field") != "period_middle":
            continue
        of = {"groupby": [field] if (field := encoding.get("color", {}).get("field")) else []}
        of["sort"] = [{"field": "period_middle"}]
        part["transform"] = [
            *part.get("transform", []),
            {"window": [{"op": "lag", "field": "period_end", "as": "end_before"}], **of},
            {"calculate": f"isValid(datum.end_before) && datum.end_before < {_START} ? 1 : 0", "as": "begins"},
            {"window": [{"op": "sum", "field": "begins", "as": "run"}], **of},
        ]
        part["encoding"] = part.get("encoding", {}) | {"detail": {"field": "run", "type": "nominal"}}


def _counts_of(spec: _Spec) -> set[str]:
    """The fields that a spec makes of counts, and that are counts again."""
    made: set[str] = set()
    for part in _parts(spec):
        for step in part.get("transform", []):
            if "fold" in step and all(_is_count({"field": field}, made) for field in step["fold"]):
                made.add(step.get("as", ["key", "value"])[1])
            for one in [*step.get("aggregate", []), *step.get("joinaggregate", [])]:
                if "as" in one and _is_count({"aggregate": one.get("op"), "field": one.get("field")}, made):
                    made.add(one["as"])
    return made


def _is_count(definition: _Spec, made: set[str]) -> bool:
    if definition.get("aggregate") in _COUNTING:
        return True
    field = str(definition.get("field"))
    # Columns of reports are named for what they count.
    return definition.get("aggregate") in _KEEPING and (field.endswith("_count") or field in made)


def _parts(spec: Any) -> Iterator[_Spec]:
    if isinstance(spec, dict):
        yield spec
        for part in list(spec.values()):
            yield from _parts(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _parts(part)
