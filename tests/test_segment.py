"""Segments as files: whatever a crash leaves of one, recovery finds the exact prefix of whole groups."""

import itertools
import os
import zlib
from pathlib import Path

import pytest

from embedsink.segment import Recovery, find_damage, number_of, recover, set_aside, trailer

GROUPS = [b'{"kind":"event","n":1}\n{"kind":"event","n":2}\n', b"", b'{"kind":"lost"}\n' * 3]
WHOLE = [group + trailer(group) for group in GROUPS]
CONTENT = b"".join(WHOLE)
ENDS = [sum(map(len, WHOLE[:count])) for count in range(len(WHOLE) + 1)]
NAME = "000000000007-0badcafe"


class Folder:
    """A journal folder with one segment that was still open when the program was killed."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.journal = path / "journal"
        self.aside = path / "aside"
        self.open = self.journal / f"{NAME}.open"
        self.sealed = self.journal / f"{NAME}.ndjson"
        self.journal.mkdir(parents=True)
        self.open.write_bytes(content)

    def recover(self) -> Recovery:
        return recover(self.journal, aside=self.aside)

    def recovered(self) -> bytes:
        """What is in the journal: the one sealed segment, or nothing."""
        assert not self.open.exists()
        return self.sealed.read_bytes() if self.sealed.exists() else b""

    def files(self) -> dict[str, bytes]:
        """Everything there is."""
        return {path.name: path.read_bytes() for folder in (self.journal, self.aside) for path in folder.iterdir()}


def end_before(offset: int) -> int:
    """Where the last group ends that is whole in the first bytes up to an offset."""
    return max(end for end in ENDS if end <= offset)


def test_a_trailer_holds_byte_count_and_crc_32_of_the_lines() -> None:
    lines = b'{"kind":"event"}\n'
    assert trailer(lines) == b'{"group":{"bytes":17,"crc32":"%08x"}}\n' % zlib.crc32(lines)


def test_whole_groups_are_not_damaged() -> None:
    assert [find_damage(CONTENT[:end]) for end in ENDS] == [None] * len(ENDS)


def test_one_flipped_bit_anywhere_is_found() -> None:
    for place in range(len(CONTENT) * 8):
        flipped = bytearray(CONTENT)
        flipped[place // 8] ^= 1 << place % 8
        damage = find_damage(bytes(flipped))
        assert damage is not None, f"bit {place}"
        assert damage.end <= place // 8, f"bit {place}"


def test_a_tail_cut_at_any_offset_leaves_the_whole_groups_before_it(tmp_path: Path) -> None:
    for offset in range(len(CONTENT) + 1):
        folder = Folder(tmp_path / str(offset), CONTENT[:offset])

        recovery = folder.recover()

        end = end_before(offset)
        assert folder.recovered() == CONTENT[:end]
        assert recovery.damaged == []
        kept = [path.read_bytes() for path in folder.aside.iterdir()]
        assert kept == ([CONTENT[end:offset]] if offset > end else [])
        assert len(recovery.cut) == len(kept)


@pytest.mark.parametrize("zero_count", [1, 4096])
def test_a_tail_of_zeros_from_any_offset_leaves_the_whole_groups_before_it(tmp_path: Path, zero_count: int) -> None:
    for offset in range(len(CONTENT) + 1):
        folder = Folder(tmp_path / str(offset), CONTENT[:offset] + bytes(zero_count))

        recovery = folder.recover()

        assert folder.recovered() == CONTENT[: end_before(offset)]
        assert recovery.damaged == []
        assert len(recovery.cut) == 1


def test_a_last_group_with_a_hole_of_zeros_is_cut_off(tmp_path: Path) -> None:
    start = ENDS[-2]
    content = CONTENT[: start + 4] + bytes(8) + CONTENT[start + 12 :]
    folder = Folder(tmp_path, content)

    folder.recover()

    assert folder.recovered() == CONTENT[:start]


def test_recovery_done_five_times_is_recovery_done_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CONTENT[:-3])
    folder.recover()
    once = folder.files()

    for _ in range(4):
        assert folder.recover().cut == []

    assert folder.files() == once


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_recovery_killed_in_between_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
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
    """The program ended here."""


def kill_at_call(patch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """End the nth call of a function of os, and every one after it, before it does anything."""
    original = getattr(os, call)
    calls = itertools.count(1)

    def counted(*arguments: object) -> object:
        if next(calls) >= number:
            raise Killed
        return original(*arguments)

    patch.setattr(os, call, counted)


def test_damage_before_a_whole_group_sets_the_segment_aside_and_says_so(tmp_path: Path) -> None:
    flipped = bytearray(CONTENT)
    flipped[3] ^= 4
    folder = Folder(tmp_path, bytes(flipped))

    recovery = folder.recover()

    assert folder.recovered() == b""
    assert (folder.aside / folder.open.name).read_bytes() == flipped
    assert recovery.cut == []
    assert recovery.damaged == [
        f"journal {NAME}: the group at offset 0 is torn ({len(CONTENT)} bytes; its checksum does not hold). "
        "The segment is set aside and kept in aside/."
    ]


def test_a_recovered_segment_is_synced_before_it_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A killed program may have written a group that only the page cache has.
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink().suffix))
    Folder(tmp_path, CONTENT).recover()
    assert synced == [".open", ""]


def test_an_open_segment_without_a_group_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path, b"")
    folder.recover()
    assert folder.files() == {}


def test_sealed_segments_are_left_as_they_are(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CONTENT)
    other = folder.journal / "000000000003-00000000.ndjson"
    other.write_bytes(b"the loader looks at this")

    assert folder.recover() == Recovery(last_number=7)

    assert other.read_bytes() == b"the loader looks at this"


def test_numbers_go_on_after_what_lies_in_the_journal_or_aside(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CONTENT)
    folder.aside.mkdir()
    (folder.aside / "000000000012-00000000.ndjson").touch()
    (folder.aside / "notes.txt").touch()
    assert folder.recover().last_number == 12


def test_nothing_set_aside_is_ever_overwritten(tmp_path: Path) -> None:
    for content in (b"1", b"2", b"3"):
        (tmp_path / "store.duckdb").write_bytes(content)
        set_aside(tmp_path / "store.duckdb", aside=tmp_path / "aside")
    assert sorted(path.read_bytes() for path in (tmp_path / "aside").iterdir()) == [b"1", b"2", b"3"]


def test_a_second_of_one_name_keeps_its_number_aside(tmp_path: Path) -> None:
    folder = Folder(tmp_path, CONTENT)
    for _ in range(2):
        segment = tmp_path / "000000000012-00000000.ndjson"
        segment.touch()
        kept = set_aside(segment, aside=folder.aside)
    (folder.aside / segment.name).unlink()
    assert number_of(kept) == 12
    assert folder.recover().last_number == 12, "it is given to no other"


def test_the_number_of_a_file_that_is_no_segment_is_0() -> None:
    assert number_of(Path(f"{NAME}.ndjson")) == 7
    for end in ("tail-88", "ndjson.1x", "ndjson.", "ndjson.1.2", "new"):
        assert number_of(Path(f"{NAME}.{end}")) == 0
