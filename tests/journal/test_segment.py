"""Segment files: their names, and their recovery after a crash, a disk failure or a partial copy."""

import itertools
import os
import zlib
from pathlib import Path

import pytest

from embedsink.durable_files import move_to_damaged
from embedsink.journal.recovery import Recovery, recover
from embedsink.journal.segment import (
    Damage,
    damage_of_groups,
    identity_of,
    inspect,
    number_of,
    number_of_identity,
    sealed_bytes_of,
    sealed_name,
    trailer,
)

GROUPS = [b'{"kind":"event","n":1}\n{"kind":"event","n":2}\n', b"", b'{"kind":"lost"}\n' * 3]
WHOLE = [group + trailer(group) for group in GROUPS]
CONTENT = b"".join(WHOLE)
ENDS = [sum(map(len, WHOLE[:count])) for count in range(len(WHOLE) + 1)]
NAME = "000000000007-0badcafe"


class Folder:
    """A journal folder with a segment that was open when the process was killed."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.journal = path / "journal"
        self.damaged = path / "damaged"
        self.open = self.journal / f"{NAME}.open"
        self.journal.mkdir(parents=True)
        self.open.write_bytes(content)

    def recover(self) -> Recovery:
        return recover(self.journal, damaged_folder=self.damaged)

    def recovered(self) -> bytes:
        """Return the content of the one sealed segment, whose name has its size; empty without one."""
        assert not self.open.exists()
        for path in self.journal.iterdir():
            assert path.name == f"{NAME}-{path.stat().st_size}.ndjson"
            return path.read_bytes()
        return b""

    def files(self) -> dict[str, bytes]:
        """Return the content of every file."""
        return {path.name: path.read_bytes() for folder in (self.journal, self.damaged) for path in folder.iterdir()}


def end_before(offset: int) -> int:
    """Return the end of the last complete group before an offset."""
    return max(end for end in ENDS if end <= offset)


def test_a_trailer_contains_the_byte_count_and_crc_32_of_the_lines() -> None:
    lines = b'{"kind":"event"}\n'
    assert trailer(lines) == b'{"group":{"bytes":17,"crc32":"%08x"}}\n' % zlib.crc32(lines)


def test_complete_groups_are_intact() -> None:
    assert [damage_of_groups(CONTENT[:end]) for end in ENDS] == [None] * len(ENDS)


def test_a_flipped_bit_anywhere_is_detected() -> None:
    for bit in range(len(CONTENT) * 8):
        flipped = bytearray(CONTENT)
        flipped[bit // 8] ^= 1 << bit % 8
        damage = damage_of_groups(bytes(flipped))
        assert damage is not None, f"bit {bit}"
        assert damage.offset <= bit // 8, f"bit {bit}"


def test_a_cut_at_any_offset_keeps_the_complete_groups_before_it(tmp_path: Path) -> None:
    for offset in range(len(CONTENT) + 1):
        folder = Folder(tmp_path / str(offset), CONTENT[:offset])

        recovery = folder.recover()

        end = end_before(offset)
        assert folder.recovered() == CONTENT[:end]
        assert recovery.damaged == []
        moved = [path.read_bytes() for path in folder.damaged.iterdir()]
        assert moved == ([CONTENT[end:offset]] if offset > end else [])
        assert len(recovery.notes) == len(moved)


@pytest.mark.parametrize("zero_count", [1, 4096])
def test_zeros_from_any_offset_keep_the_complete_groups_before_them(tmp_path: Path, zero_count: int) -> None:
    for offset in range(len(CONTENT) + 1):
        folder = Folder(tmp_path / str(offset), CONTENT[:offset] + bytes(zero_count))

        recovery = folder.recover()

        assert folder.recovered() == CONTENT[: end_before(offset)]
        assert recovery.damaged == []
        assert len(recovery.notes) == 1


def test_a_last_group_with_a_hole_of_zeros_is_cut_off(tmp_path: Path) -> None:
    start = ENDS[-2]
    content = CONTENT[: start + 4] + bytes(8) + CONTENT[start + 12 :]
    folder = Folder(tmp_path, content)

    folder.recover()

    assert folder.recovered() == CONTENT[:start]


def test_recovery_is_idempotent(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CONTENT[:-3])
    folder.recover()
    once = folder.files()

    for _ in range(4):
        assert folder.recover().notes == []

    assert folder.files() == once


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_the_next_recovery_completes_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    undisturbed = Folder(tmp_path / "undisturbed", CONTENT[:-3])
    undisturbed.recover()

    for kill_at in range(1, 7):
        folder = Folder(tmp_path / str(kill_at), CONTENT[:-3])
        with monkeypatch.context() as patch:
            kill_at_call(patch, call, kill_at)
            for _ in range(5):
                try:
                    folder.recover()
                except Killed:
                    continue
        folder.recover()
        assert folder.files() == undisturbed.files()


class Killed(BaseException):
    """The process was killed here."""


def kill_at_call(patch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Raise instead of the nth call of an os function, and of each later one."""
    original = getattr(os, call)
    calls = itertools.count(1)

    def counted(*arguments: object) -> object:
        if next(calls) >= number:
            raise Killed
        return original(*arguments)

    patch.setattr(os, call, counted)


