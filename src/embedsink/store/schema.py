"""What stands in a database: its migrations, its views, and which programs may open it."""

import contextlib
from collections.abc import Iterator
from hashlib import blake2s
from pathlib import Path

import duckdb

from embedsink.errors import Misconfigured
from embedsink.sqlfiles import read_sql
from embedsink.store.failures import first_line

DUCKDB_RANGE = ((1, 5, 5), (3, 0, 0))
_VIEWS = ("macros", "views/base", "views/reports")


def check_duckdb_version() -> None:
    """Refuse a DuckDB that was not tested: 1.4 loses data on a full disk.

    Raises:
        Misconfigured: says which versions will do.
    """
    version = tuple(int(part) for part in duckdb.__version__.split(".")[:3] if part.isdigit())
    if not DUCKDB_RANGE[0] <= version < DUCKDB_RANGE[1]:
        raise Misconfigured(f"duckdb {duckdb.__version__}: is not supported, 1.5.5 to 2.x is. Install duckdb==1.5.5.")


def refresh_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make every macro and view again, if they were made from other files or by another DuckDB: it takes a while."""
    made_from = _digest()
    known = connection.execute("select comment from duckdb_tables() where table_name = 'migration'").fetchall()
    if known != [(made_from,)]:
        # Said of none while they are made: what was interrupted is made again.
        connection.execute("comment on table migration is null")
        create_views(connection)
        connection.execute(f"comment on table migration is '{made_from}'")


def _digest() -> str:
    made_from = [duckdb.__version__, *(sql for folder in ("schema", *_VIEWS) for sql in read_sql(folder).values())]
    return blake2s("\0".join(made_from).encode(), digest_size=16).hexdigest()


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make every macro and view again. Those that build on others wait for them, so their files need no order."""
    # Old ones first: a view that is gone must not linger, and a stale one must not be built on.
    old = connection.execute("select view_name from duckdb_views() where not internal and not temporary").fetchall()
    for (name,) in old:
        connection.execute(f'drop view "{name}"')
    waiting = {name: sql for folder in _VIEWS for name, sql in read_sql(folder).items()}
    while waiting:
        failures = {name: _failure(connection, sql) for name, sql in waiting.items()}
        left = {name: sql for name, sql in waiting.items() if failures[name]}
        if len(left) == len(waiting):
            raise Misconfigured("\n".join(f"sql/**/{name}.sql: {failures[name]}" for name in left))
        waiting = left


def _failure(connection: duckdb.DuckDBPyConnection, sql: str) -> str | None:
    try:
        connection.execute(sql)
    except duckdb.CatalogException as error:  # it names a view that is not there yet
        return first_line(error)
    return None


def migrate(connection: duckdb.DuckDBPyConnection) -> None:
    """Bring the schema up to date: each migration and its record in one transaction."""
    connection.execute("create table if not exists migration (name varchar, applied_at timestamp)")
    applied = {name for (name,) in connection.execute("select name from migration").fetchall()}
    for name, sql in read_sql("schema").items():
        if name not in applied:
            with transaction(connection):
                connection.execute(sql)
                connection.execute("insert into migration values ($1, now() at time zone 'UTC')", [name])


def refuse_newer(path: Path) -> None:
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
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("begin")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # a broken database can't roll back; nothing of it was written
            connection.execute("rollback")
        raise
