"""The file format of a journal segment: file names, groups and trailers.

    {"kind":"event",…}\\n  …  {"group":{"bytes":1234,"crc32":"9ae0daaf"}}\\n

A group is valid only with its trailer: the byte count and CRC-32 (RFC 1952, section 8) of the lines before it.

    000000000012-1a2b3c4d.open            an open segment, which grows
    000000000012-1a2b3c4d-5678.ndjson     a sealed segment with its size in bytes; older versions omit the size

`000000000012-1a2b3c4d` is the segment's identity (`identity_of`).
"""

import re
import secrets
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPEN = ".open"
SEALED = ".ndjson"
_TRAILER_START = b'{"group":{"bytes":'
_TRAILER = re.compile(rb'\{"group":\{"bytes":(\d{1,12}),"crc32":"([0-9a-f]{8})"\}\}\n')
# A number follows the suffix if `damaged/` already has a file of that name.
_NAME = re.compile(r"^((\d{12})-[0-9a-f]{8})(?:-(\d{1,12}))?\.(?:open|ndjson)(?:\.\d+)?$")
# The length of an identity. For 100,000 names in each listing, slicing is faster than `identity_of`.
IDENTITY_LENGTH = 21
# After a power failure, pages that were not written contain zeros. Lines are JSON, which contains no zero bytes.
_UNWRITTEN = b"\0\0"


@dataclass(frozen=True, slots=True)
class Damage:
    """The first damage in a segment.

    Args:
        offset: the offset in bytes where the damage begins, after the last intact group.
        cause: the damage, as part of a sentence.
        was_complete: whether the damaged group was once written completely, so its events may have been acknowledged.
    """

    offset: int
    cause: str
    was_complete: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """An inspected segment. `group_bytes_max` is the size of its largest group, and no line is longer."""

    path: Path
    byte_count: int
    group_bytes_max: int
    damage: Damage | None

    @property
    def number(self) -> int:
        """The position in the journal's order."""
        return number_of(self.path)

    @property
    def identity(self) -> str:
        """The identity in the file name."""
        return identity_of(self.path.name)

    @property
    def is_intact(self) -> bool:
        """Whether every checksum matches, and the size is that in the file name, unless the name omits the size."""
        return self.damage is None

    def count_lines(self) -> int:
        """Read the file again and return the number of its lines, trailers included."""
        return self.path.read_bytes().count(b"\n")


def trailer(lines: bytes) -> bytes:
    """Return the line that ends a group."""
    return b'{"group":{"bytes":%d,"crc32":"%08x"}}\n' % (len(lines), zlib.crc32(lines))


def inspect(path: Path) -> Segment:
    """Read a segment from the disk, and check the size and each group."""
    content = path.read_bytes()
    damage, group_bytes_max = _inspect_content(path.name, content)
    return Segment(path, len(content), group_bytes_max, damage)


def damage_of(name: str, content: bytes) -> Damage | None:
    """Return the first damage in a segment; None if all groups are intact and the size is that in the file name.

    Args:
        name: the file name of the segment. Sealed segments have their size in the name.
        content: the whole file.
    """
    damage, _ = _inspect_content(name, content)
    return damage


def damage_of_groups(content: bytes) -> Damage | None:
    """Return the first damage in the groups of a segment; None if all groups are intact."""
    damage, _ = _inspect_groups(content)
    return damage


def has_intact_group(content: bytes, start: int) -> bool:
    """Return whether an intact group begins at the offset `start` or after it."""
    for match in _find_trailers(content, start):
        byte_count, checksum = int(match[1]), int(match[2], 16)
        # `max` cuts off a group that begins before `start`, so that its length does not match.
        lines = content[max(start, match.start() - byte_count) : match.start()]
        if len(lines) == byte_count and zlib.crc32(lines) == checksum:
            return True
    return False