def test_damage_before_a_complete_group_moves_the_segment_to_damaged(tmp_path: Path) -> None:
    flipped = bytearray(CONTENT)
    flipped[3] ^= 4
    folder = Folder(tmp_path, bytes(flipped))

    recovery = folder.recover()

    assert folder.recovered() == b""
    assert (folder.damaged / folder.open.name).read_bytes() == flipped
    assert recovery.notes == []
    assert recovery.damaged == [
        f"journal {NAME}: the group at offset 0 is damaged ({len(CONTENT)} bytes; its checksum does not match). "
        "The segment was moved to damaged/."
    ]


def test_a_recovered_segment_is_synced_before_it_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A killed process may leave a group in the page cache only.
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink().suffix))
    Folder(tmp_path, CONTENT).recover()
    assert synced == [".open", ""]


def test_an_open_segment_without_a_group_is_deleted(tmp_path: Path) -> None:
    folder = Folder(tmp_path, b"")
    folder.recover()
    assert folder.files() == {}


def test_sealed_segments_are_not_changed(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CONTENT)
    other = folder.journal / "000000000003-00000000.ndjson"
    other.write_bytes(b"the loader looks at this")

    own = folder.journal / "000000000007-0badcafe-219.ndjson"
    assert folder.recover() == Recovery(last_number=7, sealed=[own])

    assert other.read_bytes() == b"the loader looks at this"


def test_numbers_continue_after_the_highest_in_journal_and_damaged(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CONTENT)
    folder.damaged.mkdir()
    (folder.damaged / "000000000012-00000000.ndjson").touch()
    (folder.damaged / "notes.txt").touch()
    assert folder.recover().last_number == 12


def test_files_in_damaged_are_never_overwritten(tmp_path: Path) -> None:
    for content in (b"1", b"2", b"3"):
        (tmp_path / "store.duckdb").write_bytes(content)
        move_to_damaged(tmp_path / "store.duckdb", damaged=tmp_path / "damaged")
    assert sorted(path.read_bytes() for path in (tmp_path / "damaged").iterdir()) == [b"1", b"2", b"3"]


def test_a_second_file_of_one_name_keeps_its_number_in_damaged(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CONTENT)
    for _ in range(2):
        segment = tmp_path / "000000000012-00000000.ndjson"
        segment.touch()
        moved = move_to_damaged(segment, damaged=folder.damaged)
    (folder.damaged / segment.name).unlink()
    assert number_of(moved) == 12
    assert folder.recover().last_number == 12, "it is given to no other"


