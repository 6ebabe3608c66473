"""Empty stores for tests: made once in a program and copied, since making takes longer than most tests."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from embedsink.data_folder import DataFolder
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits


def open_store(path: Path, limits: StoreLimits | None = None) -> Store:
    """A new store with all tables and views, and no row."""
    path.write_bytes(_empty_store())
    store = Store(path, limits)
    store.open()
    return store


def make_folder(path: Path) -> DataFolder:
    """A data folder; where there was none, or an empty one, with an empty store."""
    folder = DataFolder(path)
    if not path.exists() or not any(path.iterdir()):
        folder.create()
        folder.store.write_bytes(_empty_store())
    return folder


@cache
def _empty_store() -> bytes:
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.duckdb")
        store.open()
        store.close()
        return store.path.read_bytes()
