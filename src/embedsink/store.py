"""The store: the one module that imports duckdb, and the one that knows where tables live.

`Store` is the server's own database: one connection loads, cursors read. `open_snapshot` reads a published copy.
Both answer with a `Reader`: named views, seen through a scope that is nothing but session variables.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from embedsink.errors import EmbedsinkError, Misconfigured, Unavailable
from embedsink.reasons import Reason
from embedsink.segment import number_of
from embedsink.sqlfiles import read_sql

if TYPE_CHECKING:
    import pandas

ROWS_AT_ONCE = 2_048
WIDE_ROW_BYTES = 2_048
SCOPE_VARIABLES = ("since", "until", "surface", "tenant", "interval", "now", "service_name", "quarantine_id", "after")
EVERYTHING: Mapping[str, object] = {"deployments": None}
_NOT_NOW = ("No space left on device", "Disk quota exceeded", "Could not set lock on file", "Too many open files")
DUCKDB_RANGE = ((1, 5, 5), (3, 0, 0))
_NO_MEMORY = ("Out of Memory", "failed to pin block")
# A table that is being filled holds a block for each column and for its nulls: 23 MiB in DuckDB's usual 256 KiB.
_BLOCK_BYTES = 65_536
# A checkpoint writes a row group anew until it is full. Of this size, checkpoints can be frequent, so that little waits
# in memory for the next, and no bytes an event are lost (docs/decisions/0007).
_ROW_GROUP_ROWS = 32_768


@dataclass(frozen=True, slots=True)
class LoadStep:
    """A file of `sql/load/`, and what has to have rows for it to be worth its time: most read the segment once more."""

    name: str
    only_with: str | None = None


LOAD_STEPS = (
    LoadStep("line"),
    LoadStep("incoming"),
    LoadStep("arrived"),
    LoadStep("repeated"),
    LoadStep("event", only_with="arrived where kind = 'event'"),
    LoadStep("action", only_with="arrived where kind = 'action'"),
    LoadStep("conflict", only_with="repeated"),
    LoadStep("rejected", only_with="arrived where kind = 'quarantined'"),
    LoadStep("conflicting", only_with="conflict"),
    LoadStep("quarantine", only_with="rejected"),
    LoadStep("replayed", only_with="arrived where kind = 'replayed'"),
    LoadStep("loss", only_with="arrived where kind = 'lost'"),
    LoadStep("loaded_segment"),
)


class StoreBroken(EmbedsinkError):
    """The database can't go on: close and reopen it; when that fails too, set it aside and rebuild it."""


class StoreRefused(EmbedsinkError):
    """The database is sound, but it could not do this now (no room, no memory). Nothing was changed: try again."""


class StoreTooSmall(StoreRefused):
    """The memory that the database may take is too small for this. Nothing was changed."""


