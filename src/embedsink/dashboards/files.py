"""Reading and parsing of dashboard files."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from embedsink.dashboards.error_messages import first_error
from embedsink.dashboards.model import Dashboard
from embedsink.errors import Misconfigured, Refused, preview, suggestion
from embedsink.reasons import Reason

# The inspector and the audit trail have pages, but no dashboard files.
INSPECTOR = "inspector"
AUDIT = "audit"
# A function that is called with the name of an invalid file and its error.
OnError = Callable[[str, Misconfigured], None]
_PAGE_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@cache
def dashboards_folder() -> Path:
    """Return the folder of the shipped dashboards: in the installed package, or at the top of a checkout."""
    packaged = Path(__file__).with_name("definitions")
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "dashboards"


def read_dashboards(custom_folder: Path | None = None, *, on_error: OnError | None = None) -> dict[str, Dashboard]:
    """Return all dashboards by name, in the order of `position`.

    Args:
        custom_folder: the operator's folder, which may be missing. A file replaces the shipped file of the same name.
        on_error: called for each invalid file. The dashboard is omitted, even if a shipped file has this name.

    Raises:
        Misconfigured: a shipped file is invalid; or an operator's file is invalid, and `on_error` is None.
    """
    dashboards = {path.stem: _read_dashboard(path) for path in dashboard_files(dashboards_folder())}
    custom_files = dashboard_files(custom_folder) if custom_folder else []
    for path in custom_files:
        try:
            dashboards[path.stem] = _read_dashboard(path)
        except Misconfigured as error:
            if on_error is None:
                raise
            # Omit a shipped dashboard of the same name too: readers would mistake it for the operator's.
            dashboards.pop(path.stem, None)
            on_error(path.stem, error)
    names = sorted(dashboards, key=lambda name: (dashboards[name].position, name))
    return {name: dashboards[name] for name in names}


def is_page_name(name: str) -> bool:
    """Return whether a dashboard page may have this name. Those of the inspector and the audit trail are taken."""
    return _PAGE_NAME.fullmatch(name) is not None and name not in (INSPECTOR, AUDIT)


def dashboard_files(folder: Path) -> list[Path]:
    """Return the JSON files of a folder, sorted by name."""
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
    _check_unique(f"{where}: sections", [section.id for section in dashboard.sections])
    _check_unique(f"{where}: charts", [tile.id for section in dashboard.sections for tile in section.tiles])
    return dashboard


def find_dashboard(dashboards: Mapping[str, Dashboard], name: str) -> Dashboard:
    """Return the dashboard of this name.

    Raises:
        Refused: no dashboard has this name (reason `not_found`).
    """
    dashboard = dashboards.get(name)
    if dashboard is None:
        advice = suggestion(name, sorted(dashboards))
        raise Refused(Reason.NOT_FOUND, f"dashboard {preview(name)} does not exist. {advice}")
    return dashboard


def _read_dashboard(path: Path) -> Dashboard:
    """Return the dashboard of a file. Raise Misconfigured if the file name or the content is invalid."""
    where = f"dashboards/{path.name}"
    if not is_page_name(path.stem):
        if path.stem == INSPECTOR:
            raise Misconfigured(f"{where}: is reserved for the inspector. Choose another name.")
        raise Misconfigured(
            f"{where}: is not a valid name for a page. Use lowercase letters, digits and hyphens, such as "
            "support-desk.json."
        )
    return parse_dashboard(_parse_json(path, where), where)


def _parse_json(path: Path, where: str) -> Any:
    """Return the parsed JSON of a file. Raise Misconfigured if the file is not JSON; `where` begins the message."""
    try:
        return json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        cause = f"line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError):
        cause = "not UTF-8, too deeply nested, or a number that is too long"
    except OSError as error:
        raise Misconfigured(f"{where}: {error.strerror}. Make it readable for this user, or remove it.") from None
    raise Misconfigured(f"{where}: is not JSON ({cause}). Correct the file.")


def _check_unique(where: str, ids: list[str]) -> None:
    """Raise Misconfigured if an id occurs twice. `where` begins the message."""
    for id, count in Counter(ids).items():
        if count > 1:
            raise Misconfigured(f"{where}: id {preview(id)} is not unique. Give each one its own id.")
