"""Read-only checks of a data folder: versions, disk space, snapshot, rows, dashboards, journal, keys and audit."""

import platform
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from embedsink import __version__
from embedsink.audit.changes import secret_file_of
from embedsink.audit.verify import verify_trail
from embedsink.auth.identity import read_identity
from embedsink.auth.key_store import KeyStore
from embedsink.dashboards.files import dashboard_files, read_dashboards
from embedsink.dashboards.lint import lint
from embedsink.data_folder import LOSS_NOTE_PREFIX, DataFolder, nested_message
from embedsink.durable_files import free_bytes
from embedsink.erasure.request import ErasureFolder
from embedsink.errors import EmbedsinkError
from embedsink.journal.last_sealed import LastSealed
from embedsink.journal.segment import OPEN, SEALED, identity_of, inspect, number_of, number_of_identity
from embedsink.key_scope import EVERYTHING
from embedsink.loader.copy_file import verify
from embedsink.loader.damage import describe_gaps, find_gaps, is_segment_or_part, read_loss_note, segment_numbers
from embedsink.privacy.internal import read_internal_people
from embedsink.privacy.rules import Rule, read_privacy_rules
from embedsink.reports.catalog import all_reports, missing_reports_warning
from embedsink.settings import Settings
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.schema import check_duckdb_version
from embedsink.store.snapshot_reader import SnapshotReader, open_snapshot
from embedsink.store.sql_files import read_sql

State = Literal["ok", "problem"]
_ADVICE_PREFIX = "What to do: "
_NEW_SNAPSHOT = "Create a new snapshot: start the server once, or run `embedsink snapshot`."
_LEDGER_SQL = "select count(*) as row_count, coalesce(sum(lost_count), 0)::bigint as lost_count from loaded_segment"
# The newest segment, the newest compacted segment, and the segments from a given one on that have rows of their own.
_SEGMENTS_SQL = """
select
    max(segment) as newest,
    max(segment) filter (first_number is not null) as newest_compacted,
    list(segment) filter (segment >= '{lowest_name}' and first_number is null) as listed
from loaded_segment
"""


class Finding(NamedTuple):
    """The result of a check."""

    check: str
    state: State
    details: str


def _ok(check: str, details: str) -> Finding:
    return Finding(check, "ok", details)


def _problem(check: str, details: str) -> Finding:
    return Finding(check, "problem", details)


def examine(folder: DataFolder, settings: Settings) -> list[Finding]:
    """Run every check on a data folder. This does not disturb a running server."""
    return [
        _examine_versions(),
        _examine_disk_space(folder, settings),
        _measure_files(folder),
        *_examine_checksums("snapshot blocks", folder.snapshot),
        *_examine_checksums("previous snapshot", folder.previous),
        *_examine_snapshot(folder),
        _examine_journal(folder),
        _examine_damaged(folder),
        _examine_folder(folder),
        _examine_keys(folder),
        _examine_identity(folder),
        _examine_privacy(folder),
        _examine_audit(folder),
    ]


def _examine_versions() -> Finding:
    """Check that the version of DuckDB is supported."""
    versions = f"embedsink {__version__}, Python {platform.python_version()}"
    try:
        check_duckdb_version()
    except EmbedsinkError as error:
        return _problem("versions", f"{versions}. {error}")
    return _ok("versions", versions)


def _examine_disk_space(folder: DataFolder, settings: Settings) -> Finding:
    """Check that the disk has space for two copies of the store: the next snapshot, and a rebuild."""
    store_bytes = folder.store.stat().st_size if folder.store.exists() else 0
    needed_bytes = settings.free_bytes_min + 2 * store_bytes
    available_bytes = free_bytes(folder.path)
    message = f"{available_bytes:,} bytes are free. The next snapshot and a rebuild need {needed_bytes:,}."
    if available_bytes < needed_bytes:
        return _problem("disk space", f"{message} Free space on the disk.")
    return _ok("disk space", message)


def _measure_files(folder: DataFolder) -> Finding:
    """Measure the files and folders that grow."""
    paths = {
        "journal": folder.journal,
        "store": folder.store,
        "spill files": folder.store.with_suffix(".spill"),
        "snapshot": folder.snapshot,
        "previous snapshot": folder.previous,
        "damaged": folder.damaged,
        "keys": folder.keys,
        "audit": folder.audit,
    }
    sizes = ", ".join(f"{name} {_byte_count(path):,}" for name, path in paths.items())
    return _ok("sizes", f"bytes: {sizes}.")


