"""Brings a journal folder back to whole, sealed segments at the start, after a crash or a copy laid over it."""

import errno
import itertools
import os
import secrets
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from embedsink.durable_files import move_to_damaged, rename_new, sync_folder, write_durably
from embedsink.journal.segment import (
    OPEN,
    SEALED,
    Damage,
    find_damage,
    identity_of,
    inspect,
    number_of,
    sealed_name,
    whole_group_follows,
)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Recovery:
    """What a start found, one sentence for each thing.

    Args:
        last_number: the last segment number in use.
        notes: what was done and needs nobody, such as a torn tail that was cut off.
        damaged: what was moved to `damaged/` and waits for a person.
        left: open segments that could not be recovered yet for lack of room.
        twins: open segments, each with a whole sealed one of its name that has other content.
    """

    last_number: int = 0
    notes: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    left: list[Path] = field(default_factory=list)
    twins: list[tuple[Path, Path]] = field(default_factory=list)


def recover(folder: Path, *, damaged: Path, after_number: int = 0) -> Recovery:
    """Bring a journal folder back to whole groups. Doing it again, or being killed in it, changes nothing.

    Open segments lose a torn tail, which is kept in `damaged`; then they are sealed. Sealed segments are read only if
    two have the same identity: the loader checks each before it loads it.

    Args:
        folder: where the segments are; it is made if missing.
        damaged: where damaged files go.
        after_number: the highest number that the store knows.

    Raises:
        OSError: a file can't be read, written or renamed. What is there is recovered by the next try.
    """
    folder.mkdir(parents=True, exist_ok=True)
    damaged.mkdir(parents=True, exist_ok=True)
    recovery = Recovery()
    for path in sorted(folder.iterdir()):
        if path.suffix in (OPEN, SEALED) and not number_of(path):
            recovery.notes.append(f"journal/{path.name}: is not a segment and is ignored. Move it elsewhere.")
        elif path.suffix == OPEN and path.is_file():
            _try_to_recover(path, damaged, recovery)
    # Numbers in `damaged` count too: a segment that was set aside was once the newest.
    in_use = max(map(number_of, [*folder.iterdir(), *damaged.iterdir()]), default=0)
    recovery.last_number = max(in_use, after_number)
    for path, sealed in recovery.twins:
        _renumber(path, sealed, recovery)
    _settle_copies(folder, recovery)
    sync_folder(folder)
    return recovery


def recover_left(recovery: Recovery, *, damaged: Path) -> list[Path]:
    """Try again what had no room at the start; what still has none stays in `left`.

    Returns:
        The segments that were sealed.

    Raises:
        OSError: a file can't be read, written or renamed.
    """
    left, recovery.left, recovery.twins = recovery.left, [], []
    for path in left:
        _try_to_recover(path, damaged, recovery)
    for path, sealed in recovery.twins:  # The server uses the next numbers itself by now.
        move_to_damaged(path, damaged=damaged)
        recovery.damaged.append(f"journal {path.name}: has other content than {sealed.name}. It is kept in damaged/.")
    done = [path for path in left if path not in recovery.left]
    for folder in {path.parent for path in done}:
        sync_folder(folder)
    return [sealed for path in done for sealed in _sealed_in(path.parent, path.stem)]


def _try_to_recover(path: Path, damaged: Path, recovery: Recovery) -> None:
    try:
        _recover_open(path, damaged, recovery)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        recovery.left.append(path)
        note = f"journal {path.stem}: can't be recovered on a full disk. It waits for room."
        if note not in recovery.notes:
            recovery.notes.append(note)


def _recover_open(path: Path, damaged: Path, recovery: Recovery) -> None:
    content = path.read_bytes()
    damage = find_damage(content)
    if not content:
        path.unlink()
    elif (sealed := _sealed_with(path, content)) is not None:
        path.unlink()
        recovery.notes.append(_is_a_copy(path, sealed))
    elif damage is None:
        _seal(path, len(content), damaged, recovery)
    elif whole_group_follows(content, damage.end) or (damage.was_whole and damage.end == 0):
        # No torn tail, but a failed disk: a person has to decide what is good.
        move_to_damaged(path, damaged=damaged)
        recovery.damaged.append(_sentence(path, damage, content, "is damaged", "The segment is set aside"))
    else:
        _cut(path, content, damage, damaged, recovery)
        _recover_open(path, damaged, recovery)


