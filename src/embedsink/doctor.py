"""What is wrong with a data folder: versions, room, snapshot, rows, dashboards, journal and keys. Reads only."""

import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from embedsink import __version__
from embedsink.auth.key_store import KeyStore
from embedsink.dashboards.files import dashboards_with, files_of
from embedsink.dashboards.lint import find_mistakes
from embedsink.data_folder import LOST, DataFolder, nested_message
from embedsink.errors import EmbedsinkError
from embedsink.journal.last_sealed import LastSealed
from embedsink.journal.segment import OPEN, SEALED, identity_of, inspect, number_of
from embedsink.loader.copy_file import verify
from embedsink.loader.damage import is_damaged, missing_numbers, named, present_numbers, read_note
from embedsink.reports.catalog import all_reports, missing_reports
from embedsink.settings import Settings
from embedsink.store.duckdb_errors import StoreRefused
from embedsink.store.reader import EVERYTHING, Reader, open_snapshot
from embedsink.store.schema import check_duckdb_version
from embedsink.store.sql_files import read_sql

State = Literal["good", "wrong"]
_TO_DO = "-- What to do: "
_AGAIN = "Make the snapshot again: start the server once, or run `embedsink snapshot`."
_LEDGER = "select count(*) as row_count, coalesce(sum(lost_count), 0)::bigint as lost_count from loaded_segment"
_STORED = """
select
    max(segment) as newest,
    max(segment) filter (first_number is not null) as folded,
    list(segment) filter (segment >= '{first}' and first_number is null) as stored
from loaded_segment
"""


class Finding(NamedTuple):
    """One check, what it came to, and what it saw."""

    check: str
    state: State
    found: str


