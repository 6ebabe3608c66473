"""What is wrong with a data folder: versions, room, snapshot, rows, dashboards, journal and keys. Reads only."""

import platform
import shutil
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

from embedsink import __version__
from embedsink.charts import dashboards_with, files_of, find_mistakes
from embedsink.errors import EmbedsinkError
from embedsink.folder import LOST, DataFolder
from embedsink.keys import KeyFile
from embedsink.reports import all_reports
from embedsink.segment import SEALED, inspect
from embedsink.settings import Settings
from embedsink.sqlfiles import read_sql
from embedsink.store import EVERYTHING, Reader, check_duckdb_version, open_snapshot

State = Literal["good", "wrong"]
_TO_DO = "-- What to do: "


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
        *_examine_snapshot(folder),
        _examine_journal(folder),
        _examine_aside(folder),
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


def _examine_snapshot(folder: DataFolder) -> Iterator[Finding]:
    try:
        reader = open_snapshot(folder.snapshot, EVERYTHING)
    except EmbedsinkError as error:
        yield Finding("snapshot", "wrong", str(error))
        yield _examine_dashboards(folder, None)
        return
    with reader:
        age_s = time.time() - folder.snapshot.stat().st_mtime
        yield Finding("snapshot", "good", f"is {age_s:,.0f} s old and has {folder.snapshot.stat().st_size:,} bytes.")
        for check, sql in read_sql("checks").items():
            yield _examine_rows(reader, check, sql)
        yield _examine_dashboards(folder, reader)


def _examine_rows(reader: Reader, check: str, sql: str) -> Finding:
    """A file of `sql/checks` returns offending rows, and says in its comment what to do about them."""
    try:
        first, count = reader.first_row(sql)
    except EmbedsinkError as error:
        return Finding(check, "wrong", f"could not be checked ({error}). Make the snapshot again.")
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
    if reader is not None:
        mistakes |= find_mistakes({name: dashboards[name] for name in own if name in dashboards}, all_reports(reader))
    if mistakes:
        found = " ".join(str(error) for _, error in sorted(mistakes.items()))
        return Finding("dashboards", "wrong", f"{found} Then start the server anew.")
    return Finding("dashboards", "good", f"{', '.join(own)}: can be shown." if own else "has none of your own.")


def _examine_journal(folder: DataFolder) -> Finding:
    damaged, count = [], 0
    for segment in sorted(folder.journal.glob(f"*{SEALED}")):
        try:
            damage = inspect(segment).damage
        except FileNotFoundError:
            continue  # The server has just deleted it: a snapshot covers it.
        count += 1
        if damage:
            damaged.append(f"{segment.name}: {damage.why} after offset {damage.end:,}")
    if damaged:
        found = f"{'; '.join(damaged)}. The next load sets it aside and goes on with the rest."
        return Finding("journal", "wrong", found)
    return Finding("journal", "good", f"{count:,} sealed segments; every checksum holds.")


def _examine_aside(folder: DataFolder) -> Finding:
    names = sorted(path.name for path in folder.aside.glob("*")) if folder.aside.is_dir() else []
    damaged = [name for name in names if SEALED in name or name.startswith(LOST)]
    if damaged:
        return Finding("aside", "wrong", f"{', '.join(damaged)}: damaged, or lost. See to it, then move it elsewhere.")
    return Finding("aside", "good", f"keeps {', '.join(names)}." if names else "is empty.")


def _examine_keys(folder: DataFolder) -> Finding:
    try:
        keys = KeyFile(folder.keys).keys()
    except EmbedsinkError as error:
        return Finding("keys", "wrong", str(error))
    return Finding("keys", "good", f"{sum(key.is_live(time.time()) for key in keys):,} live of {len(keys):,}.")
