"""Recovery of a journal folder with copied files or on a full disk: no file is overwritten or lost."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedsink.journal import recovery as recovery_module
from embedsink.journal.recovery import Recovery, recover, recover_deferred
from embedsink.journal.segment import damage_of_groups, identity_of, sealed_name, trailer

GROUPS = [b'{"kind":"event","n":%d}\n' % number for number in range(1, 7)]
WHOLE = [group + trailer(group) for group in GROUPS]
IDENTITY = "000000000007-0badcafe"


class Folder:
    """A journal folder."""

    def __init__(self, path: Path) -> None:
        self.journal = path / "journal"
        self.damaged = path / "damaged"
        self.journal.mkdir(parents=True)

    def add(self, name: str, content: bytes) -> Path:
        path = self.journal / name
        path.write_bytes(content)
        return path

    def recover(self, after_number: int = 0) -> Recovery:
        return recover(self.journal, damaged_folder=self.damaged, after_number=after_number)

    def groups(self) -> set[bytes]:
        """Return the groups of all sealed segments, after checking that each is intact and has its own identity."""
        paths = list(self.journal.glob("*.ndjson"))
        assert len({identity_of(path.name) for path in paths}) == len(paths)
        contents = [path.read_bytes() for path in paths]
        assert [damage_of_groups(content) for content in contents] == [None] * len(contents)
        return {group for group in GROUPS for content in contents if group in content}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize("name", [f"{IDENTITY}.ndjson", sealed_name(IDENTITY, len(b"".join(WHOLE)))])
@pytest.mark.parametrize("cut", [0, 3])
def test_an_open_copy_of_a_sealed_segment_does_not_replace_it(folder: Folder, name: str, cut: int) -> None:
    sealed = folder.add(name, b"".join(WHOLE))
    content = b"".join(WHOLE[:2])
    folder.add(f"{IDENTITY}.open", content[: len(content) - cut])

    recovery = folder.recover()

    assert [path.name for path in folder.journal.iterdir()] == [name]
    assert sealed.read_bytes() == b"".join(WHOLE)
    assert recovery.damaged == []
    assert recovery.notes == [f"journal {IDENTITY}.open: is a copy of the beginning of {name}. The copy was deleted."]
    assert list(folder.damaged.iterdir()) == []


@pytest.mark.parametrize("name", [f"{IDENTITY}.ndjson", sealed_name(IDENTITY, len(b"".join(WHOLE[:3])))])
def test_an_open_segment_that_differs_from_the_sealed_one_gets_a_new_number(folder: Folder, name: str) -> None:
    sealed = folder.add(name, b"".join(WHOLE[:3]))
    folder.add(f"{IDENTITY}.open", WHOLE[0] + WHOLE[4] + WHOLE[5][:-2])

    recovery = folder.recover(after_number=20)

    assert sealed.read_bytes() == b"".join(WHOLE[:3])
    assert folder.groups() == {*GROUPS[:3], GROUPS[4]}
    assert recovery.last_number == 21
    assert any("differs from" in note for note in recovery.notes)
    assert folder.recover(after_number=20).notes == [], "the next start has nothing to do"


def test_a_shorter_sealed_copy_is_deleted(folder: Folder) -> None:
    longer = folder.add(sealed_name(IDENTITY, len(b"".join(WHOLE))), b"".join(WHOLE))
    folder.add(sealed_name(IDENTITY, len(WHOLE[0])), WHOLE[0])
    recovery = folder.recover()
    assert list(folder.journal.iterdir()) == [longer]
    assert "The copy was deleted" in recovery.notes[0]


def test_the_intact_copy_of_a_damaged_segment_is_kept(folder: Folder) -> None:
    content = b"".join(WHOLE)
    damaged = folder.add(sealed_name(IDENTITY, len(content)), content[:-20] + b"x" * 20)
    folder.add(f"{IDENTITY}.open", b"".join(WHOLE[:4]))
    folder.recover()
    damaged.unlink()
    assert folder.groups() == set(GROUPS[:4])


@pytest.mark.parametrize("content", [b"".join(WHOLE[:2]), b"".join(WHOLE[3:])], ids=["a copy", "other content"])
@pytest.mark.parametrize("call", ["fsync", "unlink", "rename_new"])
def test_the_next_recovery_completes_one_killed_next_to_a_sealed_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, content: bytes
) -> None:
    module = recovery_module if call == "rename_new" else os
    for kill_at in range(4):
        folder = Folder(tmp_path / str(kill_at))
        folder.add(f"{IDENTITY}.ndjson", b"".join(WHOLE[:3]))
        folder.add(f"{IDENTITY}.open", content)
        calls = iter(range(kill_at))
        with monkeypatch.context() as patch:
            patch.setattr(module, call, killing(getattr(module, call), calls))
            for _ in range(5):
                with contextlib.suppress(Killed):
                    folder.recover()
        folder.recover()
        assert folder.groups() == {group for group in GROUPS if group in b"".join(WHOLE[:3]) + content}


class Killed(BaseException):
    """The process was killed here."""


def killing(original, calls: Iterator[int]):  # type: ignore[no-untyped-def]
    """Pass on a call for each number, then raise."""

    def counted(*arguments: object) -> object:
        if next(calls, None) is None:
            raise Killed
        return original(*arguments)

    return counted


@pytest.mark.parametrize("name", ["zzz.ndjson", "1.open", "000000000001.ndjson"])
def test_other_files_are_reported_and_left(folder: Folder, name: str) -> None:
    (folder.journal / name).mkdir()
    assert folder.recover() == Recovery(
        last_number=0, notes=[f"journal/{name}: is not a segment and is ignored. Move it elsewhere."]
    )


@pytest.mark.parametrize("make", ["folder", "link"])
def test_a_folder_or_link_named_like_a_segment_does_not_prevent_a_start(folder: Folder, make: str) -> None:
    for suffix in (".open", ".ndjson"):
        path = folder.journal / f"{IDENTITY}{suffix}"
        path.mkdir() if make == "folder" else path.symlink_to("nowhere")
    assert folder.recover().damaged == []


@pytest.mark.parametrize("existing", [b"", b"".join(WHOLE)[:-9], b"x" * len(b"".join(WHOLE))])
def test_an_intact_open_segment_replaces_a_damaged_sealed_one(folder: Folder, existing: bytes) -> None:
    content = b"".join(WHOLE)
    folder.add(f"{IDENTITY}.open", content)
    sealed = folder.add(sealed_name(IDENTITY, len(content)), existing)
    [message] = folder.recover().damaged
    assert f"{sealed.name}: is damaged and was moved to damaged/. The intact {IDENTITY}.open replaces it." in message
    assert sealed.read_bytes() == content
    assert [path.read_bytes() for path in folder.damaged.iterdir()] == [existing]


def test_a_tail_in_damaged_is_never_overwritten(folder: Folder) -> None:
    for tail in (b"AAAA", b"BBBB"):
        folder.add(f"{IDENTITY}.open", WHOLE[0] + tail)
        folder.recover()
        folder.add(f"{IDENTITY}.open", b"").unlink()
    assert {path.read_bytes() for path in folder.damaged.iterdir()} == {b"AAAA", b"BBBB"}


def test_without_space_for_a_torn_tail_recovery_is_deferred_and_loses_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = WHOLE[0] + WHOLE[1][:-2]
    path = folder.add(f"{IDENTITY}.open", content)

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(recovery_module, "write_durably", full)
        recovery = folder.recover()
        assert (recovery.deferred, recovery.last_number) == ([path], 7)
        assert path.read_bytes() == content
        assert recover_deferred(recovery.deferred, damaged_folder=folder.damaged) == Recovery(deferred=[path])

    later_recovery = recover_deferred(recovery.deferred, damaged_folder=folder.damaged)
    [sealed] = later_recovery.sealed
    assert (sealed.read_bytes(), later_recovery.deferred) == (WHOLE[0], [])
    assert [path.read_bytes() for path in folder.damaged.iterdir()] == [WHOLE[1][:-2]]


def test_a_deferred_copy_of_a_sealed_segment_seals_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = folder.add(sealed_name(IDENTITY, len(WHOLE[0])), WHOLE[0])
    folder.add(f"{IDENTITY}.open", WHOLE[0] + b"torn")

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(recovery_module, "write_durably", full)
        recovery = folder.recover()
    assert len(recovery.deferred) == 1
    assert recover_deferred(recovery.deferred, damaged_folder=folder.damaged).sealed == []
    assert sealed.exists()


def test_a_deferred_segment_that_replaces_a_damaged_one_counts_as_sealed(folder: Folder) -> None:
    name = sealed_name(IDENTITY, len(WHOLE[0]))
    folder.add(name, b"damaged")
    path = folder.add(f"{IDENTITY}.open", WHOLE[0])
    recovery = recover_deferred([path], damaged_folder=folder.damaged)
    assert recovery.sealed == [folder.journal / name]
    assert "The intact 000000000007-" in recovery.damaged[0]
