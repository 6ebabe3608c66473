"""Data folders for backups, and the expected result of restoring them."""

from pathlib import Path

from embedsink.backup.repository import Repository
from embedsink.backup.restore import restore_backup
from embedsink.data_folder import DataFolder
from embedsink.journal.segment import trailer
from embedsink.loader.loader import Loader
from embedsink.store.database import Store
from tests.support.given import write_segment
from tests.support.stores import make_folder

GROUP = b'{"kind":"lost"}\n' + trailer(b'{"kind":"lost"}\n')
OPEN = "journal/000000000004-00000000.open"


def load(folder: DataFolder, *numbers: int) -> None:
    """Load segments with one view each, and publish a snapshot. The segments stay in the journal."""
    for number in numbers:
        write_segment(folder.journal, [{"type": "view", "id": number}], number=number)
    loader = Loader(folder, Store(folder.store))
    loader.open_store()
    try:
        for _ in loader.load_pending():
            pass
        loader.publish()
    finally:
        loader.close()


def make_data(path: Path) -> DataFolder:
    """Create a data folder with every kind of file, including three loaded segments and an open one."""
    folder = make_folder(path)
    load(folder, 1, 2, 3)
    (folder.path / OPEN).write_bytes(GROUP + GROUP[:-9])
    (folder.damaged / "000000000002-0badcafe.ndjson.1").write_bytes(b"damaged")
    (folder.damaged / "lost-1.txt").write_text("a note")
    for name in ("store.duckdb", "analytics.duckdb.1"):
        (folder.damaged / name).write_bytes(b"a whole database")
    folder.dashboards.mkdir()
    (folder.dashboards / "own.json").write_text('{"title": "Own"}')
    (folder.dashboards / "kept").mkdir()
    folder.keys.write_text("{}")
    folder.identity.write_text("[[issuers]]")
    folder.internal_people.write_text("deployments = [9]")
    folder.privacy_rules.write_text('preset = "strict"')
    folder.privacy_secrets.write_text('{"secrets": []}')
    (folder.path / "analytics.previous.duckdb").write_bytes(b"a whole database")
    return folder


def contents(path: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def restored(backup: Path, path: Path) -> dict[str, bytes]:
    restore_backup(backup, DataFolder(path))
    return contents(path)


def expected(folder: DataFolder) -> dict[str, bytes]:
    """Return the files that a backup restores, with the open segment cut after its last group."""
    files = {
        name: content
        for name, content in contents(folder.path).items()
        if not name.startswith(("store.", "analytics.previous", "damaged/store", "damaged/analytics"))
    }
    return files | {OPEN: GROUP}


def chunk_of(backup: Path, name: str, index: int = 0) -> Path:
    """Return the file of a chunk of the newest generation."""
    repository = Repository(backup)
    [file] = [file for file in repository.read(repository.generation_names()[-1]).files if file.name == name]
    return backup / "blocks" / file.chunks[index][:2] / file.chunks[index]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
