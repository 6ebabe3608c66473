"""Recovery of a journal folder at the start.

Afterwards the folder has only sealed segments, even after a crash or in a copy of a live folder. If the disk is full,
some segments stay open.
"""

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embedsink.durable_files import is_disk_full, move_to_damaged, rename_new, sync_folder, write_durably
from embedsink.journal.segment import (
    OPEN,
    SEALED,
    Damage,
    damage_of_groups,
    has_intact_group,
    identity_of,
    inspect,
    new_identity,
    number_of,
    sealed_name,
)


@dataclass(slots=True)
class Recovery:
    """The results of a recovery.

    Args:
        last_number: the highest segment number in use.
        notes: messages about changes that need no action, such as an incomplete group that was cut off.
        damaged: messages about files in `damaged/` that an operator has to check.
        sealed: the segments that were sealed.
        deferred: open segments that can't be recovered until the disk has space.
        conflicts: pairs of an open segment and an intact sealed one, with the same identity and different content.
    """

    last_number: int = 0
    notes: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    sealed: list[Path] = field(default_factory=list)
    deferred: list[Path] = field(default_factory=list)
    conflicts: list[tuple[Path, Path]] = field(default_factory=list)


def recover(folder: Path, *, damaged_folder: Path, after_number: int = 0) -> Recovery:
    """Recover a journal folder. The operation is idempotent, even after a kill.

    Open segments are sealed; an incomplete group at the end is first moved to `damaged/`. Sealed segments are read
    only if two have the same identity (number and random part): the loader checks each segment before loading.

    Args:
        folder: the folder of the segments; it is created if missing.
        damaged_folder: the folder `damaged/`.
        after_number: the highest segment number that was used before. New segments get higher numbers.

    Raises:
        OSError: a file can't be read, written or renamed. The next attempt continues.
    """
    folder.mkdir(parents=True, exist_ok=True)
    damaged_folder.mkdir(parents=True, exist_ok=True)
    recovery = Recovery()
    for path in sorted(folder.iterdir()):
        if path.suffix in (OPEN, SEALED) and not number_of(path):
            recovery.notes.append(f"journal/{path.name}: is not a segment and is ignored. Move it elsewhere.")
        elif path.suffix == OPEN and path.is_file():
            _recover_or_defer(path, damaged_folder, recovery)
    recovery.notes += [
        f"journal {path.stem}: can't be recovered on a full disk. Recovery continues when space is free."
        for path in recovery.deferred
    ]
    # Include `damaged/`: a segment there may have been the newest.
    paths = [*folder.iterdir(), *damaged_folder.iterdir()]
    recovery.last_number = max([after_number, *map(number_of, paths)])
    # Only now is the next free number known.
    for path, sealed in recovery.conflicts:
        _renumber(path, sealed, recovery)
    _resolve_duplicates(folder, recovery)
    sync_folder(folder)
    return recovery


def recover_deferred(deferred: Sequence[Path], *, damaged_folder: Path) -> Recovery:
    """Recover open segments that an earlier recovery deferred. `last_number` of the result is 0.

    Raises:
        OSError: a file can't be read, written or renamed.
    """
    recovery = Recovery()
    for path in deferred:
        _recover_or_defer(path, damaged_folder, recovery)
    for path, sealed in recovery.conflicts:
        # Don't renumber the segment as `recover` does: the running journal uses the next numbers.
        move_to_damaged(path, damaged=damaged_folder)
        recovery.damaged.append(
            f"journal {path.name}: differs from {sealed.name}, which has the same identity. "
            "The open segment was moved to damaged/."
        )
    recovered = [path for path in deferred if path not in recovery.deferred]
    for folder in {path.parent for path in recovered}:
        sync_folder(folder)
    recovery.notes += [
        f"journal {path.name}: was recovered after disk space became available." for path in recovery.sealed
    ]
    return recovery


def _recover_or_defer(path: Path, damaged_folder: Path, recovery: Recovery) -> None:
    """Recover an open segment, or defer it if the disk is full."""
    try:
        _recover_open(path, damaged_folder, recovery)
    except OSError as error:
        if not is_disk_full(error):
            raise
        recovery.deferred.append(path)


def _recover_open(path: Path, damaged_folder: Path, recovery: Recovery) -> None:
    """Move damage at the end of an open segment to `damaged/`, and seal the segment.

    An empty segment is deleted, and so is a copy of the beginning of a sealed segment. A segment is moved to
    `damaged/` if it has damage that no crash causes.
    """
    content = path.read_bytes()
    if not content:
        path.unlink()
        return
    sealed = _find_sealed_with_prefix(path, content)
    if sealed is not None:
        path.unlink()
        recovery.notes.append(_duplicate_note(path, sealed))
        return
    damage = damage_of_groups(content)
    if damage is None:
        _seal(path, len(content), damaged_folder, recovery)
        return
    # A complete first group is not cut off like a later one, because nothing would remain.
    is_complete_first_group = damage.was_complete and damage.offset == 0
    if is_complete_first_group or has_intact_group(content, damage.offset):
        # A crash leaves only an incomplete last group, so this is a disk failure. An operator decides what is valid.
        move_to_damaged(path, damaged=damaged_folder)
        action = "The segment was moved to damaged/"
        recovery.damaged.append(_damage_message(path, damage, content, state="is damaged", action=action))
        return
    _cut_off_last_group(path, content, damage, damaged_folder, recovery)
    # The rest of the segment is empty or intact.
    _recover_open(path, damaged_folder, recovery)


