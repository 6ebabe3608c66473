"""The parameters of reports in Python, and their conversion to text as in the HTTP API."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from numbers import Integral
from typing import Any, TypedDict

import numpy

from embedsink.errors import preview

_TIME_PARAMS = ("since", "until")
_LIST_PARAMS = ("columns", "by")


class ScopeParams(TypedDict, total=False):
    """The parameters that select events and define periods. None is the same as a missing parameter."""

    since: str | date | None
    until: str | date | None
    surface: str | None
    deployment: int | Iterable[int] | None
    tenant: str | None
    vendor: str | None
    internal: str | None
    by: str | Iterable[str] | None
    department: str | None
    group: str | None
    interval: str | None
    timezone: str | None


class ReportParams(ScopeParams, total=False):
    """The parameters of `Client.report`, which documents them."""

    columns: str | Iterable[str] | None
    limit: int | None


def api_params(params: ReportParams) -> tuple[dict[str, str | None], list[int]]:
    """Return the parameters except `deployment` as text, as in the HTTP API, and the list of deployments.

    Raises:
        TypeError: a parameter is unknown, or has the wrong type.
    """
    names = ReportParams.__annotations__  # They include those of `ScopeParams`.
    unknown_names = params.keys() - names
    if unknown_names:
        raise TypeError(f"{min(unknown_names)}: is not a parameter. Parameters: {', '.join(names)}.")
    texts = {name: _to_text(name, value) for name, value in params.items() if name != "deployment"}
    return texts, _to_deployments(params.get("deployment"))


def _to_text(name: str, value: Any) -> str | None:
    """Convert the value of a parameter to text. None means that the parameter is missing, and stays None.

    Raises:
        TypeError: the value has the wrong type for the parameter with this name.
    """
    if value is None:
        return None
    if name == "limit":
        return str(_to_int("limit", value, "Omit it to select everything."))
    if isinstance(value, str):
        return value
    if name in _TIME_PARAMS and isinstance(value, date):
        return value.isoformat()
    if name in _LIST_PARAMS and isinstance(value, Iterable):
        return ",".join(str(column) for column in value)
    allowed = {
        "since": "a date, a datetime or text such as 2026-11-01 or 7d",
        "until": "a date, a datetime or text such as 2026-11-01 or 7d",
        "columns": "a list of names",
        "by": "a list of names",
    }.get(name, "text")
    advice = "use the default" if name in ("by", "interval", "timezone") else "select everything"
    raise TypeError(f"{name}: {preview(value)} is not {allowed}. Omit it to {advice}.")


def _to_deployments(value: Any) -> list[int]:
    """Convert the value of the parameter `deployment`, one or several, to a list. None becomes an empty list: all.

    Raises:
        TypeError: the value contains anything other than integers, or is an empty list, which would select all.
    """
    if value is None:
        return []
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    deployments = list(value) if is_list else [value]
    if not deployments:
        raise TypeError("deployment: the list is empty. Omit it to select all deployments.")
    advice = "Examples: deployment=12, deployment=[12, 13]."
    return [_to_int("deployment", deployment, advice) for deployment in deployments]


def _to_int(name: str, value: Any, advice: str) -> int:
    """Convert a Python or NumPy integer to `int`.

    Args:
        name: the name of the parameter that has the value, for the error message.
        value: the value.
        advice: the end of the error message.

    Raises:
        TypeError: the value is not an integer, or is a boolean.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}: {preview(value)} is not an integer. {advice}")
    return int(value)


def sql_parameters(parameters: object) -> object:
    """Convert the NumPy scalars among the parameters of an SQL statement to Python values, which DuckDB requires.

    None means that there are no parameters, and stays None.

    Raises:
        TypeError: the parameters are neither a list nor a dictionary.
    """
    match parameters:
        case Mapping():
            return {name: _to_python(value) for name, value in parameters.items()}
        case Sequence() if not isinstance(parameters, str | bytes):
            return [_to_python(value) for value in parameters]
        case None:
            return None
    raise TypeError(f"parameters: {preview(parameters)} is neither a list nor a dictionary. Pass [value].")


def _to_python(value: object) -> object:
    """Convert a NumPy scalar to a Python value. Any other value is returned unchanged."""
    return value.item() if isinstance(value, numpy.generic) else value
