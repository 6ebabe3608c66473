"""The verification of the hash chain of the audit trail."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from embedsink.audit.entry import Action
from embedsink.audit.trail import audit_files, first_number_left, parse_entry

PROBLEMS_MAX = 20


@dataclass(slots=True)
class Verification:
    """The result of a verification.

    Args:
        entry_count: the number of entries.
        last_number: the number of the last entry; 0 without one.
        last_digest: the SHA-256 of the last line, in hex; None without one.
        incomplete_count: the number of lines that a crash left incomplete.
        problems: sentences about changed, removed or foreign lines.
    """

    entry_count: int = 0
    last_number: int = 0
    last_digest: str | None = None
    incomplete_count: int = 0
    problems: list[str] = field(default_factory=list)


def verify_trail(folder: Path, *, today: date) -> Verification:
    """Verify all files of an audit trail. A server may append meanwhile.

    The link of the oldest line is not checked, because the retention deletes whole files. But an entry must record the
    deletion.

    Raises:
        OSError: a file can't be read.
    """
    files = audit_files(folder)
    result = _verify_files(files, today=today)
    if not result.entry_count and any(folder.glob("recorded-*.json")):
        _add(result, f"{folder.name}: has no entries, although changes were recorded. Files were removed.")
    # The retention may have deleted files meanwhile, which leaves gaps.
    has_changed = audit_files(folder) != files
    return verify_trail(folder, today=today) if result.problems and has_changed else result


def _verify_files(files: Sequence[Path], *, today: date) -> Verification:
    """Verify these files of an audit trail, the oldest first."""
    result = Verification()
    first_number = 0
    expected_first_number: int | None = 1  # as the newest `audit_expired` entry has it
    incomplete_place = None  # of the previous line, if it is not an entry
    for place, line in _numbered_lines(files):
        entry = parse_entry(line)
        is_recovery = entry is not None and entry.get("action") == Action.AUDIT_RECOVERED
        if incomplete_place is not None and not is_recovery:
            _add(result, f"{incomplete_place}: is not an entry, and no entry records a crash. It was changed.")
        incomplete_place = place if entry is None else None
        result.incomplete_count += entry is None
        if entry is not None:
            _check_entry(result, place, entry)
            result.entry_count += 1
            result.last_number = entry["number"]
            first_number = first_number or entry["number"]
            if entry.get("action") == Action.AUDIT_EXPIRED:
                expected_first_number = first_number_left(entry)
                _check_missing(result, place, entry)
        result.last_digest = sha256(line).hexdigest()
    if expected_first_number is not None and first_number > expected_first_number:
        _add(
            result,
            f"{files[0].name}: begins with entry {first_number:,}, and no entry records the deletion of all entries "
            "before it. Lines or files were removed.",
        )
    if files and files[-1].stem > (today + timedelta(days=1)).isoformat():
        result.problems.append(f"{files[-1].name}: is from the future. Correct the clock.")
    return result


def _numbered_lines(files: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield each line with its file name and line number, such as `2026-11-27.ndjson:3`."""
    for path in files:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue  # The retention has just deleted it.
        for number, line in enumerate(content.removesuffix(b"\n").split(b"\n") if content else [], 1):
            yield f"{path.name}:{number}", line


def _check_entry(result: Verification, place: str, entry: dict[str, Any]) -> None:
    """Compare the number and the link of an entry with the line before it."""
    if result.last_digest is None:
        return  # the oldest line
    if entry.get("previous") != result.last_digest:
        _add(result, f"{place}: does not follow the line before it. A line was changed or removed there.")
    elif result.last_number and entry["number"] != result.last_number + 1:
        _add(result, f"{place}: has the number {entry['number']:,} instead of {result.last_number + 1:,}.")


def _check_missing(result: Verification, place: str, entry: dict[str, Any]) -> None:
    """Report the entries that were missing at an expiry, as its entry says."""
    detail = entry.get("detail")
    if not isinstance(detail, dict):
        _add(result, f"{place}: has no valid detail. It was changed.")
    elif "missing" in detail:
        _add(result, f"{place}: when it was written, entries were missing (first and last: {detail['missing']}).")


def _add(result: Verification, problem: str) -> None:
    if len(result.problems) < PROBLEMS_MAX:
        result.problems.append(problem)
