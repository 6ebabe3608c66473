"""The parameters of reports in Python, and their conversion to the texts of the HTTP API."""

import contextlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, TypedDict

import numpy

from embedsink.errors import preview

_TIMES = ("since", "until")


class ScopeParams(TypedDict, total=False):
    """The parameters that select events and set the length of a period. None means that the parameter is missing."""

    since: str | date | None
    until: str | date | None
    surface: str | None
    deployment: int | Iterable[int] | None
    tenant: str | None
    interval: str | None
    timezone: str | None


class ReportParams(ScopeParams, total=False):
    """The parameters of `Client.report`, which documents them."""

    columns: str | Iterable[str] | None
    limit: int | None


def as_texts(params: ReportParams) -> tuple[dict[str, str | None], list[int]]:
    """Return the parameters as the HTTP API has them: texts, and the deployments as a list."""
    known = ScopeParams.__annotations__ | ReportParams.__annotations__
    if unknown := params.keys() - known:
        raise TypeError(f"{min(unknown)}: is not a parameter. Parameters: {', '.join(known)}.")
    texts = {name: _as_text(name, value) for name, value in params.items() if name != "deployment"}
    return texts, _deployments(params.get("deployment"))


def _as_text(name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and name != "limit"):
        return value
    if name in _TIMES and isinstance(value, date):
        return value.isoformat()
    if name == "columns" and isinstance(value, Iterable):
        return ",".join(map(str, value))
    if name == "limit" and not isinstance(value, str | bool) and hasattr(value, "__index__"):
        return str(operator.index(value))
    allowed = {
        "since": "a date, a datetime or text such as 2026-11-01 or 7d",
        "until": "a date, a datetime or text such as 2026-11-01 or 7d",
        "columns": "a list of names",
        "limit": "an integer",
    }.get(name, "text")
    raise TypeError(f"{name}: {preview(value)} is not {allowed}. Omit it to select everything.")


def _deployments(value: Any) -> list[int]:
    if value is None:
        return []
    deployments = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]
    if not deployments:
        raise TypeError("deployment: the list is empty. Omit it to select all deployments.")
    return [_deployment(deployment) for deployment in deployments]


def _deployment(value: Any) -> int:
    with contextlib.suppress(TypeError):
        if not isinstance(value, bool):
            return operator.index(value)  # Accepts NumPy integers too.
    raise TypeError(f"deployment: {preview(value)} is not an integer. Examples: deployment=12, deployment=[12, 13].")


def python_values(parameters: object) -> object:
    """Convert NumPy scalars to Python's, which DuckDB requires."""
    match parameters:
        case Mapping():
            return {name: _python_value(value) for name, value in parameters.items()}
        case Sequence() if not isinstance(parameters, str | bytes):
            return [_python_value(value) for value in parameters]
        case None:
            return None
    raise TypeError(f"parameters: {preview(parameters)} is neither a list nor a dictionary. Pass [value].")


def _python_value(value: object) -> object:
    return value.item() if isinstance(value, numpy.generic) else value
