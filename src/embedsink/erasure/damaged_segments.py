"""The segments in `damaged/`. The lines of erased people are removed from them; their damage remains."""

import base64
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from embedsink.durable_files import sync_folder, write_durably
from embedsink.erasure.search_files import patterns_of
from embedsink.journal.segment import SEALED, sealed_bytes_of, trailer
from embedsink.loader.damage import is_segment_or_part
from embedsink.privacy.erased_people import viewers_in
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy

_TRAILER_START = b'{"group":'
_DRAFT_SUFFIX = ".new"
_LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")

SelectLines = Callable[[Sequence[bytes]], set[int]]
"""A function that returns the indexes of the lines to remove."""


def remove_lines(folder: Path, select: SelectLines) -> int:
    """Remove lines from all segments in a folder durably. Return their number.

    Raises:
        OSError: a file can't be read or written.
    """
    if not folder.is_dir():
        return 0
    count = 0
    for path in sorted(folder.iterdir()):
        if path.name.endswith(_DRAFT_SUFFIX):
            path.unlink()  # of a killed process
        elif is_segment_or_part(path.name) and path.is_file():
            count += _remove_from(path, select)
    return count


def lines_of_person(person: Person, privacy: Privacy) -> SelectLines:
    """Return a function that selects the journal lines of a person."""
    viewers = frozenset(privacy.stored_forms("viewer", person.viewer))
    tenants = None if person.tenants is None else frozenset(privacy.stored_tenants(sorted(person.tenants)))
    # A line that is not JSON is removed if it has the viewer as a text of its own.
    patterns = [pattern for viewer in viewers for pattern in patterns_of(viewer)]

    def is_in_scope(context: dict[str, Any]) -> bool:
        return (person.deployments is None or context.get("deployment") in person.deployments) and (
            tenants is None or context.get("tenant") in tenants
        )

    def names_person(line: bytes, record: dict[str, Any] | None) -> bool:
        if record is None:
            return any(pattern in line for pattern in patterns)
        if record.get("kind") == "directory":
            return not person.is_limited and any(pattern in line for pattern in patterns)
        context = record.get("context") or {}
        raw = record.get("raw") or ""
        content = base64.b64decode(raw) if record.get("raw_encoding") == "base64" else raw.encode()
        return is_in_scope(context) and (
            context.get("viewer") in viewers or not viewers.isdisjoint(viewers_in(content))
        )

    def select(lines: Sequence[bytes]) -> set[int]:
        records = [_record_of(line) for line in lines]
        selected = {index for index, record in enumerate(records) if names_person(lines[index], record)}
        # The other lines of the person's sessions name no viewer.
        own, shared = set(), set()
        for index, record in enumerate(records):
            session = _session_of(record)
            if index in selected:
                own.add(session)
            elif record is not None and (record.get("context") or {}).get("viewer") is not None:
                shared.add(session)
        own_sessions = own - shared - {None}
        return selected | {index for index, record in enumerate(records) if _session_of(record) in own_sessions}

    return select


def _record_of(line: bytes) -> dict[str, Any] | None:
    """Return the record in a journal line; None if the line is damaged."""
    try:
        record = orjson.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _session_of(record: dict[str, Any] | None) -> tuple[str, str] | None:
    """Return the key id and the session of a record; None if it has no session."""
    session = None if record is None else (record.get("context") or {}).get("session")
    return None if record is None or session is None else (str(record.get("key_id")), session)


def _remove_from(path: Path, select: SelectLines) -> int:
    """Remove lines from a segment, and return their number. Trailers of intact groups match the remaining lines."""
    lines = _LINE.findall(path.read_bytes())
    selected = {index for index in select(lines) if not lines[index].startswith(_TRAILER_START)}
    if not selected:
        return 0
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
    return len(selected)


def _renamed(name: str, byte_difference: int) -> str:
    """Return the name of a segment whose size has changed. The size in the name still tells what the damage took."""
    sealed_bytes = sealed_bytes_of(name)
    if sealed_bytes is None:
        return name
    return name.replace(f"-{sealed_bytes}{SEALED}", f"-{max(0, sealed_bytes + byte_difference)}{SEALED}")
