"""One journal segment as a file: its groups, their trailers, and how a damaged one is recovered.

    {"kind":"event",…}\\n  …  {"group":{"bytes":1234,"crc32":"9ae0daaf"}}\\n

A group counts only with its trailer: the byte count and CRC-32 (RFC 1952, section 8) of the lines before it.
"""

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

OPEN = ".open"
SEALED = ".ndjson"
_TRAILER_BEGINNING = b'{"group":{"bytes":'
_TRAILER = re.compile(rb'\{"group":\{"bytes":(\d{1,12}),"crc32":"([0-9a-f]{8})"\}\}\n')
# With a further number where one of that name lies aside already.
_NAME = re.compile(r"^(\d{12})-[0-9a-f]{8}\.(?:open|ndjson)(?:\.\d+)?$")


@dataclass(slots=True)
class Recovery:
    """What a start found: one sentence for each thing cut off or set aside, and the last segment number in use."""

    last_number: int = 0
    cut: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Damage:
    """Where the good part of a segment ends, and why it ends there."""

    end: int
    why: str


def trailer(lines: bytes) -> bytes:
    """The line that ends a group."""
    return b'{"group":{"bytes":%d,"crc32":"%08x"}}\n' % (len(lines), zlib.crc32(lines))


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed segment, and what a look at every group found: the first damage, and the largest; no line is longer."""

    path: Path
    byte_count: int
    group_bytes_max: int
    damage: Damage | None

    @property
    def number(self) -> int:
        """Its place in the journal's order."""
        return number_of(self.path)

    def count_lines(self) -> int:
        """Read it again, for the number of its lines, trailers among them."""
        return self.path.read_bytes().count(b"\n")


def inspect(path: Path) -> Segment:
    """Read a sealed segment and check every group."""
    content = path.read_bytes()
    damage, group_bytes_max = _look_at_groups(content)
    return Segment(path, len(content), group_bytes_max, damage)


def find_damage(content: bytes) -> Damage | None:
    """The first damage in a segment; None when all its groups are whole."""
    return _look_at_groups(content)[0]


def _look_at_groups(content: bytes) -> tuple[Damage | None, int]:
    """The first damage, and the bytes of the largest group before it."""
    start = largest = 0
    for match in _trailers(content):
        lines = memoryview(content)[start : match.start()]
        if int(match[1]) != len(lines) or int(match[2], 16) != zlib.crc32(lines):
            return Damage(start, "its checksum does not hold"), largest
        start, largest = match.end(), max(largest, match.end() - start)
    return Damage(start, "it has no trailer") if start < len(content) else None, largest


def _trailers(content: bytes, start: int = 0) -> Iterator[re.Match[bytes]]:
    # A search for the fixed beginning first: the expression alone takes ten times as long, and holds the GIL.
    while (start := content.find(_TRAILER_BEGINNING, start)) >= 0:
        if (start == 0 or content[start - 1 : start] == b"\n") and (match := _TRAILER.match(content, start)):
            yield match
        start += 1


def number_of(path: Path) -> int:
    """The place of a segment in the journal's order; 0 for a file that is no segment."""
    match = _NAME.match(path.name)
    return int(match[1]) if match else 0


def sync_folder(folder: Path) -> None:
    """Make created and renamed names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def recover(folder: Path, *, aside: Path) -> Recovery:
    """Bring a journal folder back to whole groups. Doing it again, or being killed in it, changes nothing.

    Segments that were still open lose a torn tail, which is kept in `aside`; then they are sealed. Sealed
    segments are not read here: the loader checks each before it loads it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    aside.mkdir(parents=True, exist_ok=True)
    recovery = Recovery()
    for path in sorted(folder.iterdir()):
        if path.suffix == OPEN:
            _recover_open(path, aside, recovery)
    # Numbers in `aside` count too: a segment that was set aside was once the newest.
    recovery.last_number = max(map(number_of, [*folder.iterdir(), *aside.iterdir()]), default=0)
    sync_folder(folder)
    return recovery


def set_aside(path: Path, *, aside: Path) -> Path:
    """Move a damaged file out of the way, without ever overwriting what already lies there."""
    aside.mkdir(parents=True, exist_ok=True)
    target, count = aside / path.name, 0
    while target.exists():
        count += 1
        target = aside / f"{path.name}.{count}"
    path.rename(target)
    sync_folder(aside)
    sync_folder(path.parent)
    return target


def _recover_open(path: Path, aside: Path, recovery: Recovery) -> None:
    content = path.read_bytes()
    damage = find_damage(content)
    if damage is None:
        _seal(path) if content else path.unlink()
    elif _whole_group_follows(content, damage.end):
        # No torn tail, then, but a failed disk: what is good and what is not needs a person.
        recovery.damaged.append(_sentence(path, damage, content, "The segment is set aside"))
        set_aside(path, aside=aside)
    else:
        _keep_tail(path, content, damage, aside)
        recovery.cut.append(_sentence(path, damage, content, "Cut off"))
        _recover_open(path, aside, recovery)


def _seal(path: Path) -> None:
    # A killed program may have left whole groups that never reached the disk, and a sealed segment is never torn.
    with path.open("r+b") as file:
        os.fsync(file.fileno())
    path.rename(path.with_suffix(SEALED))


def _whole_group_follows(content: bytes, start: int) -> bool:
    for match in _trailers(content, start):
        count = int(match[1])
        lines = content[max(start, match.start() - count) : match.start()]
        if len(lines) == count and zlib.crc32(lines) == int(match[2], 16):
            return True
    return False


def _keep_tail(path: Path, content: bytes, damage: Damage, aside: Path) -> None:
    # Keep first, cut second: a kill in between only means that the same tail is kept twice.
    with (aside / f"{path.stem}.tail-{damage.end}").open("wb") as kept:
        kept.write(content[damage.end :])
        kept.flush()
        os.fsync(kept.fileno())
    sync_folder(aside)
    with path.open("r+b") as file:
        file.truncate(damage.end)
        os.fsync(file.fileno())


def _sentence(path: Path, damage: Damage, content: bytes, done: str) -> str:
    count = len(content) - damage.end
    return (
        f"journal {path.stem}: the group at offset {damage.end:,} is torn ({count:,} bytes; {damage.why}). "
        f"{done} and kept in aside/."
    )
