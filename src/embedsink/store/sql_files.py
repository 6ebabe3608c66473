"""The SQL files: in the package when it is installed, otherwise at the top of the checkout."""

import re
from functools import cache
from pathlib import Path

# The layers of macros and views, the lowest first (sql/README.md).
LAYERS = ("macros", "staging", "intermediate", "reports")
_ORDER_PREFIX = re.compile(r"^\d+_")


@cache
def sql_folder() -> Path:
    """Return the folder with `migrations/`, `load/`, `reports/` and the others.

    It is in the package when that is installed, otherwise at the top of the checkout.
    """
    installed = Path(__file__).parents[1] / "sql"
    in_checkout = Path(__file__).parents[3] / "sql"
    return installed if installed.is_dir() else in_checkout


@cache
def read_sql(folder: str) -> dict[str, str]:
    """Return the text of each SQL file in a folder by name, in the order of the file names.

    The name of `05_duplicate.sql` is `duplicate`. The name of a migration includes the number.
    """
    paths = sorted((sql_folder() / folder).glob("*.sql"))
    return {_name_of(path): path.read_text(encoding="utf-8") for path in paths}


def read_views() -> dict[str, str]:
    """Return the texts of all macros and views by name, each after the ones that it reads."""
    return {name: sql for layer in LAYERS for name, sql in read_sql(layer).items()}


def _name_of(path: Path) -> str:
    """Return the name of a SQL file: without the number that orders it, except for migrations."""
    return path.stem if path.parent.name == "migrations" else _ORDER_PREFIX.sub("", path.stem)
