"""Read-only checks of a data folder: versions, disk space, snapshot, rows, dashboards, journal and keys."""

import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from embedsink import __version__
from embedsink.auth.key_store import KeyStore
from embedsink.dashboards.files import dashboard_files, read_dashboards
from embedsink.dashboards.lint import lint
from embedsink.data_folder import LOSS_NOTE_PREFIX, DataFolder, nested_message
from embedsink.errors import EmbedsinkError
from embedsink.journal.last_sealed import LastSealed
from embedsink.journal.segment import OPEN, SEALED, identity_of, inspect, number_of
from embedsink.loader.copy_file import verify
from embedsink.loader.damage import describe_gaps, find_gaps, has_unloaded_events, read_loss_note, segment_numbers
from embedsink.reports.catalog import all_reports, missing_reports_warning
from embedsink.settings import Settings
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.reader import EVERYTHING, Reader, open_snapshot
from embedsink.store.schema import check_duckdb_version
from embedsink.store.sql_files import read_sql

State = Literal["good", "wrong"]
_ADVICE_PREFIX = "-- What to do: "
_NEW_SNAPSHOT = "Create a new snapshot: start the server once, or run `embedsink snapshot`."
_LEDGER_SQL = "select count(*) as row_count, coalesce(sum(lost_count), 0)::bigint as lost_count from loaded_segment"
_SEGMENTS_SQL = """
select
    max(segment) as newest,
    max(segment) filter (first_number is not null) as folded,
    list(segment) filter (segment >= '{first}' and first_number is null) as stored
from loaded_segment
"""


class Finding(NamedTuple):
    """The result of a check."""

    check: str
    state: State
    details: str


def examine(folder: DataFolder, settings: Settings) -> list[Finding]:
    """Run every check on a data folder. This does not disturb a running server."""
    return [
        _examine_versions(),
        _examine_room(folder, settings),
        _measure_files(folder),
        _examine_checksums("snapshot blocks", folder.snapshot),
        _examine_checksums("previous snapshot", folder.previous),
        *_examine_snapshot(folder),
        _examine_journal(folder),
        _examine_damaged(folder),
        _examine_folder(folder),
        _examine_keys(folder),
    ]


def _examine_versions() -> Finding:
    versions = f"embedsink {__version__}, Python {platform.python_version()}"
    try:
        check_duckdb_version()
    except EmbedsinkError as error:
        return Finding("versions", "wrong", f"{versions}. {error}")
    return Finding("versions", "good", versions)


def _examine_room(folder: DataFolder, settings: Settings) -> Finding:
    # A snapshot is a complete copy of the store, and a rebuild needs another one.
    size = folder.store.stat().st_size if folder.store.exists() else 0
    free, needed = shutil.disk_usage(folder.path).free, settings.free_bytes_min + 2 * size
    message = f"{free:,} bytes are free, {needed:,} are needed for the next snapshot and a rebuild."
    if free < needed:
        return Finding("room", "wrong", f"{message} Free space on the disk.")
    return Finding("room", "good", message)


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
    }
    sizes = ", ".join(f"{name} {_byte_count(path):,}" for name, path in paths.items())
    return Finding("sizes", "good", f"bytes: {sizes}.")


