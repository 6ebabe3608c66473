"""The Vega-Lite spec of a chart: that of the dashboard file, with defaults and the line of the previous period.

Pages and images add the rows, the colours and these parameters:

    span          the start and end of the time axis
    ticks         the label positions, which are the middles of periods; null lets Vega choose
    date_format   the format of the labels (d3-time-format)
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from embedsink.dashboards.model import Chart

# The names of the datasets.
ROWS, BEFORE, MARKS = "rows", "before", "marks"
# Aggregates whose result is a count if their input is a count. None means that nothing is aggregated.
_COUNT_PRESERVING = (None, "sum", "max", "min")
_COUNT_AGGREGATES = ("count", "distinct")
_POSITION_CHANNELS = ("x", "y")
# The minimum distance between the ticks of counts. Vega halves a distance of 1, but not a slightly larger one.
_COUNT_TICK_STEP = 1.01
_BAR_HEIGHT_MAX_PX = 28
# Vega expressions.
_PERIOD_START = "(isValid(datum.period_start) ? datum.period_start : datum.day)"
_LABEL_OR_NONE = "isValid(datum.value) ? datum.label : '(none)'"
_Spec = dict[str, Any]


def complete_spec(chart: Chart) -> _Spec:
    """Return the spec of a chart with all defaults. The caller adds the datasets, the parameters and a width."""
    spec = deepcopy(chart.spec)
    layers = []
    if chart.compare:
        layers.append(_previous_period_line(chart.compare.x, chart.compare.y))
    if chart.marks:
        layers.append(_marked_time_lines(chart.marks.title))
    _break_lines_at_gaps(spec)
    count_fields = _count_fields(spec)
    for part in _nested_objects(spec):
        _limit_bar_height(part.get("mark"))
        _label_nulls(part.get("encoding", {}).get("color"))
        for channel in _POSITION_CHANNELS:
            definition = part.get("encoding", {}).get(channel)
            if isinstance(definition, dict):
                is_count = _is_count(definition.get("aggregate"), definition.get("field"), count_fields)
                _add_axis_defaults(definition, channel, is_count=is_count)
                layers += _move_domain_to_layer(definition, channel)
    if layers:
        spec = {"layer": [spec, *layers]}
    return spec | {
        "data": {"name": ROWS},
        "autosize": {"type": "fit", "contains": "padding"},
        "config": {"mark": {"cursor": "pointer" if chart.select else "default"}},
    }


def _add_axis_defaults(definition: _Spec, channel: str, *, is_count: bool) -> None:
    """Add the defaults to the axis and the scale of a position channel. Members of the dashboard file win."""
    axis: _Spec = {}
    scale: _Spec = {}
    kind = definition.get("type")
    if kind == "temporal" and channel == "x":
        axis = {
            "values": {"signal": "ticks"},
            "labelExpr": "utcFormat(datum.value, date_format)",
            "labelOverlap": "greedy",
            "labelSeparation": 12,
        }
        scale = {"domain": {"signal": "span"}}
    elif kind == "nominal" and channel == "y":
        axis = {"labelExpr": _LABEL_OR_NONE}
    elif kind == "quantitative":
        if channel == "x":
            axis = {"grid": True, "domain": False, "tickCount": 4, "labelSeparation": 8}
        if is_count:
            axis["tickMinStep"] = _COUNT_TICK_STEP
            # Without events the axis still reaches 1 instead of showing only a zero.
            scale = {"domain": {"unionWith": [0, 1]}}
    else:
        return
    # A file may hide the axis with `"axis": null`, or use no scale with `"scale": null`.
    if definition.get("axis", {}) is not None:
        definition["axis"] = axis | definition.get("axis", {})
    if scale and definition.get("scale", {}) is not None:
        definition["scale"] = scale | definition.get("scale", {})


def _label_nulls(colour: Any) -> None:
    """Label null values in the legend as on the axes, unless the file hides the legend with `"legend": null`.

    `colour` is the definition of the colour channel, or None.
    """
    if not isinstance(colour, dict) or colour.get("type") != "nominal":
        return
    legend = colour.get("legend", {})
    if legend is not None:
        colour["legend"] = {"labelExpr": _LABEL_OR_NONE} | legend


def _move_domain_to_layer(definition: _Spec, channel: str) -> list[_Spec]:
    """Remove a domain with `unionWith`, and return the invisible layers that replace the domain: one, or none.

    The layer's values extend the axis. Vega-Lite's `unionWith` would ignore the values of other layers.
    """
    domain = (definition.get("scale") or {}).get("domain")
    if not isinstance(domain, dict) or "unionWith" not in domain:
        return []
    del definition["scale"]["domain"]
    bounds = {
        "data": {"values": [{"bound": bound} for bound in domain["unionWith"]]},
        "mark": {"type": "rule", "strokeWidth": 0, "tooltip": False, "aria": False},
        "encoding": {channel: {"field": "bound", "type": "quantitative", "title": None}},
    }
    return [bounds]


def _limit_bar_height(mark: Any) -> None:
    """Limit the height of bars, because a single bar would otherwise fill the chart."""
    height = mark.get("height") if isinstance(mark, dict) else None
    if isinstance(height, dict) and "band" in height:
        mark["height"] = {"expr": f"min({_BAR_HEIGHT_MAX_PX}, {height['band']} * bandwidth('y'))"}


def _previous_period_line(x: str, y: str) -> _Spec:
    """Return the dashed line of the previous period. It sums `y`, because a period can have several rows."""
    return {
        "data": {"name": BEFORE},
        "mark": {"type": "line", "style": "before", "tooltip": False, "cursor": "default"},
        "encoding": {
            "x": {"field": x, "type": "temporal", "scale": {"type": "utc", "domain": {"signal": "span"}}},
            "y": {"aggregate": "sum", "field": y, "type": "quantitative"},
        },
    }


def _marked_time_lines(title: str) -> _Spec:
    """Return the vertical lines of marked times."""
    return {
        "data": {"name": MARKS},
        "mark": {"type": "rule", "style": "moment", "cursor": "default"},
        "encoding": {
            "x": {"field": "at", "type": "temporal", "scale": {"type": "utc", "domain": {"signal": "span"}}},
            "tooltip": [{"field": "at", "type": "temporal", "title": title}],
        },
    }


def _break_lines_at_gaps(spec: _Spec) -> None:
    """Break lines at periods without a row, because their values are unknown."""
    shared_encoding = spec.get("encoding", {})
    for layer in [spec, *spec.get("layer", [])]:
        encoding = shared_encoding | layer.get("encoding", {})
        mark = layer.get("mark")
        is_line = mark == "line" or (isinstance(mark, dict) and mark.get("type") == "line")
        if not is_line or encoding.get("x", {}).get("field") != "period_middle":
            continue  # Only a line over periods has gaps.
        colour_field = encoding.get("color", {}).get("field")
        per_line = {"groupby": [colour_field] if colour_field else [], "sort": [{"field": "period_middle"}]}
        follows_gap = f"isValid(datum.previous_end) && datum.previous_end < {_PERIOD_START}"
        # Number the parts of a line between gaps, and draw each part as a line. A row after a gap increases the number.
        layer["transform"] = [
            *layer.get("transform", []),
            {"window": [{"op": "lag", "field": "period_end", "as": "previous_end"}], **per_line},
            {"calculate": f"{follows_gap} ? 1 : 0", "as": "follows_gap"},
            {"window": [{"op": "sum", "field": "follows_gap", "as": "line_number"}], **per_line},
        ]
        layer["encoding"] = layer.get("encoding", {}) | {"detail": {"field": "line_number", "type": "nominal"}}


def _count_fields(spec: _Spec) -> set[str]:
    """Return the fields of a spec's transforms that are counts, such as folded counts and sums of counts."""
    computed_counts: set[str] = set()
    for part in _nested_objects(spec):
        for transform in part.get("transform", []):
            folded = transform.get("fold")
            if folded is not None and all(_is_count(None, field, computed_counts) for field in folded):
                _, value_field = transform.get("as", ["key", "value"])  # the default of Vega-Lite
                computed_counts.add(value_field)
            for aggregate in [*transform.get("aggregate", []), *transform.get("joinaggregate", [])]:
                is_count = _is_count(aggregate.get("op"), aggregate.get("field"), computed_counts)
                if is_count and "as" in aggregate:
                    computed_counts.add(aggregate["as"])
    return computed_counts


def _is_count(aggregate: Any, field: Any, computed_counts: set[str]) -> bool:
    """Return whether an aggregate of a field is a count. The aggregate None is the field itself."""
    # The names of the count columns of reports end in `_count`. A `field` may also be None or an object.
    is_count_field = isinstance(field, str) and (field.endswith("_count") or field in computed_counts)
    return aggregate in _COUNT_AGGREGATES or (aggregate in _COUNT_PRESERVING and is_count_field)


def _nested_objects(spec: Any) -> Iterator[_Spec]:
    """Yield every object in a spec, parents first. A caller may change an object before it requests the next object."""
    if isinstance(spec, dict):
        yield spec
        for value in spec.values():
            yield from _nested_objects(value)
    elif isinstance(spec, list):
        for element in spec:
            yield from _nested_objects(element)
