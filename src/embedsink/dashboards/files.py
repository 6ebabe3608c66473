"""Dashboard files: read and parsed."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from embedsink.dashboards.error_messages import first_error
from embedsink.dashboards.model import Dashboard
from embedsink.errors import Misconfigured, Refused, preview, suggestion
from embedsink.reasons import Reason

# The inspector has a page, but no dashboard file.
INSPECTOR = "inspector"
# Called with the name of a file and its error.
OnError = Callable[[str, Misconfigured], None]
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@cache
def dashboards_folder() -> Path:
    """Return the folder of the shipped dashboards: in the installed package, or at the top of a checkout."""
    packaged = Path(__file__).with_name("definitions")
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "dashboards"


def read_dashboards(own: Path | None = None, *, on_error: OnError | None = None) -> dict[str, Dashboard]:
    """Return all dashboards by name, in the order of `position`.

    Args:
        own: the operator's folder; it may be missing. Its files override shipped ones of the same name.
        on_error: called with each invalid file. Neither this file nor a shipped one of the same name is returned.

    Raises:
        Misconfigured: a file is not a dashboard, and `on_error` is None.
    """
    dashboards = {path.stem: _read(path) for path in dashboard_files(dashboards_folder())}
    for path in dashboard_files(own) if own else ():
        try:
            dashboards[path.stem] = _read(path)
        except Misconfigured as error:
            if on_error is None:
                raise
            dashboards.pop(path.stem, None)
            on_error(path.stem, error)
    return dict(sorted(dashboards.items(), key=lambda entry: (entry[1].position, entry[0])))


def is_page_name(name: str) -> bool:
    """Return whether a dashboard page may have this name."""
    return _NAME.fullmatch(name) is not None and name != INSPECTOR


def dashboard_files(folder: Path) -> list[Path]:
    """Return the JSON files of a folder."""
    return sorted(folder.glob("*.json"))


def parse_dashboard(content: Any, where: str) -> Dashboard:
    """Return the dashboard in parsed JSON. `where` names the file in errors.

    Raises:
        Misconfigured: the content is not a dashboard.
    """
    try:
        dashboard = Dashboard.model_validate(content)
    except ValidationError as error:
        raise Misconfigured(f"{where}: {first_error(error, content)}") from None
    for what, ids in _ids(dashboard):
        for id in ids:
            if ids.count(id) > 1:
                raise Misconfigured(f"{where}: {what}: id {preview(id)} is not unique. Give each one its own id.")
    return dashboard


def find_dashboard(dashboards: Mapping[str, Dashboard], name: str) -> Dashboard:
    """Return the dashboard of this name.

    Raises:
        Refused: `not_found`.
    """
    dashboard = dashboards.get(name)
    if dashboard is None:
        listed = suggestion(name, sorted(dashboards))
        raise Refused(Reason.NOT_FOUND, f"dashboard {preview(name)} does not exist. {listed}")
    return dashboard


def _read(path: Path) -> Dashboard:
    file = f"dashboards/{path.name}"
    if not is_page_name(path.stem):
        problem = "is the name of the inspector" if path.stem == INSPECTOR else "is not a valid name for a page"
        raise Misconfigured(f"{file}: {problem}. Use lowercase letters, digits and hyphens, such as support-desk.json.")
    return parse_dashboard(_content(path, file), file)


def _content(path: Path, file: str) -> Any:
    try:
        return json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError):
        position = "not UTF-8, too deeply nested, or a number that is too long"
    except OSError as error:
        raise Misconfigured(f"{file}: {error.strerror}. Make it readable for this user, or remove it.") from None
    raise Misconfigured(f"{file}: is not JSON ({position}). Correct the file.")


def _ids(dashboard: Dashboard) -> Iterator[tuple[str, list[str]]]:
    yield "sections", [section.id for section in dashboard.sections]
    yield "charts", [tile.id for section in dashboard.sections for tile in section.charts]