def _find_sealed_with_prefix(path: Path, content: bytes) -> Path | None:
    """Return the intact sealed version of an open segment; None if the folder has none.

    It has the same identity (the number and the random part of the name) and begins with `content`. A copy of a running
    server's folder has both versions if the server sealed the segment during the copying.
    """
    for sealed in _sealed_files(path.parent, identity=path.stem):
        if _is_intact_and_starts_with(sealed, content):
            return sealed
    return None


def _sealed_files(folder: Path, identity: str) -> list[Path]:
    """Return all sealed files of the segment with this identity.

    There can be more than one if a backup was copied over the folder. Their names then differ in the size.
    """
    paths = [path for path in folder.iterdir() if identity_of(path.name) == identity]
    return [path for path in paths if path.suffix == SEALED and path.is_file()]


def _is_intact_and_starts_with(sealed: Path, content: bytes) -> bool:
    """Return whether a sealed segment is intact and begins with this content."""
    return inspect(sealed).is_intact and sealed.read_bytes().startswith(content)


def _duplicate_note(path: Path, sealed: Path) -> str:
    """Return the message about a deleted copy of the beginning of a sealed segment."""
    return f"journal {path.name}: is a copy of the beginning of {sealed.name}. The copy was deleted."


def _seal(path: Path, byte_count: int, damaged_folder: Path, recovery: Recovery) -> None:
    """Sync an intact open segment, and rename it to the name of a sealed segment.

    If an intact segment has that name already, add both to `recovery.conflicts`. If a damaged segment has that name,
    move it to `damaged/` first.
    """
    # A killed process may leave groups that never reached the disk, and a sealed segment must be durable.
    with path.open("r+b") as file:
        os.fsync(file.fileno())
    target = path.with_name(sealed_name(path.stem, byte_count))
    if os.path.lexists(target):
        if inspect(target).is_intact:
            recovery.conflicts.append((path, target))
            return
        move_to_damaged(target, damaged=damaged_folder)
        recovery.damaged.append(
            f"journal {target.name}: is damaged and was moved to damaged/. The intact {path.name} replaces it."
        )
    rename_new(path, target)
    recovery.sealed.append(target)


def _cut_off_last_group(path: Path, content: bytes, damage: Damage, damaged_folder: Path, recovery: Recovery) -> None:
    """Move everything after the last intact group to a file in `damaged/`.

    A group that was once complete may have been acknowledged, so an operator has to check it. An incomplete group needs
    no action. Only the file of a complete group gets the suffix `.ndjson`, which marks it as not loaded.
    """
    suffix = f".group-{damage.offset}{SEALED}" if damage.was_complete else f".tail-{damage.offset}"
    last_group = content[damage.offset :]
    # Copy first, then truncate: a kill in between loses nothing.
    write_durably(_path_for_group(last_group, damaged_folder / f"{path.stem}{suffix}"), last_group)
    with path.open("r+b") as file:
        file.truncate(damage.offset)
        os.fsync(file.fileno())
    if damage.was_complete:
        action = "It may have been acknowledged. It was cut off and moved to damaged/"
        recovery.damaged.append(_damage_message(path, damage, content, state="is damaged", action=action))
    else:
        action = "It was cut off and moved to damaged/"
        recovery.notes.append(_damage_message(path, damage, content, state="is torn", action=action))


def _path_for_group(group: bytes, path: Path) -> Path:
    """Return the path, or `<path>.1`, `<path>.2`, … if a file with another content has that name.

    A file with only the beginning of the group is reused: it is from a recovery that was killed while writing it.
    """
    candidate = path
    for count in itertools.count(1):
        if not candidate.exists() or group.startswith(candidate.read_bytes()):
            break
        candidate = path.with_name(f"{path.name}.{count}")
    return candidate


def _damage_message(path: Path, damage: Damage, content: bytes, *, state: str, action: str) -> str:
    """Return a message about a damaged group.

    Args:
        path: the segment.
        damage: the position of the group, and the cause.
        content: the bytes of the segment.
        state: "is damaged" or "is torn".
        action: what recovery did with the group, as sentences without the last full stop.
    """
    bytes_to_end = len(content) - damage.offset
    return (
        f"journal {path.stem}: the group at offset {damage.offset:,} {state} ({bytes_to_end:,} bytes; {damage.cause}). "
        f"{action}."
    )


def _resolve_duplicates(folder: Path, recovery: Recovery) -> None:
    """Leave one sealed file for each identity (the number and the random part of the name).

    A backup that was copied over the folder can add a second file. Copies of the beginning of the longest file are
    deleted. Files with other content get a new number.
    """
    # The identity of a file that is not a segment is empty.
    counts = Counter(identity_of(path.name) for path in folder.iterdir() if path.suffix == SEALED)
    duplicates = sorted(identity for identity, count in counts.items() if identity != "" and count > 1)
    for identity in duplicates:
        files = _sealed_files(folder, identity)
        longest, *shorter = sorted(files, key=lambda path: path.stat().st_size, reverse=True)
        for path in shorter:
            if _is_intact_and_starts_with(longest, path.read_bytes()):
                path.unlink()
                recovery.notes.append(_duplicate_note(path, longest))
            else:
                _renumber(path, longest, recovery)


def _renumber(path: Path, namesake: Path, recovery: Recovery) -> None:
    """Give a segment the next number, so that it is loaded in addition to `namesake`, which has the same identity.

    If the segment is open, it is sealed too; `_seal` has synced it. An event in both counts once if it has an id.
    """
    recovery.last_number += 1
    identity = new_identity(recovery.last_number)
    if path.suffix == OPEN:
        name = sealed_name(identity, path.stat().st_size)
    else:
        name = path.name.replace(identity_of(path.name), identity)
    target = path.with_name(name)
    rename_new(path, target)
    recovery.notes.append(f"journal {path.name}: differs from {namesake.name}. The former is loaded as {target.name}.")
