"""Defaults of all chart specs: axes, time scale, sizes, and the line of the previous period.

Pages and images add the rows, the colours and these parameters:

    span          the start and end of the time axis
    ticks         the label positions, which are the middles of periods; null lets Vega choose
    date_format   the format of the labels (d3-time-format)
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from embedsink.dashboards.model import Chart

ROWS, BEFORE, MARKS = "rows", "before", "marks"
# Aggregates whose result is a count if their input is a count.
_COUNT_PRESERVING = (None, "sum", "max", "min")
_COUNT_AGGREGATES = ("count", "distinct")
_POSITIONS = ("x", "y")
# Counts have no fractional ticks. Vega allows one more step than requested, so a step of 1 could still be halved.
_WHOLE_STEP = 1.01
_BAR_PX_MAX = 28
_START = "(isValid(datum.period_start) ? datum.period_start : datum.day)"
_LABEL = "isValid(datum.value) ? datum.label : '(none)'"
_Spec = dict[str, Any]


def complete_spec(chart: Chart) -> _Spec:
    """Return the spec of a chart with all defaults. The caller adds the datasets, the parameters and a width."""
    spec = deepcopy(chart.spec)
    layers = [_line(chart.compare.x, chart.compare.y)] if chart.compare else []
    if chart.marks:
        layers.append(_rules(chart.marks.title))
    _break_lines(spec)
    counts = _counts_of(spec)
    for part in _nested_objects(spec):
        _limit_bar(part.get("mark"))
        _name_none(part.get("encoding", {}).get("color"))
        for channel in _POSITIONS:
            axis = part.get("encoding", {}).get(channel)
            if isinstance(axis, dict):
                _complete(axis, channel, is_count=_is_count(axis, counts))
                layers += _replace_domain(axis, channel)
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
            # Without events the axis still reaches 1 instead of showing only a zero.
            axis["scale"] = {"domain": {"unionWith": [0, 1]}} | scale


def _name_none(colour: Any) -> None:
    """Give the legend the same label for missing names as the axes."""
    if isinstance(colour, dict) and colour.get("type") == "nominal" and colour.get("legend", {}) is not None:
        colour["legend"] = {"labelExpr": _LABEL} | colour.get("legend", {})


def _replace_domain(axis: _Spec, channel: str) -> list[_Spec]:
    """Replace a `unionWith` domain of an axis by an invisible layer with its bounds, and return the layer, if any.

    Vega-Lite's `unionWith` ignores the values of other layers.
    """
    domain = (axis.get("scale") or {}).get("domain")
    if not isinstance(domain, dict) or "unionWith" not in domain:
        return []
    del axis["scale"]["domain"]
    bounds = {
        "data": {"values": [{"bound": bound} for bound in domain["unionWith"]]},
        "mark": {"type": "rule", "strokeWidth": 0, "tooltip": False, "aria": False},
        "encoding": {channel: {"field": "bound", "type": "quantitative", "title": None}},
    }
    return [bounds]


def _limit_bar(mark: Any) -> None:
    """Limit the bar height, because a single bar would otherwise fill the chart."""
    if isinstance(mark, dict) and isinstance(height := mark.get("height"), dict) and "band" in height:
        mark["height"] = {"expr": f"min({_BAR_PX_MAX}, {height['band']} * bandwidth('y'))"}


def _line(x: str, y: str) -> _Spec:
    """Return the dashed line of the previous period."""
    return {
        "data": {"name": BEFORE},
        "mark": {"type": "line", "style": "before", "tooltip": False, "cursor": "default"},
        "encoding": {
            "x": {"field": x, "type": "temporal", "scale": {"type": "utc", "domain": {"signal": "span"}}},
            "y": {"aggregate": "sum", "field": y, "type": "quantitative"},
        },
    }


def _rules(title: str) -> _Spec:
    """Return the vertical lines of marked times."""
    return {
        "data": {"name": MARKS},
        "mark": {"type": "rule", "style": "moment", "cursor": "default"},
        "encoding": {
            "x": {"field": "at", "type": "temporal", "scale": {"type": "utc", "domain": {"signal": "span"}}},
            "tooltip": [{"field": "at", "type": "temporal", "title": title}],
        },
    }


def _break_lines(spec: _Spec) -> None:
    """Break lines at periods without a row, because their values are unknown."""
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
    """Return the fields of a spec's transforms that are counts."""
    computed: set[str] = set()
    for part in _nested_objects(spec):
        for step in part.get("transform", []):
            if "fold" in step and all(_is_count({"field": field}, computed) for field in step["fold"]):
                computed.add(step.get("as", ["key", "value"])[1])
            for one in [*step.get("aggregate", []), *step.get("joinaggregate", [])]:
                if "as" in one and _is_count({"aggregate": one.get("op"), "field": one.get("field")}, computed):
                    computed.add(one["as"])
    return computed


def _is_count(definition: _Spec, computed: set[str]) -> bool:
    if definition.get("aggregate") in _COUNT_AGGREGATES:
        return True
    field = str(definition.get("field"))
    # Count columns of reports end in `_count`.
    return definition.get("aggregate") in _COUNT_PRESERVING and (field.endswith("_count") or field in computed)


def _nested_objects(spec: Any) -> Iterator[_Spec]:
    """Yield every object in a spec, parents first. The caller may change the members of an object before the next."""
    if isinstance(spec, dict):
        yield spec
        for value in spec.values():
            yield from _nested_objects(value)
    elif isinstance(spec, list):
        for element in spec:
            yield from _nested_objects(element)