def examine(folder: DataFolder, settings: Settings) -> list[Finding]:
    """Every check on a data folder. A running server is not disturbed."""
    return [
        _examine_versions(),
        _examine_room(folder, settings),
        _measure_files(folder),
        _examine_checksums("snapshot blocks", folder.snapshot),
        _examine_checksums("previous snapshot", folder.previous),
        *_examine_snapshot(folder),
        _examine_journal(folder),
        _examine_aside(folder),
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
    # A snapshot is a whole copy, and a rebuild another.
    size = folder.store.stat().st_size if folder.store.exists() else 0
    free, wanted = shutil.disk_usage(folder.path).free, settings.free_bytes_min + 2 * size
    found = f"{free:,} bytes are free, {wanted:,} are needed for the next snapshot and a rebuild."
    return Finding("room", "good", found) if free >= wanted else Finding("room", "wrong", f"{found} Make room.")


def _measure_files(folder: DataFolder) -> Finding:
    """Bytes of all that grows."""
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
        with suppress(FileNotFoundError):  # A server may delete it meanwhile.
            total += file.stat().st_size
    return total


def _examine_checksums(check: str, path: Path) -> Finding:
    """Read a whole snapshot from the disk."""
    try:
        damage = verify(path)
    except FileNotFoundError:
        return Finding(check, "good", f"{path.name}: does not exist yet. A server makes it.")
    except (OSError, StoreRefused) as error:
        return Finding(check, "wrong", f"{path.name}: can't be read ({error}). Look at the disk.")
    if damage:
        found = (
            f"{path.name}: is damaged ({damage}). A server replaces it after its next load or start. Look at the disk."
        )
        return Finding(check, "wrong", found)
    return Finding(check, "good", f"{path.name}: every checksum holds.")


def _examine_snapshot(folder: DataFolder) -> Iterator[Finding]:
    try:
        reader = open_snapshot(folder.snapshot, EVERYTHING)
    except EmbedsinkError as error:
        yield Finding("snapshot", "wrong", str(error))
        yield _examine_dashboards(folder, None)
        return
    with reader:
        age_s = time.time() - folder.snapshot.stat().st_mtime
        found = f"is {age_s:,.0f} s old and has {folder.snapshot.stat().st_size:,} bytes."
        missing = missing_reports(reader)
        yield Finding("snapshot", "wrong" if missing else "good", f"{found} {missing}" if missing else found)
        if _is_of_an_older_schema(reader):
            yield Finding("rows", "wrong", f"are not checked: an older embedsink has made the snapshot. {_AGAIN}")
            yield _examine_dashboards(folder, reader)
            return
        yield _examine_ledger(reader)
        for check, sql in read_sql("checks").items():
            yield _examine_rows(reader, check, sql)
        yield _examine_dashboards(folder, reader)


def _is_of_an_older_schema(reader: Reader) -> bool:
    latest, _ = reader.first_row("select max(name) as name from migration")
    return bool(latest["name"] < max(read_sql("migrations")))


def _examine_ledger(reader: Reader) -> Finding:
    try:
        ledger, _ = reader.first_row(_LEDGER)
    except EmbedsinkError as error:
        return Finding("ledger", "wrong", f"can't be read ({error}). Start a server: it makes the snapshot again.")
    found = f"{ledger['row_count']:,} rows; {ledger['lost_count']:,} envelopes were lost to damaged files."
    return Finding("ledger", "good", found)


def _examine_rows(reader: Reader, check: str, sql: str) -> Finding:
    """A file of `sql/checks` returns offending rows, and says in its comment what to do about them."""
    try:
        first, count = reader.first_row(sql)
    except EmbedsinkError as error:
        return Finding(
            check,
            "wrong",
            f"could not be checked ({error}). {_AGAIN}",
        )
    if not count:
        return Finding(check, "good", "")
    example = ", ".join(f"{name} {value}" for name, value in first.items())
    return Finding(check, "wrong", f"rows: {count:,}, the first: {example}. {_what_to_do(sql)}")


def _what_to_do(sql: str) -> str:
    comment = [line for line in sql.splitlines() if line.startswith("--")]
    first = next((place for place, line in enumerate(comment) if line.startswith(_TO_DO)), len(comment))
    return " ".join(line.removeprefix(_TO_DO).removeprefix("-- ") for line in comment[first:])


def _examine_dashboards(folder: DataFolder, reader: Reader | None) -> Finding:
    """The operator's own files; those that can be read are held against the reports, where there is a snapshot."""
    mistakes: dict[str, Exception] = {}
    dashboards = dashboards_with(folder.dashboards, on_mistake=mistakes.__setitem__)
    own = [path.stem for path in files_of(folder.dashboards)]
    if reader is not None and not missing_reports(reader):
        mistakes |= find_mistakes({name: dashboards[name] for name in own if name in dashboards}, all_reports(reader))
    if mistakes:
        found = " ".join(str(error) for _, error in sorted(mistakes.items()))
        return Finding("dashboards", "wrong", f"{found} Then start the server anew.")
    return Finding("dashboards", "good", f"{', '.join(own)}: can be shown." if own else "has none of your own.")


def _examine_journal(folder: DataFolder) -> Finding:
    try:
        # In this order: a sealed segment is in the journal, and it is deleted when a snapshot has it.
        last_sealed = LastSealed(folder.last_sealed).read()
        present = present_numbers(folder.journal, folder.damaged)
        paths = sorted(path for path in folder.journal.iterdir() if path.suffix in (OPEN, SEALED))
        compared = list(_compare_with_snapshot(folder, present, paths, last_sealed=last_sealed))
    except OSError as error:
        return Finding("journal", "wrong", f"can't be read ({error.strerror}). Run this as the user of the server.")
    wrong = [found for path in paths if (found := _examine_segment(path))] + compared
    if wrong:
        return Finding("journal", "wrong", " ".join(wrong))
    count = sum(path.suffix == SEALED for path in paths)
    return Finding("journal", "good", f"{count:,} sealed segments; every checksum holds.")


def _examine_segment(path: Path) -> str | None:
    """What is wrong with a file of the journal, and what becomes of it."""
    if not number_of(path):
        return f"{path.name}: is not a segment and is ignored. Move it elsewhere."
    try:
        damage = inspect(path).damage
    except FileNotFoundError:
        # The server has just sealed or deleted it. A link stays.
        return f"{path.name}: leads nowhere. Move it elsewhere." if path.is_symlink() else None
    except OSError as error:
        return f"{path.name}: can't be read ({error.strerror}). It is not loaded."
    if damage is None or (path.suffix == OPEN and not damage.was_whole):
        return None  # The last group of an open segment may be in the making, or torn.
    return f"{path.name}: {damage.why} after offset {damage.end:,}. It is moved to damaged/, and the rest is loaded."


def _compare_with_snapshot(
    folder: DataFolder, present: set[int], paths: list[Path], *, last_sealed: int
) -> Iterator[str]:
    """Segments that neither the snapshot nor the journal has, and segments that are not loaded for their number."""
    identities = {identity_of(path.name) for path in paths} - {""}
    first = min(identities, default="")
    sql = _STORED.format(first=first)
    try:
        with open_snapshot(folder.snapshot, EVERYTHING) as reader:
            found, _ = reader.first_row(sql)
    except EmbedsinkError:
        if folder.snapshot.exists():
            return  # Said by another check.
        found = dict.fromkeys(("newest", "stored", "folded"))
    # Again, since a segment that is renamed during the look can be missed.
    present |= present_numbers(folder.journal, folder.damaged)
    after = number_of(Path(found["newest"] or ""))
    if gaps := missing_numbers(present, after=after, before=max([last_sealed + 1, *present])):
        yield f"{named(gaps)} in neither the snapshot nor the journal. Restore a backup, or accept the loss."
    stored = {number_of(Path(name)): identity_of(name) for name in found["stored"] or ()}
    folded_to = number_of(Path(found["folded"] or ""))
    for identity in sorted(identities):
        number = number_of(Path(f"{identity}{SEALED}"))
        other = stored.get(number, identity)
        if number not in stored and number <= folded_to:
            yield f"{identity}: has the number of a segment that was loaded long ago. It is moved to damaged/."
        elif other != identity:
            yield f"{identity}: has the number of {other}, so it is of another data folder, and is not loaded."


def _examine_aside(folder: DataFolder) -> Finding:
    names = sorted(path.name for path in folder.damaged.glob("*")) if folder.damaged.is_dir() else []
    damaged = [name for name in names if is_damaged(name) or name.startswith(LOST)]
    if damaged:
        notes = [read_note(folder.damaged / name) for name in names if name.startswith(LOST)]
        found = f"{', '.join(damaged)}: damaged, or lost. See to it, then move it elsewhere."
        return Finding("damaged", "wrong", " ".join([found, *notes]))
    return Finding("damaged", "good", f"keeps {', '.join(names)}." if names else "is empty.")


def _examine_folder(folder: DataFolder) -> Finding:
    try:
        nested = folder.nested()
    except OSError as error:
        return Finding("folder", "wrong", f"can't be read ({error.strerror}). Run this as the user of the server.")
    if nested:
        return Finding("folder", "wrong", " ".join(map(nested_message, nested)))
    return Finding("folder", "good", "has no other data folder in it.")


def _examine_keys(folder: DataFolder) -> Finding:
    try:
        keys = KeyStore(folder.keys).keys()
    except EmbedsinkError as error:
        return Finding("keys", "wrong", str(error))
    return Finding("keys", "good", f"{sum(key.is_live(time.time()) for key in keys):,} live of {len(keys):,}.")
