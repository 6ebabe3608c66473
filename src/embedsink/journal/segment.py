"""One journal segment as a file: its name, its groups and their trailers.

    {"kind":"event",…}\\n  …  {"group":{"bytes":1234,"crc32":"9ae0daaf"}}\\n

A group counts only with its trailer: the byte count and CRC-32 (RFC 1952, section 8) of the lines before it.

    000000000012-1a2b3c4d.open            grows
    000000000012-1a2b3c4d-5678.ndjson     is sealed, with so many bytes; older programs left them out

`000000000012-1a2b3c4d` is the identity of the segment. The store, the loader and backups go by that alone.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPEN = ".open"
SEALED = ".ndjson"
_TRAILER_BEGINNING = b'{"group":{"bytes":'
_TRAILER = re.compile(rb'\{"group":\{"bytes":(\d{1,12}),"crc32":"([0-9a-f]{8})"\}\}\n')
# With a further number where one of that name lies aside already.
_NAME = re.compile(r"^((\d{12})-[0-9a-f]{8})(?:-(\d{1,12}))?\.(?:open|ndjson)(?:\.\d+)?$")
# The characters of an identity: with 100,000 names at each look, a slice of a name is quicker than `identity_of`.
IDENTITY_LENGTH = 21
# A power loss leaves zeros where a page was not written. Lines are JSON, which has none.
_HOLE = b"\0\0"


@dataclass(frozen=True, slots=True)
class Damage:
    """Where the good part of a segment ends, and why it ends there.

    `was_whole`: the group there was written to its end, so its events may have been acknowledged.
    """

    end: int
    why: str
    was_whole: bool = False


def trailer(lines: bytes) -> bytes:
    """Return the line that ends a group."""
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

    @property
    def identity(self) -> str:
        """Which segment it is, whatever its file is named."""
        return identity_of(self.path.name)

    @property
    def is_whole(self) -> bool:
        """Whether it has every byte that it was sealed with, as far as its name tells, and every checksum holds."""
        return self.damage is None

    def count_lines(self) -> int:
        """Read it again, for the number of its lines, trailers among them."""
        return self.path.read_bytes().count(b"\n")


def inspect(path: Path) -> Segment:
    """Read a sealed segment; check its size and every group."""
    content = path.read_bytes()
    damage, group_bytes_max = _look_at(path.name, content)
    return Segment(path, len(content), group_bytes_max, damage)


def damage_of(name: str, content: bytes) -> Damage | None:
    """Return the first damage in a segment; None if its groups are whole and, once it is sealed, its size is right."""
    return _look_at(name, content)[0]


def find_damage(content: bytes) -> Damage | None:
    """Return the first damage in groups; None if all are whole."""
    return _look_at_groups(content)[0]


def whole_group_follows(content: bytes, start: int) -> bool:
    """Whether a group that is whole begins at this offset of a segment, or behind it."""
    for match in _trailers(content, start):
        count = int(match[1])
        lines = content[max(start, match.start() - count) : match.start()]
        if len(lines) == count and zlib.crc32(lines) == int(match[2], 16):
            return True
    return False


def _look_at(name: str, content: bytes) -> tuple[Damage | None, int]:
    """The first damage, and the bytes of the largest group."""
    damage, group_bytes_max = _look_at_groups(content)
    sealed_bytes = sealed_bytes_of(name)
    if sealed_bytes is None and not content and not name.endswith(OPEN):
        damage = Damage(0, "it is empty")
    elif sealed_bytes is not None and sealed_bytes != len(content):
        end = len(content) if damage is None else damage.end
        damage = Damage(end, _other_size(len(content), sealed_bytes))
    return damage, group_bytes_max


def _look_at_groups(content: bytes) -> tuple[Damage | None, int]:
    """The first damage, and the bytes of the largest group before it."""
    start = largest = 0
    for match in _trailers(content):
        lines = memoryview(content)[start : match.start()]
        has_length, has_checksum = int(match[1]) == len(lines), int(match[2], 16) == zlib.crc32(lines)
        if not (has_length and has_checksum):
            # One of them is enough to know that the trailer is this group's.
            was_whole = (has_length or has_checksum) and _HOLE not in bytes(lines)
            return Damage(start, "its checksum does not hold", was_whole), largest
        start, largest = match.end(), max(largest, match.end() - start)
    return Damage(start, "it has no trailer") if start < len(content) else None, largest


def _trailers(content: bytes, start: int = 0) -> Iterator[re.Match[bytes]]:
    # A search for the fixed beginning first: the expression alone takes ten times as long, and holds the GIL.
    while (start := content.find(_TRAILER_BEGINNING, start)) >= 0:
        if (start == 0 or content[start - 1 : start] == b"\n") and (match := _TRAILER.match(content, start)):
            yield match
        start += 1


def _other_size(byte_count: int, sealed_bytes: int) -> str:
    if byte_count < sealed_bytes:
        return f"bytes are missing ({byte_count:,} of {sealed_bytes:,} are left)"
    return f"bytes were added (it has {byte_count:,} and was sealed with {sealed_bytes:,})"


def number_of(path: Path) -> int:
    """Return the place of a segment in the journal's order; 0 for a file that is no segment."""
    match = _NAME.match(path.name)
    return int(match[2]) if match else 0


def identity_of(name: str) -> str:
    """Return the number and the random part of a segment's file name; an empty text for a file that is no segment."""
    match = _NAME.match(name)
    return match[1] if match else ""


def sealed_bytes_of(name: str) -> int | None:
    """Return the size with which a segment was sealed; None where the name does not tell it."""
    match = _NAME.match(name)
    return int(match[3]) if match and match[3] else None


def sealed_name(identity: str, byte_count: int) -> str:
    """Return the file name of a sealed segment."""
    return f"{identity}-{byte_count}{SEALED}"


def end_of_last_group(content: bytes) -> int:
    """Return where the last trailer of a segment ends; 0 without any."""
    return max((match.end() for match in _trailers(content)), default=0)