def _inspect_content(name: str, content: bytes) -> tuple[Damage | None, int]:
    """Return the first damage in a segment, or None, and the size of the largest group before the damage."""
    damage, group_bytes_max = _inspect_groups(content)
    sealed_bytes = sealed_bytes_of(name)  # the size in the name; None if the name omits it
    is_sealed = not name.endswith(OPEN)
    if is_sealed and sealed_bytes is None and not content:
        damage = Damage(0, "it is empty")  # A segment without a group is never sealed, so its content is lost.
    elif sealed_bytes is not None and sealed_bytes != len(content):
        offset = len(content) if damage is None else damage.offset
        damage = Damage(offset, _size_mismatch_cause(len(content), sealed_bytes))
    return damage, group_bytes_max


def _inspect_groups(content: bytes) -> tuple[Damage | None, int]:
    """Return the first damage in groups, or None, and the size of the largest group before the damage."""
    group_start = 0
    group_bytes_max = 0
    for match in _find_trailers(content):
        lines = memoryview(content)[group_start : match.start()]
        has_same_length = int(match[1]) == len(lines)
        has_same_checksum = int(match[2], 16) == zlib.crc32(lines)
        if not (has_same_length and has_same_checksum):
            # If one of the two values matches, the trailer belongs to this group, so the whole group was written.
            # Zeros are the exception: they mean that a page never reached the disk.
            was_complete = (has_same_length or has_same_checksum) and _UNWRITTEN not in bytes(lines)
            return Damage(group_start, "its checksum does not match", was_complete), group_bytes_max
        group_bytes_max = max(group_bytes_max, match.end() - group_start)
        group_start = match.end()
    if group_start < len(content):
        return Damage(group_start, "it has no trailer"), group_bytes_max
    return None, group_bytes_max


def _find_trailers(content: bytes, start: int = 0) -> Iterator[re.Match[bytes]]:
    """Yield the lines that have the form of a trailer, from the offset `start` on."""
    # Search for the constant beginning first: the regular expression alone is ten times slower, and holds the GIL.
    offset = content.find(_TRAILER_START, start)
    while offset >= 0:
        is_line_start = offset == 0 or content[offset - 1 : offset] == b"\n"
        match = _TRAILER.match(content, offset) if is_line_start else None
        if match:
            yield match
        offset = content.find(_TRAILER_START, offset + 1)


def _size_mismatch_cause(byte_count: int, sealed_bytes: int) -> str:
    """Return the cause of damage in a segment whose size differs from the size in its name."""
    if byte_count < sealed_bytes:
        return f"bytes are missing: {byte_count:,} of {sealed_bytes:,} are left"
    return f"bytes were added: the segment has {byte_count:,} and was sealed with {sealed_bytes:,}"


def number_of(path: Path) -> int:
    """Return the position of a segment in the journal's order; 0 for other files."""
    match = _NAME.match(path.name)
    return int(match[2]) if match else 0


def identity_of(name: str) -> str:
    """Return the identity in a segment's file name, such as `000000000012-1a2b3c4d`; an empty string for other files.

    The identity is the number in twelve digits and a random part. The rest of the name changes when the segment is
    sealed, so the store, the loader and backups use only the identity.
    """
    match = _NAME.match(name)
    return match[1] if match else ""


def number_of_identity(identity: str) -> int:
    """Return the number at the beginning of an identity."""
    return int(identity.partition("-")[0])


def sealed_bytes_of(name: str) -> int | None:
    """Return the size with which a segment was sealed; None if the name omits the size, or for other files."""
    match = _NAME.match(name)
    return int(match[3]) if match and match[3] else None


def new_identity(number: int) -> str:
    """Return an identity for a new segment of this number.

    The random part makes the identity unique. So a store that outlives the journal's folder can't mistake a new segment
    for one that is loaded already.
    """
    return f"{number:012d}-{secrets.token_hex(4)}"


def sealed_name(identity: str, byte_count: int) -> str:
    """Return the file name of a sealed segment."""
    return f"{identity}-{byte_count}{SEALED}"


def end_of_last_group(content: bytes) -> int:
    """Return the offset where the last trailer ends; 0 if there is no trailer."""
    return max((match.end() for match in _find_trailers(content)), default=0)
