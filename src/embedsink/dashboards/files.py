"""The files of `dashboards/`: found and read."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from embedsink.dashboards.error_messages import first_error
from embedsink.dashboards.model import Dashboard
from embedsink.errors import Misconfigured, Refused, instead, quote
from embedsink.reasons import Reason

# The page at this address is no file.
INSPECTOR = "inspector"
# Told the name of a file, and what is wrong with it.
OnError = Callable[[str, Misconfigured], None]
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@cache
def dashboards_folder() -> Path:
    """Where they lie: in the package when it was installed, at the top of the checkout when not."""
    packaged = Path(__file__).with_name("definitions")
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "dashboards"


def read_dashboards(folder: Path | None = None) -> dict[str, Dashboard]:
    """Every dashboard by its name, in the order of `place`.

    Raises:
        Misconfigured: a file is no dashboard; it names the file and the place in it.
    """
    return _in_place(_found(folder or dashboards_folder()))


def read_all_dashboards(own: Path, *, on_error: OnError | None = None) -> dict[str, Dashboard]:
    """Those that embedsink brings along and those of an operator's folder, which take the place of their namesakes.

    Args:
        own: the operator's folder; it need not be there.
        on_error: told of each file in it that is no dashboard. It is left out, and no namesake stands in for it.

    Raises:
        Misconfigured: a file is no dashboard; it names the file and the place in it.
    """
    found = _found(dashboards_folder())
    for path in dashboard_files(own):
        try:
            found[path.stem] = _read(path)
        except Misconfigured as error:
            if on_error is None:
                raise
            found.pop(path.stem, None)
            on_error(path.stem, error)
    return _in_place(found)


def is_page_name(name: str) -> bool:
    """Whether a page may have this name."""
    return _NAME.fullmatch(name) is not None and name != INSPECTOR


def dashboard_files(folder: Path) -> list[Path]:
    """The files of a folder that should be dashboards."""
    return sorted(folder.glob("*.json"))


def parse_dashboard(content: Any, where: str) -> Dashboard:
    """The dashboard that JSON is; `where` is where it stands, for whoever has to correct it.

    Raises:
        Misconfigured: it is none.
    """
    try:
        dashboard = Dashboard.model_validate(content)
    except ValidationError as error:
        raise Misconfigured(f"{where}: {first_error(error, content)}") from None
    for what, ids in _ids(dashboard):
        for id in ids:
            if ids.count(id) > 1:
                raise Misconfigured(f"{where}: {what}: id {quote(id)} stands twice. Give each one of its own.")
    return dashboard


def find_dashboard(dashboards: Mapping[str, Dashboard], name: str) -> Dashboard:
    """The dashboard of this name.

    Raises:
        Refused: `not_found`.
    """
    dashboard = dashboards.get(name)
    if dashboard is None:
        listed = instead(name, sorted(dashboards))
        raise Refused(Reason.NOT_FOUND, f"dashboard {quote(name)} does not exist. {listed}")
    return dashboard


def _in_place(found: dict[str, Dashboard]) -> dict[str, Dashboard]:
    return dict(sorted(found.items(), key=lambda entry: (entry[1].place, entry[0])))


def _found(folder: Path) -> dict[str, Dashboard]:
    return {path.stem: _read(path) for path in dashboard_files(folder)}


def _read(path: Path) -> Dashboard:
    file = f"dashboards/{path.name}"
    if not is_page_name(path.stem):
        taken = "is the inspector's page" if path.stem == INSPECTOR else "is no name for an address"
        raise Misconfigured(
            f"{file}: {taken}. Name the file with small letters, digits and hyphens: support-desk.json."
        )
    return parse_dashboard(_content(path, file), file)


def _content(path: Path, file: str) -> Any:
    try:
        return json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        seen = f"line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError):
        seen = "not UTF-8, too deep, or a number too long"
    except OSError as error:
        raise Misconfigured(f"{file}: {error.strerror}. Make it readable for this user, or move it away.") from None
    raise Misconfigured(f"{file}: is not JSON ({seen}). Correct the file.")


def _ids(dashboard: Dashboard) -> Iterator[tuple[str, list[str]]]:
    yield "sections", [section.id for section in dashboard.sections]
    yield "charts", [tile.id for section in dashboard.sections for tile in section.charts]
