"""Recovery of a journal folder at start: after a crash or a partial copy, only intact, sealed segments remain."""

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
    has_intact_group,
    identity_of,
    inspect,
    number_of,
    sealed_name,
)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Recovery:
    """The results of a recovery.

    Args:
        last_number: the highest segment number in use.
        notes: messages about changes that need no action, such as a torn tail that was cut off.
        damaged: messages about files in `damaged/` that an operator has to check.
        deferred: open segments that can't be recovered until the disk has space.
        conflicts: open segments, each with an intact sealed segment of the same name and other content.
    """

    last_number: int = 0
    notes: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    deferred: list[Path] = field(default_factory=list)
    conflicts: list[tuple[Path, Path]] = field(default_factory=list)


def recover(folder: Path, *, damaged: Path, after_number: int = 0) -> Recovery:
    """Recover a journal folder. The operation is idempotent, even after a kill.

    A torn tail of an open segment is moved to `damaged`, and the segment is sealed. Sealed segments are read only if
    two have the same identity: the loader checks each segment before it loads it.

    Args:
        folder: the folder of the segments; it is created if missing.
        damaged: the folder for damaged files.
        after_number: the highest number that the store knows.

    Raises:
        OSError: a file can't be read, written or renamed. The next attempt continues.
    """
    folder.mkdir(parents=True, exist_ok=True)
    damaged.mkdir(parents=True, exist_ok=True)
    recovery = Recovery()
    for path in sorted(folder.iterdir()):
        if path.suffix in (OPEN, SEALED) and not number_of(path):
            recovery.notes.append(f"journal/{path.name}: is not a segment and is ignored. Move it elsewhere.")
        elif path.suffix == OPEN and path.is_file():
            _recover_or_defer(path, damaged, recovery)
    # Count the numbers in `damaged` too: a segment there may have been the newest.
    in_use = max(map(number_of, [*folder.iterdir(), *damaged.iterdir()]), default=0)
    recovery.last_number = max(in_use, after_number)
    for path, sealed in recovery.conflicts:
        _renumber(path, sealed, recovery)
    _resolve_duplicates(folder, recovery)
    sync_folder(folder)
    return recovery


def recover_deferred(recovery: Recovery, *, damaged: Path) -> list[Path]:
    """Retry the segments in `recovery.deferred`. Those that still lack space stay there.

    Returns:
        The segments that were sealed.

    Raises:
        OSError: a file can't be read, written or renamed.
    """
    deferred, recovery.deferred, recovery.conflicts = recovery.deferred, [], []
    for path in deferred:
        _recover_or_defer(path, damaged, recovery)
    for path, sealed in recovery.conflicts:  # The running journal uses the next numbers, so don't renumber.
        move_to_damaged(path, damaged=damaged)
        recovery.damaged.append(
            f"journal {path.name}: differs from {sealed.name}, which has the same name. It was moved to damaged/."
        )
    recovered = [path for path in deferred if path not in recovery.deferred]
    for folder in {path.parent for path in recovered}:
        sync_folder(folder)
    return [sealed for path in recovered for sealed in _sealed_files(path.parent, path.stem)]


def _recover_or_defer(path: Path, damaged: Path, recovery: Recovery) -> None:
    try:
        _recover_open(path, damaged, recovery)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        recovery.deferred.append(path)
        note = f"journal {path.stem}: can't be recovered on a full disk. Recovery continues when space is free."
        if note not in recovery.notes:
            recovery.notes.append(note)


def _recover_open(path: Path, damaged: Path, recovery: Recovery) -> None:
    content = path.read_bytes()
    damage = find_damage(content)
    if not content:
        path.unlink()
    elif (sealed := _find_superset(path, content)) is not None:
        path.unlink()
        recovery.notes.append(_duplicate_note(path, sealed))
    elif damage is None:
        _seal(path, len(content), damaged, recovery)
    elif has_intact_group(content, damage.end) or (damage.was_complete and damage.end == 0):
        # This is a disk failure, not a torn tail, so an operator has to decide which part is valid.
        move_to_damaged(path, damaged=damaged)
        recovery.damaged.append(_damage_message(path, damage, content, "is damaged", "The segment was moved to"))
    else:
        _cut(path, content, damage, damaged, recovery)
        _recover_open(path, damaged, recovery)