def _byte_count(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    paths = path.rglob("*") if path.is_dir() else [path]
    total = 0
    for file in paths:
        with suppress(FileNotFoundError):  # A server may have deleted the file meanwhile.
            total += 0 if file.is_dir() else file.stat().st_size
    return total


def _examine_checksums(check: str, snapshot: Path) -> Iterator[Finding]:
    """Verify the checksums of a snapshot on the disk. Yield nothing for a missing file.

    `_examine_snapshot` reports a missing `analytics.duckdb`. The previous snapshot may be missing.
    """
    try:
        damage = verify(snapshot)  # a description; None for an intact file
    except FileNotFoundError:
        return
    except (OSError, StoreRefused) as error:
        yield _problem(check, f"{snapshot.name}: can't be read ({error}). Check the disk.")
        return
    if damage:
        advice = "A server replaces it after its next load or start. Check the disk."
        yield _problem(check, f"{snapshot.name}: is damaged ({damage}). {advice}")
    else:
        yield _ok(check, f"{snapshot.name}: every checksum matches.")


def _examine_snapshot(folder: DataFolder) -> Iterator[Finding]:
    """Check the reports and the rows of the snapshot. Check the dashboards, even if the snapshot can't be opened."""
    try:
        reader = open_snapshot(folder.snapshot, EVERYTHING.variables())
    except EmbedsinkError as error:
        yield _problem("snapshot", str(error))
        yield _examine_dashboards(folder, None)
        return
    with reader:
        yield _examine_reports(folder.snapshot, reader)
        yield from _examine_all_rows(reader)
        yield _examine_dashboards(folder, reader)


def _examine_reports(snapshot: Path, reader: SnapshotReader) -> Finding:
    """Report the age and the size of the snapshot, and check that all reports are in the snapshot."""
    status = snapshot.stat()
    age_s = time.time() - status.st_mtime
    message = f"is {age_s:,.0f} s old and has {status.st_size:,} bytes."
    missing = missing_reports_warning(reader)
    if missing:
        return _problem("snapshot", f"{message} {missing}")
    return _ok("snapshot", message)


def _examine_all_rows(reader: SnapshotReader) -> Iterator[Finding]:
    """Check the ledger of loaded segments, and run all checks of `sql/checks`.

    A snapshot of an older version may lack tables that these queries read, so its rows are reported as not checked.
    """
    if _has_older_schema(reader):
        message = "are not checked, because an older version of embedsink created the snapshot."
        yield _problem("rows", f"{message} {_NEW_SNAPSHOT}")
        return
    yield _examine_ledger(reader)
    for check, sql in read_sql("checks").items():
        yield _examine_rows(reader, check, sql)


def _has_older_schema(reader: SnapshotReader) -> bool:
    """Return whether the snapshot lacks migrations of this embedsink."""
    # The names begin with a number of four digits, so the newest migration has the greatest name.
    last_applied, _ = reader.first_row("select max(name) as name from migration")
    newest_name = max(read_sql("migrations"))
    return bool(last_applied["name"] < newest_name)


def _examine_ledger(reader: SnapshotReader) -> Finding:
    """Report how many rows the ledger of loaded journal segments has, and how many envelopes were lost."""
    try:
        ledger, _ = reader.first_row(_LEDGER_SQL)
    except EmbedsinkError as error:
        return _problem("ledger", f"can't be read ({error}). Start a server, which creates a new snapshot.")
    message = f"{ledger['row_count']:,} rows; {ledger['lost_count']:,} envelopes were lost to damaged files."
    return _ok("ledger", message)


def _examine_rows(reader: SnapshotReader, check: str, sql: str) -> Finding:
    """Run a query of `sql/checks`, which selects invalid rows. Any row is a problem."""
    try:
        first_row, row_count = reader.first_row(sql)
    except EmbedsinkError as error:
        return _problem(check, f"could not be checked ({error}). {_NEW_SNAPSHOT}")
    if row_count == 0:
        return _ok(check, "")
    example = ", ".join(f"{name} {value}" for name, value in first_row.items())
    return _problem(check, f"invalid rows: {row_count:,}. The first: {example}. {_advice_in(sql)}")


def _advice_in(sql: str) -> str:
    """Return the advice in the comment of a check: the last lines of the comment, from `What to do:` on."""
    comment = " ".join(line.removeprefix("-- ") for line in sql.splitlines() if line.startswith("--"))
    _, _, advice = comment.partition(_ADVICE_PREFIX)
    return advice


def _examine_dashboards(folder: DataFolder, reader: SnapshotReader | None) -> Finding:
    """Check the operator's own dashboards. Compare them with the reports if a snapshot with all reports exists."""
    errors: dict[str, Exception] = {}
    dashboards = read_dashboards(folder.dashboards, on_error=errors.__setitem__)
    own_names = [path.stem for path in dashboard_files(folder.dashboards)]
    if reader is not None and not missing_reports_warning(reader):
        # `dashboards` contains the shipped dashboards too, but no invalid ones.
        own_dashboards = {name: dashboards[name] for name in own_names if name in dashboards}
        errors |= lint(own_dashboards, all_reports(reader))
    if errors:
        messages = " ".join(str(errors[name]) for name in sorted(errors))
        return _problem("dashboards", f"{messages} Then restart the server.")
    if not own_names:
        return _ok("dashboards", "the folder has no dashboard files; the server shows the built-in dashboards.")
    return _ok("dashboards", f"{', '.join(own_names)}: are valid.")


def _examine_journal(folder: DataFolder) -> Finding:
    """Check the segments, which are the files in the journal, and compare their numbers with the snapshot."""
    try:
        # Read this number before listing the segments: one that is sealed in between would seem to be lost.
        last_sealed = LastSealed(folder.last_sealed).read()
        present = segment_numbers(folder.journal, folder.damaged)
        paths = sorted(path for path in folder.journal.iterdir() if path.suffix in (OPEN, SEALED))
        # A list, so that this block also catches the errors of the generator.
        number_problems = list(_compare_with_snapshot(folder, present, paths, last_sealed=last_sealed))
    except OSError as error:
        return _problem("journal", f"can't be read ({error.strerror}). Run this as the server's user.")
    problems = [problem for problem in map(_examine_segment, paths) if problem is not None]
    problems += number_problems
    if problems:
        return _problem("journal", " ".join(problems))
    sealed_count = sum(path.suffix == SEALED for path in paths)
    return _ok("journal", f"{sealed_count:,} sealed segments; every checksum matches.")


def _examine_segment(path: Path) -> str | None:
    """Return a message about a problem of a file in the journal; None if the file has no problem."""
    if not number_of(path):  # 0: the name is not that of a segment.
        return f"{path.name}: is not a segment and is ignored. Move it elsewhere."
    try:
        damage = inspect(path).damage
    except FileNotFoundError:
        # The server has just renamed or deleted the segment, or the path is a broken link.
        return f"{path.name}: is a broken link. Move it elsewhere." if path.is_symlink() else None
    except OSError as error:
        return f"{path.name}: can't be read ({error.strerror}). It is not loaded."
    if damage is None or (path.suffix == OPEN and not damage.was_complete):
        # The last group of lines in an open segment may be incomplete: a server is writing it, or has crashed.
        return None
    message = f"{path.name}: {damage.cause} (offset {damage.offset:,})"
    return f"{message}. The loader moves the segment to damaged/ and loads the others."


def _compare_with_snapshot(
    folder: DataFolder, present: set[int], paths: list[Path], *, last_sealed: int
) -> Iterator[str]:
    """Yield messages about lost segments, and about segments that can't be loaded because of their number.

    Args:
        folder: the data folder.
        present: the numbers of the segments on the disk before the snapshot is read. The loader may delete a segment
            as soon as a snapshot contains it.
        paths: the files in the journal, among them the segments.
        last_sealed: the highest number that was sealed.
    """
    identities = {identity for path in paths if (identity := identity_of(path.name))}
    lowest_number = min(map(number_of_identity, identities), default=0)
    lowest_name = f"{lowest_number:012d}"  # A segment's name begins with its number, in twelve digits.
    try:
        with open_snapshot(folder.snapshot, EVERYTHING.variables()) as reader:
            loaded, _ = reader.first_row(_SEGMENTS_SQL.format(lowest_name=lowest_name))
    except EmbedsinkError:
        if folder.snapshot.exists():
            return  # `_examine_snapshot` reports this.
        # Without a snapshot, no segment is loaded.
        loaded = {"newest": None, "newest_compacted": None, "listed": None}
    # List the folders again, because a listing can miss a segment that is renamed meanwhile.
    present |= segment_numbers(folder.journal, folder.damaged)
    # Numbers are consecutive. Check those after the newest loaded segment, up to the highest known number.
    first_unchecked = max([last_sealed + 1, *present])
    gaps = find_gaps(present, after=_number_of_name(loaded["newest"]), before=first_unchecked)
    if gaps:
        yield f"{describe_gaps(gaps)} in neither the snapshot nor the journal. Restore a backup, or accept the loss."
    last_compacted_number = _number_of_name(loaded["newest_compacted"])
    yield from _find_number_conflicts(identities, loaded["listed"] or [], last_compacted_number)


def _find_number_conflicts(identities: set[str], loaded_names: list[str], last_compacted_number: int) -> Iterator[str]:
    """Yield messages about segments that can't be loaded because another segment with the same number was loaded.

    Args:
        identities: the identities of the segments in the journal. An identity is a number and a random part.
        loaded_names: the names of loaded segments, without the old segments that the ledger lists only as ranges.
        last_compacted_number: the highest number in these ranges. All segments up to this number were loaded.
    """
    loaded_by_number = {_number_of_name(name): identity_of(name) for name in loaded_names}
    for identity in sorted(identities):
        number = number_of_identity(identity)
        if number in loaded_by_number:
            if loaded_by_number[number] != identity:
                yield (
                    f"{identity}: has the number of {loaded_by_number[number]}, so it was written in another data "
                    "folder, or in this folder before a restore. The loader moves it to damaged/."
                )
        elif number <= last_compacted_number:
            yield f"{identity}: has the number of a segment that was loaded long ago. The loader moves it to damaged/."


def _number_of_name(name: str | None) -> int:
    """Return the number in the file name of a segment; 0 for None and for other names."""
    return 0 if name is None else number_of(Path(name))


def _examine_damaged(folder: DataFolder) -> Finding:
    """Report segments and notes of losses in `damaged/`, which an operator has to move elsewhere."""
    names = sorted(path.name for path in folder.damaged.glob("*"))
    note_names = [name for name in names if name.startswith(LOSS_NOTE_PREFIX)]
    names_to_move = [name for name in names if name.startswith(LOSS_NOTE_PREFIX) or is_segment_or_part(name)]
    if names_to_move:
        listed = ", ".join(names_to_move)
        message = f"{listed}: damaged or lost. Repair or restore the events, then move the file elsewhere."
        notes = [read_loss_note(folder.damaged / name) for name in note_names]
        return _problem("damaged", " ".join([message, *notes]))
    return _ok("damaged", f"contains {', '.join(names)}." if names else "is empty.")


def _examine_folder(folder: DataFolder) -> Finding:
    """Check that the data folder contains no other data folder, such as a backup restored in the wrong place."""
    try:
        nested = folder.nested_data_folders()
    except OSError as error:
        return _problem("folder", f"can't be read ({error.strerror}). Run this as the server's user.")
    if nested:
        return _problem("folder", " ".join(map(nested_message, nested)))
    return _ok("folder", "contains no other data folder.")


def _examine_keys(folder: DataFolder) -> Finding:
    """Check that `keys.json` can be read, and report how many keys are live."""
    try:
        keys = KeyStore(folder.keys).keys()
    except EmbedsinkError as error:
        return _problem("keys", str(error))
    live_count = sum(key.is_live(time.time()) for key in keys)
    return _ok("keys", f"live keys: {live_count:,} of {len(keys):,}.")


def _examine_identity(folder: DataFolder) -> Finding:
    """Check that `identity.toml` can be read, and report the issuers of access tokens and the provider of logins."""
    try:
        identity = read_identity(folder.identity)
    except EmbedsinkError as error:
        return _problem("identity", str(error))
    login = "none" if identity.login is None else identity.login.issuer
    return _ok("identity", f"issuers of access tokens: {len(identity.issuers):,}. Provider of logins: {login}.")


def _examine_privacy(folder: DataFolder) -> Finding:
    """Check that the files of rules, secrets, internal people and erasures can be read, and count what they have."""
    try:
        rules = read_privacy_rules(folder.privacy_rules).of_all_fields()
        secret_count = len(secret_file_of(folder).read())
        internal = read_internal_people(folder.internal_people)
        erasures = ErasureFolder(folder.erasures).read()
    except EmbedsinkError as error:
        return _problem("privacy", str(error))
    counts = Counter(rules.values())
    pattern_count = len(internal.viewers) + len(internal.tenants) + len(internal.deployments)
    pending_count = sum(erasure.result is None for erasure in erasures)
    return _ok(
        "privacy",
        f"fields kept: {counts[Rule.KEEP]} of {len(rules)}. Secrets of hashes: {secret_count}. Patterns of internal "
        f"people: {pattern_count:,}. Erasures: {len(erasures):,}, pending: {pending_count:,}.",
    )


def _examine_audit(folder: DataFolder) -> Finding:
    """Verify the hash chain of the audit trail. Report its last entry, so that an operator can note it elsewhere."""
    try:
        result = verify_trail(folder.audit, today=datetime.now(UTC).date())
    except OSError as error:
        return _problem("audit", f"can't be read ({error.strerror}). Run this as the server's user.")
    if result.problems:
        return _problem("audit", " ".join(result.problems))
    message = f"{result.entry_count:,} entries; every link matches."
    if result.incomplete_count:
        message += f" Lines that a crash left incomplete: {result.incomplete_count:,}."
    if result.last_digest is not None:
        message += f" The last entry is {result.last_number:,}, SHA-256 {result.last_digest}."
    return _ok("audit", message)