def _sealed_with(path: Path, content: bytes) -> Path | None:
    """The sealed segment of the same identity that begins with this content: what a copy of a live folder leaves."""
    return next((sealed for sealed in _sealed_in(path.parent, path.stem) if _begins_with(sealed, content)), None)


def _sealed_in(folder: Path, identity: str) -> list[Path]:
    """The sealed files of one identity."""
    found = [path for path in folder.iterdir() if path.suffix == SEALED and identity_of(path.name) == identity]
    return [path for path in found if path.is_file()]


def _begins_with(sealed: Path, content: bytes) -> bool:
    """Whether a sealed segment is whole and begins with this content."""
    return inspect(sealed).is_whole and sealed.read_bytes().startswith(content)


def _is_a_copy(path: Path, sealed: Path) -> str:
    return f"journal {path.name}: is a copy of the beginning of {sealed.name}. The copy was deleted."


def _seal(path: Path, byte_count: int, damaged: Path, recovery: Recovery) -> None:
    # A killed program may have left whole groups that never reached the disk, and a sealed segment is never torn.
    with path.open("r+b") as file:
        os.fsync(file.fileno())
    target = path.with_name(sealed_name(path.stem, byte_count))
    try:
        rename_new(path, target)
    except FileExistsError:
        if inspect(target).is_whole:
            recovery.twins.append((path, target))
            return
        move_to_damaged(target, damaged=damaged)
        recovery.damaged.append(
            f"journal {target.name}: is damaged, and kept in damaged/. {path.name} is whole and takes its place."
        )
        rename_new(path, target)


def _cut(path: Path, content: bytes, damage: Damage, damaged: Path, recovery: Recovery) -> None:
    """Keep what follows the last whole group in `damaged`, and cut it off."""
    suffix = f".group-{damage.end}{SEALED}" if damage.was_whole else f".tail-{damage.end}"
    # Keep first, cut second: a kill in between only means that the same tail is kept twice.
    tail = content[damage.end :]
    write_durably(_path_for(tail, damaged / f"{path.stem}{suffix}"), tail)
    with path.open("r+b") as file:
        file.truncate(damage.end)
        os.fsync(file.fileno())
    if damage.was_whole:
        done = "It may have been acknowledged. It is cut off"
        recovery.damaged.append(_sentence(path, damage, content, "is damaged", done))
    else:
        recovery.notes.append(_sentence(path, damage, content, "is torn", "Cut off"))


def _path_for(tail: bytes, path: Path) -> Path:
    """Return the path, or with a number behind it the first that is free or has what a killed recovery wrote of it."""
    names = (f"{path.name}.{count}" if count else path.name for count in itertools.count())
    paths = map(path.with_name, names)
    return next(found for found in paths if not found.exists() or tail.startswith(found.read_bytes()))


def _sentence(path: Path, damage: Damage, content: bytes, what: str, done: str) -> str:
    count = len(content) - damage.end
    return (
        f"journal {path.stem}: the group at offset {damage.end:,} {what} ({count:,} bytes; {damage.why}). "
        f"{done} and kept in damaged/."
    )


def _settle_copies(folder: Path, recovery: Recovery) -> None:
    """Leave one sealed file an identity: a restored backup that was laid over a folder can bring another."""
    count = Counter(identity_of(path.name) for path in folder.iterdir() if path.suffix == SEALED)
    for identity in sorted(identity for identity in count if identity and count[identity] > 1):
        found = _sealed_in(folder, identity)
        longest, *shorter = sorted(found, key=lambda path: path.stat().st_size, reverse=True)
        for path in shorter:
            if _begins_with(longest, path.read_bytes()):
                path.unlink()
                recovery.notes.append(_is_a_copy(path, longest))
            else:
                _renumber(path, longest, recovery)


def _renumber(path: Path, other: Path, recovery: Recovery) -> None:
    """Give a segment a new identity, so that it is loaded beside the other. Events have ids, so they count once."""
    recovery.last_number += 1
    identity = f"{recovery.last_number:012d}-{secrets.token_hex(4)}"
    is_open = path.suffix == OPEN
    name = (
        sealed_name(identity, path.stat().st_size) if is_open else path.name.replace(identity_of(path.name), identity)
    )
    target = path.with_name(name)
    rename_new(path, target)
    recovery.notes.append(f"journal {path.name}: has other content than {other.name}. It is loaded as {target.name}.")
