"""The segments in `damaged/`. The lines of erased people are removed from them; their damage remains."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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


@dataclass(frozen=True, slots=True)
class _Record:
    """A journal line: its context, the rejected input, and the key id and the session; None without a session."""

    is_directory: bool
    context: dict[str, Any]
    viewer: str | None
    raw: bytes
    session: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class PersonLines:
    """The journal lines of a person.

    Lines without a viewer belong to the person if all lines of their session that name a viewer do. Each file is judged
    alone: lines of the session in other files and in the store don't count. If the request is limited, a line belongs
    to the person only if it names a deployment and a tenant of the request.

    Args:
        viewers: the forms of the viewer: as sent, and hashed.
        deployments: the deployments that the request is limited to; None for all.
        tenants: the forms of the tenants that the request is limited to; None for all.
        patterns: the byte strings that name the viewer in damaged lines and in lines of the directory; empty if the
            request is limited, because such lines name no deployment and no tenant.
    """

    viewers: frozenset[str]
    deployments: tuple[int, ...] | None
    tenants: tuple[str, ...] | None
    patterns: tuple[bytes, ...]

    @classmethod
    def of(cls, person: Person, privacy: Privacy) -> Self:
        """Return the lines of a person."""
        viewers = frozenset(privacy.stored_forms("viewer", person.viewer))
        patterns = () if person.is_limited else (pattern for viewer in viewers for pattern in patterns_of(viewer))
        return cls(
            viewers=viewers,
            # Not sets: a rejection may have a list there, which a set can't look up.
            deployments=None if person.deployments is None else tuple(person.deployments),
            tenants=None if person.tenants is None else tuple(privacy.stored_tenants(sorted(person.tenants))),
            patterns=tuple(patterns),
        )

    def select(self, lines: Sequence[bytes]) -> set[int]:
        """Return the indexes of the person's lines in a file."""
        records = [_record_of(line) for line in lines]
        selected = {index for index, line in enumerate(lines) if self._names_person(line, records[index])}
        readable = [(index, record) for index, record in enumerate(records) if record is not None]
        sessions = {record.session for index, record in readable if index in selected}
        shared = {record.session for index, record in readable if record.viewer is not None and index not in selected}
        own_sessions = sessions - shared - {None}
        return selected | {
            index
            for index, record in readable
            if record.viewer is None and record.session in own_sessions and self._is_in_scope(record.context)
        }

    def _names_person(self, line: bytes, record: _Record | None) -> bool:
        """Return whether a line names the person. Trailers are not records."""
        if line.startswith(_TRAILER_START):
            return False
        if record is None or record.is_directory:
            return any(pattern in line for pattern in self.patterns)
        return (record.viewer in self.viewers and self._is_in_scope(record.context)) or (
            not self.viewers.isdisjoint(viewers_in(record.raw))
            and self._is_in_scope({**context_in(record.raw), **record.context})
        )

    def _is_in_scope(self, context: Mapping[str, Any]) -> bool:
        """Return whether a line with this context is in the scope of the request."""
        return (self.deployments is None or context.get("deployment") in self.deployments) and (
            self.tenants is None or context.get("tenant") in self.tenants
        )


def count_lines(folder: Path, person_lines: PersonLines) -> int:
    """Return the number of lines that `remove_lines` would remove.

    Raises:
        OSError: a file can't be read.
    """
    return sum(len(person_lines.select(_lines_of(path))) for path in _segments(folder))


def remove_lines(folder: Path, person_lines: PersonLines) -> None:
    """Remove the lines of a person from all segments in a folder durably.

    Raises:
        OSError: a file can't be read or written.
    """
    for draft in folder.glob(f"*{_DRAFT_SUFFIX}"):
        draft.unlink()  # of a killed process
    for path in _segments(folder):
        _remove_from(path, person_lines)


def _segments(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*")) if is_segment_or_part(path.name) and path.is_file()]


def _lines_of(path: Path) -> list[bytes]:
    return _LINE.findall(path.read_bytes())


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


def _remove_from(path: Path, person_lines: PersonLines) -> None:
    """Remove lines from a segment. Trailers of intact groups match the remaining lines."""
    lines = _lines_of(path)
    selected = person_lines.select(lines)
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
    """Return the name of a segment whose size has changed.

    The size in the name decreases by the same number of bytes, so that the loss by the damage can still be computed.
    """
    sealed_bytes = sealed_bytes_of(name)
    if sealed_bytes is None:
        return name
    return name.replace(f"-{sealed_bytes}{SEALED}", f"-{max(0, sealed_bytes + byte_difference)}{SEALED}")