def _byte_count(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    total = 0
    for file in files:
        with suppress(FileNotFoundError):  # A server may have deleted it meanwhile.
            total += file.stat().st_size
    return total


def _examine_checksums(check: str, path: Path) -> Finding:
    """Verify the checksums of a snapshot on the disk."""
    try:
        damage = verify(path)
    except FileNotFoundError:
        return Finding(check, "good", f"{path.name}: does not exist yet. A server creates it.")
    except (OSError, StoreRefused) as error:
        return Finding(check, "wrong", f"{path.name}: can't be read ({error}). Check the disk.")
    if damage:
        advice = "A server replaces it after its next load or start. Check the disk."
        return Finding(check, "wrong", f"{path.name}: is damaged ({damage}). {advice}")
    return Finding(check, "good", f"{path.name}: every checksum matches.")


def _examine_snapshot(folder: DataFolder) -> Iterator[Finding]:
    try:
        reader = open_snapshot(folder.snapshot, EVERYTHING)
    except EmbedsinkError as error:
        yield Finding("snapshot", "wrong", str(error))
        yield _examine_dashboards(folder, None)
        return
    with reader:
        age_s = time.time() - folder.snapshot.stat().st_mtime
        message = f"is {age_s:,.0f} s old and has {folder.snapshot.stat().st_size:,} bytes."
        missing = missing_reports_warning(reader)
        yield Finding("snapshot", "wrong" if missing else "good", f"{message} {missing}" if missing else message)
        if _has_older_schema(reader):
            yield Finding(
                "rows", "wrong", f"are not checked, because an older embedsink created the snapshot. {_NEW_SNAPSHOT}"
            )
            yield _examine_dashboards(folder, reader)
            return
        yield _examine_ledger(reader)
        for check, sql in read_sql("checks").items():
            yield _examine_rows(reader, check, sql)
        yield _examine_dashboards(folder, reader)


def _has_older_schema(reader: Reader) -> bool:
    latest, _ = reader.first_row("select max(name) as name from migration")
    return bool(latest["name"] < max(read_sql("migrations")))


def _examine_ledger(reader: Reader) -> Finding:
    try:
        ledger, _ = reader.first_row(_LEDGER_SQL)
    except EmbedsinkError as error:
        return Finding("ledger", "wrong", f"can't be read ({error}). Start a server, which creates a new snapshot.")
    message = f"{ledger['row_count']:,} rows; {ledger['lost_count']:,} envelopes were lost to damaged files."
    return Finding("ledger", "good", message)


def _examine_rows(reader: Reader, check: str, sql: str) -> Finding:
    """Run a query of `sql/checks`, which returns offending rows. Its comment contains the advice."""
    try:
        first, count = reader.first_row(sql)
    except EmbedsinkError as error:
        return Finding(check, "wrong", f"could not be checked ({error}). {_NEW_SNAPSHOT}")
    if not count:
        return Finding(check, "good", "")
    example = ", ".join(f"{name} {value}" for name, value in first.items())
    return Finding(check, "wrong", f"rows: {count:,}, the first: {example}. {_advice_in(sql)}")


def _advice_in(sql: str) -> str:
    comment = [line for line in sql.splitlines() if line.startswith("--")]
    first = next((index for index, line in enumerate(comment) if line.startswith(_ADVICE_PREFIX)), len(comment))
    return " ".join(line.removeprefix(_ADVICE_PREFIX).removeprefix("-- ") for line in comment[first:])


def _examine_dashboards(folder: DataFolder, reader: Reader | None) -> Finding:
    """Check the operator's own dashboards, and compare them with the reports if a snapshot exists."""
    mistakes: dict[str, Exception] = {}
    dashboards = read_dashboards(folder.dashboards, on_error=mistakes.__setitem__)
    own = [path.stem for path in dashboard_files(folder.dashboards)]
    if reader is not None and not missing_reports_warning(reader):
        mistakes |= lint({name: dashboards[name] for name in own if name in dashboards}, all_reports(reader))
    if mistakes:
        messages = " ".join(str(error) for _, error in sorted(mistakes.items()))
        return Finding("dashboards", "wrong", f"{messages} Then restart the server.")
    return Finding("dashboards", "good", f"{', '.join(own)}: are valid." if own else "has no dashboards of your own.")


def _examine_journal(folder: DataFolder) -> Finding:
    try:
        # Keep this order: a sealed segment is in the journal until a snapshot covers it.
        last_sealed = LastSealed(folder.last_sealed).read()
        present = segment_numbers(folder.journal, folder.damaged)
        paths = sorted(path for path in folder.journal.iterdir() if path.suffix in (OPEN, SEALED))
        compared = list(_compare_with_snapshot(folder, present, paths, last_sealed=last_sealed))
    except OSError as error:
        return Finding("journal", "wrong", f"can't be read ({error.strerror}). Run this as the server's user.")
    wrong = [message for path in paths if (message := _examine_segment(path))] + compared
    if wrong:
        return Finding("journal", "wrong", " ".join(wrong))
    count = sum(path.suffix == SEALED for path in paths)
    return Finding("journal", "good", f"{count:,} sealed segments; every checksum matches.")


def _examine_segment(path: Path) -> str | None:
    """Return a message about an invalid file in the journal, or None."""
    if not number_of(path):
        return f"{path.name}: is not a segment and is ignored. Move it elsewhere."
    try:
        damage = inspect(path).damage
    except FileNotFoundError:
        # The server has just sealed or deleted it, or it is a broken link.
        return f"{path.name}: is a broken link. Move it elsewhere." if path.is_symlink() else None
    except OSError as error:
        return f"{path.name}: can't be read ({error.strerror}). It is not loaded."
    if damage is None or (path.suffix == OPEN and not damage.was_complete):
        return None  # The last group of an open segment may be incomplete.
    return (
        f"{path.name}: {damage.cause} after offset {damage.end:,}. The loader moves it to damaged/ and loads the rest."
    )


def _compare_with_snapshot(
    folder: DataFolder, present: set[int], paths: list[Path], *, last_sealed: int
) -> Iterator[str]:
    """Yield messages about lost segments, and about segments that can't be loaded because of their number."""
    identities = {identity_of(path.name) for path in paths} - {""}
    first = min(identities, default="")
    sql = _SEGMENTS_SQL.format(first=first)
    try:
        with open_snapshot(folder.snapshot, EVERYTHING) as reader:
            row, _ = reader.first_row(sql)
    except EmbedsinkError:
        if folder.snapshot.exists():
            return  # Another check reports this.
        row = dict.fromkeys(("newest", "stored", "folded"))
    # List again, since a listing can miss a segment that is renamed meanwhile.
    present |= segment_numbers(folder.journal, folder.damaged)
    after = number_of(Path(row["newest"] or ""))
    if gaps := find_gaps(present, after=after, before=max([last_sealed + 1, *present])):
        yield f"{describe_gaps(gaps)} in neither the snapshot nor the journal. Restore a backup, or accept the loss."
    stored = {number_of(Path(name)): identity_of(name) for name in row["stored"] or ()}
    folded_to = number_of(Path(row["folded"] or ""))
    for identity in sorted(identities):
        number = number_of(Path(f"{identity}{SEALED}"))
        other = stored.get(number, identity)
        if number not in stored and number <= folded_to:
            yield f"{identity}: has the number of a segment that was loaded long ago. The loader moves it to damaged/."
        elif other != identity:
            yield f"{identity}: has the number of {other}, so it comes from another data folder and is not loaded."


def _examine_damaged(folder: DataFolder) -> Finding:
    names = sorted(path.name for path in folder.damaged.glob("*")) if folder.damaged.is_dir() else []
    damaged = [name for name in names if has_unloaded_events(name) or name.startswith(LOSS_NOTE_PREFIX)]
    if damaged:
        notes = [read_loss_note(folder.damaged / name) for name in names if name.startswith(LOSS_NOTE_PREFIX)]
        message = f"{', '.join(damaged)}: damaged or lost. Repair or restore the events, then move the file elsewhere."
        return Finding("damaged", "wrong", " ".join([message, *notes]))
    return Finding("damaged", "good", f"contains {', '.join(names)}." if names else "is empty.")


def _examine_folder(folder: DataFolder) -> Finding:
    try:
        nested = folder.nested()
    except OSError as error:
        return Finding("folder", "wrong", f"can't be read ({error.strerror}). Run this as the server's user.")
    if nested:
        return Finding("folder", "wrong", " ".join(map(nested_message, nested)))
    return Finding("folder", "good", "contains no other data folder.")


def _examine_keys(folder: DataFolder) -> Finding:
    try:
        keys = KeyStore(folder.keys).keys()
    except EmbedsinkError as error:
        return Finding("keys", "wrong", str(error))
    return Finding("keys", "good", f"{sum(key.is_live(time.time()) for key in keys):,} live of {len(keys):,}.")
