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

DUCKDB_RANGE = ((1, 5, 5), (3, 0, 0))
_ROLL_BACK_S_MAX = 2.0
_ROLL_BACK_PAUSE_S = 0.01


def check_duckdb_version() -> None:
    """Refuse an untested version of DuckDB: 1.4 loses data on a full disk.

    Raises:
        Misconfigured: the error names the supported versions.
    """
    version = tuple(int(part) for part in duckdb.__version__.split(".")[:3] if part.isdigit())
    if not DUCKDB_RANGE[0] <= version < DUCKDB_RANGE[1]:
        raise Misconfigured(f"duckdb {duckdb.__version__}: is not supported, 1.5.5 to 2.x is. Install duckdb==1.5.5.")


def bring_up_to_date(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Migrate the schema, and create all macros and views again if their files have changed.

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
            f"{name}: can't be brought up to date ({first_line(error)}). Nothing was changed: install the embedsink "
            "that wrote it again, and report this."
        ) from error


def refresh_views(connection: duckdb.DuckDBPyConnection) -> bool:
    """Create all macros and views again, if their files or the version of DuckDB have changed.

    Returns:
        Whether they were created.
    """
    if are_views_current(connection):
        return False
    with transaction(connection):  # all or none, and a third faster
        create_views(connection)
        connection.execute(f"comment on table migration is '{_digest()}'")
    return True


def are_views_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the macros and views come from these files and this version of DuckDB."""
    known = connection.execute("select comment from duckdb_tables() where table_name = 'migration'").fetchall()
    return known == [(_digest(),)]


def _digest() -> str:
    sources = [duckdb.__version__, *read_sql("migrations").values(), *read_views().values()]
    return blake2s("\0".join(sources).encode(), digest_size=16).hexdigest()


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Create every macro and view again, in the order of the files (sql/README.md).

    Raises:
        Misconfigured: a file reads something that does not exist; the error names the file.
    """
    # Drop old ones first: a removed view must not remain, and no view may read an outdated one.
    old_views = connection.execute("select view_name from duckdb_views() where not internal and not temporary")
    for (name,) in old_views.fetchall():
        connection.execute(f'drop view "{name}"')
    old_macros = connection.execute(
        "select distinct function_name, function_type from duckdb_functions() "
        "where not internal and function_type like '%macro'"
    )
    for name, kind in old_macros.fetchall():
        connection.execute(f'drop {"macro table" if kind == "table_macro" else "macro"} "{name}"')
    for name, sql in read_views().items():
        try:
            connection.execute(sql)
        except duckdb.CatalogException as error:  # it names the missing view, table or macro
            raise Misconfigured(f"sql/**/{name}.sql: {first_line(error)}") from None


def migrate(connection: duckdb.DuckDBPyConnection) -> bool:
    """Apply missing migrations, each with its record in one transaction. Return whether any was missing."""
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
        newest = max(unknown)
        raise Misconfigured(f"{name}: has the schema {newest}, which is newer than this embedsink. Upgrade it.")


def refuse_newer_format(error: duckdb.Error, name: str) -> None:
    """Raise Misconfigured if the file is sound but needs a newer DuckDB: a rebuild would not help."""
    if "newer version of DuckDB" in str(error):
        newer = f"{name}: was written by a newer DuckDB than {duckdb.__version__}"
        raise Misconfigured(f"{newer}. Install that one again; nothing was changed.") from None


def applied_migrations(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the names of the applied migrations; an empty set if there is no such table."""
    has_table = connection.execute("select 1 from duckdb_tables() where table_name = 'migration'").fetchone()
    names = connection.execute("select name from migration").fetchall() if has_table else []
    return {name for (name,) in names}


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("begin")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    """Roll back the transaction, if there is one. This needs memory, so wait until readers release some.

    Raises:
        StoreBroken: memory is insufficient. The connection is unusable and must be closed.
    """
    end = time.monotonic() + _ROLL_BACK_S_MAX
    while True:
        try:
            connection.execute("rollback")
        except duckdb.Error as error:
            if lacks_memory(error) and "has been invalidated" not in str(error):
                if time.monotonic() >= end:
                    raise StoreBroken(f"a transaction can't end: {first_line(error)}") from error
                time.sleep(_ROLL_BACK_PAUSE_S)
                continue
            # There was no transaction, or the database is broken and nothing was committed.
        return
