"""Migrations and views of a database, and the versions that may open it."""

import contextlib
import time
from collections.abc import Iterator
from hashlib import blake2s
from pathlib import Path

import duckdb

from embedsink.errors import Misconfigured
from embedsink.store.duckdb_errors import StoreBroken, first_line, lacks_memory
from embedsink.store.sql_files import read_sql, read_views

DUCKDB_VERSION_MIN = (1, 5, 5)
DUCKDB_VERSION_BELOW = (3, 0, 0)
# How long and how often a rollback that lacks memory is retried.
_ROLL_BACK_S_MAX = 2.0
_ROLL_BACK_PAUSE_S = 0.01


def check_duckdb_version() -> None:
    """Refuse an untested version of DuckDB: 1.4 loses data on a full disk.

    Raises:
        Misconfigured: the version is not supported.
    """
    # Skip parts of pre-releases, such as `0rc1`.
    version = tuple(int(part) for part in duckdb.__version__.split(".")[:3] if part.isdigit())
    if not DUCKDB_VERSION_MIN <= version < DUCKDB_VERSION_BELOW:
        raise Misconfigured(
            f"duckdb {duckdb.__version__}: is not supported. embedsink supports 1.5.5 to 2.x. Install duckdb==1.5.5."
        )


def bring_up_to_date(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Migrate the schema, and create all macros and views again if their SQL has changed.

    Args:
        connection: a connection to the database.
        name: the name of the file, for the error message.

    Returns:
        Whether anything was written. An up-to-date store is not written to, so it opens on a full disk.

    Raises:
        Misconfigured: the migration failed on a sound file, so a rebuild would not help.
    """
    try:
        is_migrated = migrate(connection)
        return refresh_views(connection) or is_migrated
    except (duckdb.ProgrammingError, duckdb.TransactionException) as error:
        raise Misconfigured(
            f"{name}: can't be brought up to date ({first_line(error)}). Nothing was changed. Reinstall the "
            "version of embedsink that wrote it, and report this."
        ) from error


def refresh_views(connection: duckdb.DuckDBPyConnection) -> bool:
    """Create all macros and views again, if their SQL or the version of DuckDB has changed.

    Returns:
        Whether they were created.
    """
    if are_views_current(connection):
        return False
    with transaction(connection):
        create_views(connection)
        # `are_views_current` compares this digest of the SQL.
        connection.execute(f"comment on table migration is '{_views_digest()}'")
    return True


def are_views_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the macros and views were created from the current SQL files by this version of DuckDB."""
    # `refresh_views` stores a digest of the sources in the comment of the table `migration`.
    comments = connection.execute("select comment from duckdb_tables() where table_name = 'migration'").fetchall()
    return comments == [(_views_digest(),)]


def _views_digest() -> str:
    """Return a digest of all that macros and views depend on: DuckDB, the tables (by migrations) and the SQL files."""
    sources = [duckdb.__version__, *read_sql("migrations").values(), *read_views().values()]
    return blake2s("\0".join(sources).encode(), digest_size=16).hexdigest()


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Create every macro and view again, in the order of the files (sql/README.md).

    Raises:
        Misconfigured: a file reads something that does not exist; the error names the file.
    """
    _drop_views(connection)
    for name, sql in read_views().items():
        try:
            connection.execute(sql)
        except duckdb.CatalogException as error:  # It names the missing view, table or macro.
            raise Misconfigured(f"sql/**/{name}.sql: {first_line(error)}. Correct the file.") from None


def _drop_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop all views and macros, including those whose files were removed."""
    views = connection.execute("select view_name from duckdb_views() where not internal and not temporary")
    for (name,) in views.fetchall():
        connection.execute(f'drop view "{name}"')
    macros = connection.execute(
        "select distinct function_name, function_type from duckdb_functions() "
        "where not internal and function_type like '%macro'"
    )
    for name, function_type in macros.fetchall():
        kind = "macro table" if function_type == "table_macro" else "macro"
        connection.execute(f'drop {kind} "{name}"')


def migrate(connection: duckdb.DuckDBPyConnection) -> bool:
    """Apply the missing migrations, each in a transaction that records it. Return whether a migration was missing."""
    applied = applied_migrations(connection)
    missing = {name: sql for name, sql in read_sql("migrations").items() if name not in applied}
    if missing:
        connection.execute("create table if not exists migration (name varchar, applied_at timestamp)")
    for name, sql in missing.items():
        with transaction(connection):
            connection.execute(sql)
            connection.execute("insert into migration values ($1, now() at time zone 'UTC')", [name])
    return bool(missing)


def refuse_newer(path: Path) -> None:
    """Check the version of a file without writing.

    Raises:
        Misconfigured: the database is from a newer embedsink or DuckDB.
        duckdb.Error: the file can't be read.
    """
    try:
        with contextlib.closing(duckdb.connect(str(path), read_only=True)) as connection:
            refuse_newer_schema(connection, path.name)
    except duckdb.Error as error:
        refuse_newer_format(error, path.name)
        raise


def refuse_newer_schema(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Raise Misconfigured if the database has an unknown migration."""
    unknown = applied_migrations(connection) - read_sql("migrations").keys()
    if unknown:
        newest = max(unknown)  # Names begin with a number.
        raise Misconfigured(
            f"{name}: has the schema {newest}, which is newer than this version of embedsink. Upgrade embedsink."
        )


def refuse_newer_format(error: duckdb.Error, name: str) -> None:
    """Raise Misconfigured if an error of DuckDB means that a file needs a newer DuckDB. A rebuild would not help."""
    if "newer version of DuckDB" in str(error):
        problem = f"{name}: was written by a newer DuckDB than {duckdb.__version__}"
        raise Misconfigured(f"{problem}. Nothing was changed. Reinstall the newer version.") from None


def applied_migrations(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the names of the applied migrations; an empty set if there is no such table."""
    has_table = connection.execute("select 1 from duckdb_tables() where table_name = 'migration'").fetchone()
    names = connection.execute("select name from migration").fetchall() if has_table else []
    return {name for (name,) in names}


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Run this block in a transaction, and roll it back after an error."""
    connection.execute("begin")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    """Roll back the transaction, if there is one. A rollback needs memory, so wait until readers release some.

    Raises:
        StoreBroken: memory is insufficient. The connection is unusable and must be closed.
    """
    give_up_at = time.monotonic() + _ROLL_BACK_S_MAX
    while True:
        try:
            connection.execute("rollback")
            return
        except duckdb.Error as error:
            is_broken = "has been invalidated" in str(error)
            if is_broken or not lacks_memory(error):
                return  # Nothing to undo: there is no transaction, or the broken database has committed nothing.
            if time.monotonic() >= give_up_at:
                raise StoreBroken(f"a transaction can't end: {first_line(error)}") from error
        time.sleep(_ROLL_BACK_PAUSE_S)
