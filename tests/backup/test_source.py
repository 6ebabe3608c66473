"""A backup is complete even if a server seals, publishes and deletes between any two of its steps."""

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedsink.backup import source
from embedsink.data_folder import DataFolder
from embedsink.journal.segment import OPEN, SEALED, end_of_last_group, trailer

RUNS = 3_000
FOLDER = DataFolder(Path("/data"))


class Model:
    """An in-memory data folder with a server. Before each step of the backup, the server runs some steps.

    As on a file system, a listing is unordered, and each entry is read at a different time.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.journal: dict[str, bytes] = {}
        self.damaged: dict[str, bytes] = {}
        self.snapshot: set[int] = set()
        self.acknowledged: set[int] = set()
        self._number = 0
        self._loaded: dict[str, set[int]] = {}
        for _ in range(rng.randint(0, 12)):
            self.step()

    def step(self) -> None:
        """Run one atomic step of a server."""
        steps = [self._append, self._append, self._seal, self._publish, self._delete, self._reject]
        self._rng.choice(steps)()

    def run_server(self) -> None:
        for _ in range(self._rng.randint(0, 4)):
            self.step()

    def list_segments(self, _: Path) -> list[str]:
        """List the journal while the server continues."""
        self.run_server()
        pivot = self._rng.random()
        position = {name: random.Random(name).random() for name in self.journal}
        first = [name for name in self.journal if position[name] < pivot]
        self.run_server()
        return first + [name for name in self.journal if random.Random(name).random() >= pivot]

    def read(self, path: Path) -> bytes:
        self.run_server()
        try:
            return self.journal[path.name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path)) from None

    def collected(self) -> set[int]:
        """Return the events in a backup that starts now."""
        journal = dict(source.read_journal(FOLDER))
        self.run_server()
        damaged = list(self.damaged.values())
        self.run_server()
        return ids_in([*journal.values(), *damaged]) | self.snapshot

    def _open(self) -> str | None:
        return next((name for name in self.journal if name.endswith(OPEN)), None)

    def _append(self) -> None:
        name = self._open()
        if name is None:
            self._number += 1
            name = f"{self._number:012d}-{self._rng.randrange(1 << 32):08x}{OPEN}"
        content = self.journal.get(name, b"")
        content = content[: end_of_last_group(content)]
        number = len(self.acknowledged)
        line = b'{"id":%d}\n' % number
        if self._rng.random() < 0.3:
            self.journal[name] = content + line  # an incomplete write
            return
        self.journal[name] = content + line + trailer(line)
        self.acknowledged.add(number)

    def _seal(self) -> None:
        name = self._open()
        if name is not None and self.journal[name].endswith(b"}}\n"):
            self.journal[name.replace(OPEN, SEALED)] = self.journal.pop(name)

    def _publish(self) -> None:
        self._loaded = {name: ids_in([self.journal[name]]) for name in self._sealed()}
        self.snapshot = self.snapshot.union(*self._loaded.values())

    def _delete(self) -> None:
        for name in self._sealed():
            if name in self._loaded:
                del self.journal[name]
                return

    def _reject(self) -> None:
        sealed = [name for name in self._sealed() if name not in self._loaded]
        if sealed and self._rng.random() < 0.1:
            self.damaged[sealed[0]] = self.journal.pop(sealed[0])

    def _sealed(self) -> list[str]:
        return sorted(name for name in self.journal if name.endswith(SEALED))


def ids_in(segments: list[bytes]) -> set[int]:
    lines = [line for segment in segments for line in segment.splitlines()]
    return {int(line[6:-1]) for line in lines if line.startswith(b'{"id":')}


def count_lossy_runs(monkeypatch: pytest.MonkeyPatch) -> int:
    count = 0
    for seed in range(RUNS):
        model = Model(random.Random(seed))
        acknowledged = set(model.acknowledged)
        with monkeypatch.context() as patch:
            patch.setattr(source, "_list_segments", model.list_segments)
            patch.setattr(Path, "read_bytes", lambda path, model=model: model.read(path))
            count += not acknowledged <= model.collected()
    return count


def test_a_backup_under_any_server_activity_has_every_acknowledged_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert count_lossy_runs(monkeypatch) == 0


def one_listing(journal: Path) -> list[str]:
    return sorted(source._list_segments(journal))


def only_by_its_name(journal: Path, name: str) -> tuple[str, bytes] | None:
    try:
        return name, (journal / name).read_bytes()
    except FileNotFoundError:
        return None


def snapshot_first(model: Model) -> set[int]:
    snapshot = set(model.snapshot)
    model.run_server()
    return ids_in(list(dict(source.read_journal(FOLDER)).values())) | snapshot


@pytest.mark.parametrize(
    ("owner", "name", "injected"),
    [
        (source, "segment_names", one_listing),
        (source, "_read_segment", only_by_its_name),
        (Model, "collected", snapshot_first),
    ],
    ids=["one_listing", "only_by_its_name", "snapshot_first"],
)
def test_the_model_finds_an_injected_bug(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, injected: object
) -> None:
    monkeypatch.setattr(owner, name, injected)
    assert count_lossy_runs(monkeypatch) > 0


def segments_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    data = DataFolder(folder)
    data.create()
    return source.read_journal(data)


def test_complete_groups_of_an_open_segment_are_read_even_after_damage(tmp_path: Path) -> None:
    group = b'{"n":1}\n' + trailer(b'{"n":1}\n')
    damaged = group.replace(b"1", b"2", 1)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal/000000000001-00000000.open").write_bytes(damaged + group + group[:-1])
    (tmp_path / "journal/notes.txt").touch()
    assert list(segments_of(tmp_path)) == [("journal/000000000001-00000000.open", damaged + group)]


def test_a_pipe_or_a_folder_among_the_files_does_not_stop_a_backup(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    data.create()
    os.mkfifo(data.damaged / "pipe")
    (data.damaged / "folder").mkdir()
    (data.damaged / "lost-1.txt").write_text("a note")
    assert [name for name, _ in source.open_other_files(data)] == ["damaged/lost-1.txt"]