class SegmentUnreadable(EmbedsinkError):
    """The segment's checksums hold, but its rows can't be read: that is a bug, and trying again does not help."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What became of a segment's envelopes: received = accepted + duplicate + quarantined."""

    received_count: int
    accepted_count: int
    duplicate_count: int
    quarantined_count: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view: `type` in SQL's words, `comment` from `comment on column`."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """DuckDB's memory (as a rule, and where one step needs more) and threads, and what a load may meet.

    `checkpoint_bytes` is how much of the journal waits in memory for the next checkpoint.
    """

    memory_bytes: int = 72 * 1_048_576
    memory_bytes_max: int = 768 * 1_048_576
    threads: int = 1
    checkpoint_bytes: int = 32 * 1_048_576
    line_bytes_max: int = 8 * 1_048_576
    dedup_days: int = 7


class Reader:
    """Named views through one scope. It owns a connection of its own: use it in one thread, and close it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, scope: Mapping[str, object]) -> None:
        self._connection = connection
        # Every variable is set, so that nothing is inherited from whoever used the connection before; and the one that
        # keeps readers apart must be named, because null means every deployment.
        for name, value in {name: scope.get(name) for name in SCOPE_VARIABLES}.items():
            connection.execute(f"set variable {name} = $1", [value])
        connection.execute("set variable deployments = $1", [scope["deployments"]])

    def columns(self, view: str) -> list[Column]:
        """A view's columns with their comments, in order."""
        found = self._connection.execute(
            "select column_name, data_type, coalesce(comment, '') from duckdb_columns() "
            "where table_name = $1 and not internal order by column_index",
            [view],
        )
        return [Column(*row) for row in found.fetchall()]

    def comment(self, view: str) -> str:
        """What `comment on view` says."""
        found = self._connection.execute(
            "select coalesce(comment, '') from duckdb_views() where view_name = $1 and not internal", [view]
        ).fetchone()
        return found[0] if found else ""

    def rows(self, view: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a view, some thousand at a time, as they come from the engine."""
        result = self._ask(_rows_of(view))
        while rows := result.fetchmany(ROWS_AT_ONCE):
            yield rows

    def frame(self, view: str) -> "pandas.DataFrame":
        """The rows of a view as a frame."""
        return self._ask(_rows_of(view)).df()

    def run(self, sql: str) -> "pandas.DataFrame":
        """SQL of the reader's own, for the notebook's owner alone: nothing of the server calls this."""
        return self._ask(sql).df()

    def first_row(self, sql: str) -> tuple[dict[str, Any], int]:
        """The first row that a check of `sql/checks` returns, by column, and how many there are."""
        result = self._ask(sql)
        names = [column[0] for column in result.description or ()]
        first = result.fetchone()
        count = int(first is not None)
        while rows := result.fetchmany(ROWS_AT_ONCE):
            count += len(rows)
        return dict(zip(names, first or (), strict=False)), count

    def write_parquet(self, view: str, path: Path) -> None:
        """The rows of a view as a Parquet file."""
        self._connection.sql(_rows_of(view)).write_parquet(str(path))

    def interrupt(self) -> None:
        """Stop a running question from another thread."""
        self._connection.interrupt()

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, sql: str) -> duckdb.DuckDBPyConnection:
        try:
            with _translated():
                return self._connection.execute(sql)
        except (StoreBroken, StoreRefused) as error:
            raise Unavailable(Reason.NOT_READY, f"store: {error}. Ask again, for a shorter period.") from error


class Store:
    """The server's database. `load` and `checkpoint` belong to one thread; `reader` may be called from any."""

    def __init__(self, path: Path, limits: StoreLimits = StoreLimits()) -> None:
        self.path = path
        self._limits = limits
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._waiting_bytes = 0  # of segments, loaded since the last checkpoint
        self._has_wide_rows = False
        self._lock = threading.Lock()

    def open(self) -> None:
        """Open or create the database, migrate its schema and make its views again.

        Raises:
            Misconfigured: DuckDB is too old or too new, or the store was made by a newer embedsink.
            StoreRefused: there was no room, or another program has it open. It is as it was.
            StoreBroken: the file is no sound database.
        """
        check_duckdb_version()
        with _translated(opening=True):
            if self.path.exists():
                _refuse_newer(self.path)
            connection = duckdb.connect(":memory:", config=self._config())
            try:
                _attach(connection, self.path)
                _migrate(connection)
                create_views(connection)
                connection.execute("checkpoint store")
            except BaseException:
                connection.close()
                raise
        with self._lock:
            self._connection, self._waiting_bytes = connection, 0

    def close(self) -> None:
        """Close the database; readers are told that it is away."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._connection is not None

    def reader(self, scope: Mapping[str, object]) -> Reader:
        """A reader with this scope.

        Raises:
            Unavailable: `not_ready` while the store is closed.
        """
        with self._lock:
            if self._connection is None:
                raise Unavailable(Reason.NOT_READY, "store: is being opened. Ask again.", retry_after_s=2)
            cursor = self._connection.cursor()
            cursor.execute("use store")
            return Reader(cursor, scope)

    def loaded_segments(self, *, from_number: int = 0) -> set[str]:
        """The names of the segments of these numbers whose rows are in the store."""
        with _translated():
            # Names begin with the number, in twelve digits.
            loaded = "select segment from loaded_segment where segment >= $1"
            found = self._loading().execute(loaded, [f"{from_number:012d}"]).fetchall()
        return {name for (name,) in found}

    def last_segment_number(self) -> int:
        """The highest number of a loaded segment; 0 before the first."""
        with _translated():
            found = self._loading().execute("select max(segment) from loaded_segment").fetchone()
        return number_of(Path(found[0])) if found and found[0] else 0

    def load(self, segment: Path, *, line_bytes_max: int | None = None) -> Ledger:
        """Insert a segment's rows and its name in one transaction: all or nothing, and never twice.

        Args:
            segment: a sealed one.
            line_bytes_max: no line of it is longer; DuckDB takes several times as much memory.

        Raises:
            SegmentUnreadable, StoreRefused, StoreBroken: nothing of the segment is in the store.
        """
        variables = {
            "segment_path": str(segment),
            "segment_name": segment.name,
            "segment_number": number_of(segment),
            "segment_bytes": segment.stat().st_size,
            "line_bytes_max": line_bytes_max or self._limits.line_bytes_max,
            "dedup_days": self._limits.dedup_days,
        }
        try:
            return self._load(segment, variables)
        except StoreTooSmall:
            with self._more_memory():
                return self._load(segment, variables)

    def _load(self, segment: Path, variables: Mapping[str, object]) -> Ledger:
        connection = self._loading()
        with _translated():
            for name, value in variables.items():
                connection.execute(f"set variable {name} = $1", [value])
            with _transaction(connection):
                for step in LOAD_STEPS:
                    if step.only_with is None or _has_rows(connection, step.only_with):
                        connection.execute(read_sql("load")[step.name])
            ledger = self._ledger_of(segment)
        segment_bytes = segment.stat().st_size
        self._waiting_bytes += segment_bytes
        if segment_bytes > WIDE_ROW_BYTES * ledger.received_count:
            self._has_wide_rows = True
        return ledger

    def checkpoint_when_due(self) -> None:
        """Checkpoint when much has been loaded since the last: until then it waits in memory."""
        if self._waiting_bytes >= self._limits.checkpoint_bytes:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Bring everything into the one file, so that a copy of it is complete."""
        try:
            # All the memory from the beginning, where rows are wide: a checkpoint that fails breaks the database.
            with self._more_memory() if self._has_wide_rows else contextlib.nullcontext(), _translated():
                self._loading().execute("checkpoint store")
        except StoreBroken as error:
            # Those of an earlier program: the next try, after reopening, has the memory.
            self._has_wide_rows = self._has_wide_rows or _lacks_memory(error)
            raise
        self._waiting_bytes = 0

    @contextlib.contextmanager
    def _more_memory(self) -> Iterator[None]:
        """For steps that have to hold 2,048 huge strings at once: DuckDB reads so many rows, whatever their length."""
        _limit_memory(self._loading(), self._limits.memory_bytes_max)
        try:
            yield
        finally:
            with contextlib.suppress(duckdb.Error, StoreBroken):  # It keeps what it can't give back yet.
                _limit_memory(self._loading(), self._limits.memory_bytes)

    def _ledger_of(self, segment: Path) -> Ledger:
        row = self._loading().execute(
            "select received_count, accepted_count, duplicate_count, quarantined_count "
            "from loaded_segment where segment = $1",
            [segment.name],
        )
        return Ledger(*(row.fetchone() or (0, 0, 0, 0)))

    def _loading(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise StoreBroken("store.duckdb: is closed.")
        return self._connection

    def _config(self) -> dict[str, Any]:
        return {
            # Never by itself, see checkpoint_when_due: one that fails in a commit would break the database.
            "checkpoint_threshold": "1TB",
            "memory_limit": f"{self._limits.memory_bytes}B",
            "threads": self._limits.threads,
            "temp_directory": str(self.path.with_suffix(".spill")),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }


def open_snapshot(path: Path, scope: Mapping[str, object]) -> Reader:
    """A reader of a published snapshot, for any number of programs at once.

    Raises:
        Misconfigured: there is none yet, or it can't be read.
    """
    if not path.exists():
        raise Misconfigured(f"{path}: does not exist. A server publishes it some seconds after its start.")
    try:
        return Reader(duckdb.connect(str(path), read_only=True), scope)
    except duckdb.Error as error:
        raise Misconfigured(f"{path}: can't be read ({_first_line(error)}). The server makes it again.") from None


def check_duckdb_version() -> None:
    """Refuse a DuckDB that was not tested: 1.4 loses data on a full disk.

    Raises:
        Misconfigured: says which versions will do.
    """
    version = tuple(int(part) for part in duckdb.__version__.split(".")[:3] if part.isdigit())
    if not DUCKDB_RANGE[0] <= version < DUCKDB_RANGE[1]:
        raise Misconfigured(f"duckdb {duckdb.__version__}: is not supported, 1.5.5 to 2.x is. Install duckdb==1.5.5.")


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make every view again. Views that build on others wait for them, so their files need no order."""
    # Old ones first: a view that is gone must not linger, and a stale one must not be built on.
    old = connection.execute("select view_name from duckdb_views() where not internal and not temporary").fetchall()
    for (name,) in old:
        connection.execute(f'drop view "{name}"')
    waiting = read_sql("views/base") | read_sql("views/reports")
    while waiting:
        failures = {name: _failure(connection, sql) for name, sql in waiting.items()}
        left = {name: sql for name, sql in waiting.items() if failures[name]}
        if len(left) == len(waiting):
            raise Misconfigured("\n".join(f"sql/views/**/{name}.sql: {failures[name]}" for name in left))
        waiting = left


def _failure(connection: duckdb.DuckDBPyConnection, sql: str) -> str | None:
    try:
        connection.execute(sql)
    except duckdb.CatalogException as error:  # it names a view that is not there yet
        return _first_line(error)
    return None


def _attach(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    # Attached, because only so a database can be told its row groups, and to keep no log: the journal is its log, since
    # a segment is deleted only when a snapshot has its rows. 'v1.5.0' is what 1.5.5 can read, whoever writes it: so
    # nobody loses their history by going back from 2.0.
    options = f"recovery_mode no_wal_writes, row_group_size {_ROW_GROUP_ROWS}, storage_version 'v1.5.0'"
    if not path.exists():
        options += f", block_size {_BLOCK_BYTES}"  # later it stands in the file
    quoted = str(path).replace("'", "''")  # The operator's own words; ATTACH takes no parameters.
    connection.execute(f"attach '{quoted}' as store ({options})")
    connection.execute("use store")


def _limit_memory(connection: duckdb.DuckDBPyConnection, memory_bytes: int) -> None:
    connection.execute(f"set global memory_limit = '{memory_bytes}B'")


def _migrate(connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the schema up to date: each migration and its record in one transaction."""
    connection.execute("create table if not exists migration (name varchar, applied_at timestamp)")
    applied = {name for (name,) in connection.execute("select name from migration").fetchall()}
    for name, sql in read_sql("schema").items():
        if name not in applied:
            with _transaction(connection):
                connection.execute(sql)
                connection.execute("insert into migration values ($1, now() at time zone 'UTC')", [name])


def _refuse_newer(path: Path) -> None:
    """Look without touching, before anything is written."""
    with contextlib.closing(_look_into(path)) as connection:
        found = connection.execute("select 1 from duckdb_tables() where table_name = 'migration'").fetchone()
        names = connection.execute("select name from migration").fetchall() if found else []
    unknown = {name for (name,) in names} - read_sql("schema").keys()
    if unknown:
        newest = max(unknown)
        raise Misconfigured(f"{path.name}: has the schema {newest}, which is newer than this embedsink. Upgrade it.")


def _look_into(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(str(path), read_only=True)
    except duckdb.Error as error:
        # Sound, but beyond this DuckDB: nothing that setting it aside and rebuilding it could mend.
        if "newer version of DuckDB" in str(error):
            newer = f"{path.name}: was written by a newer DuckDB than {duckdb.__version__}"
            raise Misconfigured(f"{newer}. Install that one again; nothing was changed.") from None
        raise


@contextlib.contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("begin")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # a broken database can't roll back; its WAL does it on reopening
            connection.execute("rollback")
        raise


@contextlib.contextmanager
def _translated(*, opening: bool = False) -> Iterator[None]:
    """DuckDB's errors as the three that matter here: sound but not now, this segment never, broken."""
    try:
        yield
    except duckdb.Error as error:
        raise _kind_of(error, opening=opening)(_first_line(error)) from error


def _kind_of(error: duckdb.Error, *, opening: bool) -> type[EmbedsinkError]:
    if opening:
        # A sound store must not be set aside because there was no room to open it, or somebody else looks into it.
        return StoreRefused if any(words in str(error) for words in _NOT_NOW) else StoreBroken
    if "has been invalidated" in str(error) or isinstance(error, duckdb.FatalException):
        return StoreBroken
    if _lacks_memory(error):
        return StoreTooSmall
    if isinstance(error, duckdb.DataError | duckdb.ProgrammingError):
        return SegmentUnreadable
    if isinstance(error, duckdb.InternalException | duckdb.SerializationException):
        return StoreBroken
    return StoreRefused


def _lacks_memory(error: Exception) -> bool:
    return any(words in str(error) for words in _NO_MEMORY)


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    return connection.execute(f"select 1 from {table} limit 1").fetchone() is not None  # noqa: S608  a step's own


def _rows_of(view: str) -> str:
    # An identifier can't be a parameter. Callers name views of their own, never a sender's text (reports.known_name).
    return f'select * from "{view}"'  # noqa: S608


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