def test_the_number_of_other_files_is_0() -> None:
    assert number_of(Path(f"{NAME}.ndjson")) == 7
    for end in ("tail-88", "ndjson.1x", "ndjson.", "ndjson.1.2", "new"):
        assert number_of(Path(f"{NAME}.{end}")) == 0


@pytest.mark.parametrize(
    ("name", "identity", "sealed_bytes"),
    [
        (f"{NAME}.open", NAME, None),
        (f"{NAME}.ndjson", NAME, None),
        (f"{NAME}-1234.ndjson", NAME, 1234),
        (f"{NAME}-1234.ndjson.2", NAME, 1234),
        (f"{NAME}-1234.ndjson.new", "", None),
        (f"{NAME}-.ndjson", "", None),
        (f"{NAME}.group-88.ndjson", "", None),
        ("notes.ndjson", "", None),
    ],
)
def test_a_name_contains_identity_and_sealed_size(name: str, identity: str, sealed_bytes: int | None) -> None:
    assert (identity_of(name), sealed_bytes_of(name)) == (identity, sealed_bytes)
    assert (number_of(Path(name)) == 7) == bool(identity)


def test_an_identity_begins_with_the_number() -> None:
    assert number_of_identity(NAME) == 7


def test_the_name_of_a_sealed_segment_is_its_identity_and_size() -> None:
    assert sealed_name(NAME, 1234) == f"{NAME}-1234.ndjson"


def test_a_sealed_segment_cut_at_any_offset_is_damaged(tmp_path: Path) -> None:
    sealed = tmp_path / sealed_name(NAME, len(CONTENT))
    for offset in range(len(CONTENT)):
        sealed.write_bytes(CONTENT[:offset])
        damage = inspect(sealed).damage
        assert damage == Damage(end_before(offset), f"bytes are missing: {offset} of {len(CONTENT)} are left")
    sealed.write_bytes(CONTENT)
    assert inspect(sealed).is_intact


def test_a_sealed_segment_with_added_bytes_is_damaged(tmp_path: Path) -> None:
    sealed = tmp_path / sealed_name(NAME, len(CONTENT))
    sealed.write_bytes(CONTENT + WHOLE[0])
    assert "bytes were added" in str(inspect(sealed).damage)


def test_a_segment_without_a_size_in_its_name_is_checked_by_its_groups(tmp_path: Path) -> None:
    sealed = tmp_path / f"{NAME}.ndjson"
    sealed.write_bytes(b"")
    assert inspect(sealed).damage == Damage(0, "it is empty")
    sealed.write_bytes(CONTENT[:-1])
    assert not inspect(sealed).is_intact
    sealed.write_bytes(WHOLE[0])
    assert inspect(sealed).is_intact, "a cut between groups is undetectable without a size"


def test_a_flipped_bit_in_the_last_open_group_is_damage_and_not_a_torn_tail(tmp_path: Path) -> None:
    start = ENDS[-2]
    # Without its last line feed, the trailer is no line, as in a torn group.
    for offset in range(start, start + len(GROUPS[-1]) - 1):
        flipped = bytearray(CONTENT)
        flipped[offset] ^= 1
        folder = Folder(tmp_path / str(offset), bytes(flipped))

        recovery = folder.recover()

        assert folder.recovered() == CONTENT[:start], "the groups before it are loaded"
        [damage] = recovery.damaged
        assert f"the group at offset {start} is damaged" in damage
        assert "It may have been acknowledged" in damage
        [moved] = folder.damaged.iterdir()
        assert moved.name == f"{NAME}.group-{start}.ndjson"
        assert moved.read_bytes() == bytes(flipped[start:])


def test_a_damaged_group_before_a_torn_tail_is_damage(tmp_path: Path) -> None:
    flipped = bytearray(CONTENT + WHOLE[0][:-3])
    flipped[ENDS[-2] + 3] ^= 1
    folder = Folder(tmp_path, bytes(flipped))
    assert len(folder.recover().damaged) == 1
    assert folder.recovered() == CONTENT[: ENDS[-2]]