def _find_superset(path: Path, content: bytes) -> Path | None:
    """Return the sealed segment of the same identity that begins with this content, as in a copy of a live folder."""
    return next((sealed for sealed in _sealed_files(path.parent, path.stem) if _starts_with(sealed, content)), None)


def _sealed_files(folder: Path, identity: str) -> list[Path]:
    """Return the sealed files of one identity."""
    paths = [path for path in folder.iterdir() if path.suffix == SEALED and identity_of(path.name) == identity]
    return [path for path in paths if path.is_file()]


def _starts_with(sealed: Path, content: bytes) -> bool:
    """Return whether a sealed segment is intact and begins with this content."""
    return inspect(sealed).is_intact and sealed.read_bytes().startswith(content)


def _duplicate_note(path: Path, sealed: Path) -> str:
    return f"journal {path.name}: is a copy of the beginning of {sealed.name}. The copy was deleted."


def _seal(path: Path, byte_count: int, damaged: Path, recovery: Recovery) -> None:
    # A killed process may leave groups that never reached the disk, and a sealed segment must be durable.
    with path.open("r+b") as file:
        os.fsync(file.fileno())
    target = path.with_name(sealed_name(path.stem, byte_count))
    try:
        rename_new(path, target)
    except FileExistsError:
        if inspect(target).is_intact:
            recovery.conflicts.append((path, target))
            return
        move_to_damaged(target, damaged=damaged)
        recovery.damaged.append(
            f"journal {target.name}: is damaged and was moved to damaged/. The intact {path.name} replaces it."
        )
        rename_new(path, target)


def _cut(path: Path, content: bytes, damage: Damage, damaged: Path, recovery: Recovery) -> None:
    """Move everything after the last intact group to `damaged`."""
    suffix = f".group-{damage.end}{SEALED}" if damage.was_complete else f".tail-{damage.end}"
    # Copy first, then cut: a kill in between only leaves the same tail twice.
    tail = content[damage.end :]
    write_durably(_tail_path(tail, damaged / f"{path.stem}{suffix}"), tail)
    with path.open("r+b") as file:
        file.truncate(damage.end)
        os.fsync(file.fileno())
    if damage.was_complete:
        action = "It may have been acknowledged. It was cut off and moved to"
        recovery.damaged.append(_damage_message(path, damage, content, "is damaged", action))
    else:
        recovery.notes.append(_damage_message(path, damage, content, "is torn", "It was cut off and moved to"))


def _tail_path(tail: bytes, path: Path) -> Path:
    """Return a free path: the given one or a numbered one. A partial file of a killed recovery counts as free."""
    names = (f"{path.name}.{count}" if count else path.name for count in itertools.count())
    candidates = map(path.with_name, names)
    return next(
        candidate for candidate in candidates if not candidate.exists() or tail.startswith(candidate.read_bytes())
    )


def _damage_message(path: Path, damage: Damage, content: bytes, state: str, action: str) -> str:
    count = len(content) - damage.end
    return (
        f"journal {path.stem}: the group at offset {damage.end:,} {state} ({count:,} bytes; {damage.cause}). "
        f"{action} damaged/."
    )


def _resolve_duplicates(folder: Path, recovery: Recovery) -> None:
    """Leave one sealed file per identity. A backup that was restored over a folder can add a second one."""
    count = Counter(identity_of(path.name) for path in folder.iterdir() if path.suffix == SEALED)
    for identity in sorted(identity for identity in count if identity and count[identity] > 1):
        files = _sealed_files(folder, identity)
        longest, *shorter = sorted(files, key=lambda path: path.stat().st_size, reverse=True)
        for path in shorter:
            if _starts_with(longest, path.read_bytes()):
                path.unlink()
                recovery.notes.append(_duplicate_note(path, longest))
            else:
                _renumber(path, longest, recovery)


def _renumber(path: Path, other: Path, recovery: Recovery) -> None:
    """Give a segment a new identity, so that both are loaded. Events have ids, so none counts twice."""
    recovery.last_number += 1
    identity = f"{recovery.last_number:012d}-{secrets.token_hex(4)}"
    is_open = path.suffix == OPEN
    name = (
        sealed_name(identity, path.stat().st_size) if is_open else path.name.replace(identity_of(path.name), identity)
    )
    target = path.with_name(name)
    rename_new(path, target)
    recovery.notes.append(f"journal {path.name}: differs from {other.name}. It is loaded as {target.name}.")
