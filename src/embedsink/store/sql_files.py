"""Where the SQL lies: in the package when it was installed, at the top of the checkout when not."""

from functools import cache
from pathlib import Path


@cache
def sql_folder() -> Path:
    """The folder with `schema/`, `load/`, `views/` and `checks/`."""
    packaged = Path(__file__).parents[1] / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"


@cache
def read_sql(folder: str, pattern: str = "*.sql") -> dict[str, str]:
    """The statements of the files below a folder by name without suffix, in the order of the names."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((sql_folder() / folder).glob(pattern))}
