"""The segments in `damaged/`. The lines of erased people are removed from them; their damage remains."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from embedsink.durable_files import sync_folder, write_durably
from embedsink.erasure.search_files import patterns_of
from embedsink.journal.segment import SEALED, sealed_bytes_of, trailer
from embedsink.loader.damage import is_segment_or_part
from embedsink.privacy.erased_people import context_in, viewers_in
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy

_TRAILER_START = b'{"group":'
_DRAFT_SUFFIX = ".new"
_LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")

SelectLines = Callable[[Sequence[bytes]], set[int]]
"""A function that returns the indexes of the lines to remove."""


def count_lines(folder: Path, select: SelectLines) -> int:
    """Return the number of lines that `remove_lines` would remove.

    Raises:
        OSError: a file can't be read.
    """
    return sum(len(_selected(_lines_of(path), select)) for path in _segments(folder))


def remove_lines(folder: Path, select: SelectLines) -> None:
    """Remove lines from all segments in a folder durably.

    Raises:
        OSError: a file can't be read or written.
    """
    for draft in folder.glob(f"*{_DRAFT_SUFFIX}"):
        draft.unlink()  # of a killed process
    for path in _segments(folder):
        _remove_from(path, select)


def _segments(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*")) if is_segment_or_part(path.name) and path.is_file()]


def _lines_of(path: Path) -> list[bytes]:
    return _LINE.findall(path.read_bytes())


def _selected(lines: Sequence[bytes], select: SelectLines) -> set[int]:
    """Return the indexes of the lines to remove. Trailers are no records."""
    return {index for index in select(lines) if not lines[index].startswith(_TRAILER_START)}


def lines_of_person(person: Person, privacy: Privacy) -> SelectLines:
    """Return a function that selects the journal lines of a person."""
    viewers = frozenset(privacy.stored_forms("viewer", person.viewer))
    tenants = None if person.tenants is None else frozenset(privacy.stored_tenants(sorted(person.tenants)))
    patterns = [pattern for viewer in viewers for pattern in patterns_of(viewer)]

    def is_in_scope(context: Mapping[str, Any]) -> bool:
        return (person.deployments is None or context.get("deployment") in person.deployments) and (
            tenants is None or context.get("tenant") in tenants
        )

    def names_person(line: bytes, record: _Record | None) -> bool:
        if record is None or record.is_directory:
            # It may have the viewer anywhere, and names no deployment and no tenant.
            return not person.is_limited and any(pattern in line for pattern in patterns)
        return (record.viewer in viewers and is_in_scope(record.context)) or (
            not viewers.isdisjoint(viewers_in(record.raw)) and is_in_scope({**context_in(record.raw), **record.context})
        )

    def select(lines: Sequence[bytes]) -> set[int]:
        records = [_record_of(line) for line in lines]
        selected = {index for index, record in enumerate(records) if names_person(lines[index], record)}
        # The other lines of the person's sessions name no viewer.
        sessions = {record.session for index, record in enumerate(records) if record and index in selected}
        shared = {
            record.session for index, record in enumerate(records) if record and record.viewer and index not in selected
        }
        own_sessions = sessions - shared - {None}
        return selected | {index for index, record in enumerate(records) if record and record.session in own_sessions}

    return select


@dataclass(frozen=True, slots=True)
class _Record:
    """A journal line: its context, the rejected input, and the key id and the session; None without a session."""

    is_directory: bool
    context: dict[str, Any]
    viewer: str | None
    raw: bytes
    session: tuple[str, str] | None


def _record_of(line: bytes) -> _Record | None:
    """Return the record in a journal line; None if the line is damaged."""
    try:
        members = orjson.loads(line)
        context = members.get("context") or {}
        viewer, session = context.get("viewer"), context.get("session")
        hash((viewer, session, context.get("deployment"), context.get("tenant")))  # A list raises TypeError.
        raw = (members.get("raw") or "").encode()
        return _Record(
            is_directory=members.get("kind") == "directory",
            context=context,
            viewer=viewer,
            raw=base64.b64decode(raw) if members.get("raw_encoding") == "base64" else raw,
            session=None if session is None else (str(members.get("key_id")), session),
        )
    except (ValueError, AttributeError, TypeError):
        return None


def _remove_from(path: Path, select: SelectLines) -> None:
    """Remove lines from a segment. Trailers of intact groups match the remaining lines."""
    lines = _lines_of(path)
    selected = _selected(lines, select)
    if not selected:
        return
    kept: list[bytes] = []
    group: list[bytes] = []
    remaining: list[bytes] = []
    for index, line in enumerate(lines):
        if not line.startswith(_TRAILER_START):
            group.append(line)
            if index not in selected:
                remaining.append(line)
            continue
        is_intact = line == trailer(b"".join(group))
        kept += [*remaining, trailer(b"".join(remaining)) if is_intact else line]
        group, remaining = [], []
    content = b"".join([*kept, *remaining])
    draft = path.with_name(f"{path.name}{_DRAFT_SUFFIX}")
    write_durably(draft, content)
    target = path.with_name(_renamed(path.name, len(content) - sum(map(len, lines))))
    draft.replace(target)
    if target != path:
        path.unlink()
    sync_folder(path.parent)


def _renamed(name: str, byte_difference: int) -> str:
    """Return the name of a segment whose size has changed. The size in the name still tells what the damage took."""
    sealed_bytes = sealed_bytes_of(name)
    if sealed_bytes is None:
        return name
    return name.replace(f"-{sealed_bytes}{SEALED}", f"-{max(0, sealed_bytes + byte_difference)}{SEALED}")
