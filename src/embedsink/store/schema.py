"""What stands in a database: its migrations, its views, and which programs may open it."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from hashlib import blake2s
from pathlib import Path

import duckdb

from embedsink.errors import Misconfigured
from embedsink.sqlfiles import read_sql
from embedsink.store.failures import first_line
from embedsink.store.heeding import choose_form

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


def bring_up_to_date(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Migrate the schema, and make every macro and view again if they were made from other files.

    Raises:
        Misconfigured: it can't be done, and the file is not what is wrong: no rebuild would help.
    """
    try:
        migrate(connection)
        refresh_views(connection)
    except (duckdb.ProgrammingError, duckdb.TransactionException) as error:
        raise Misconfigured(
            f"{name}: can't be brought up to date ({first_line(error)}). Nothing was changed: install the embedsink "
            "that wrote it again, and report this."
        ) from error


def refresh_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make every macro and view again, if they were made from other files or by another DuckDB: it takes a while."""
    made_from = _digest()
    known = connection.execute("select comment from duckdb_tables() where table_name = 'migration'").fetchall()
    if known != [(made_from,)]:
        with transaction(connection):  # a third quicker than by themselves, and all of them or none
            create_views(connection)
            choose_form(connection)
            connection.execute(f"comment on table migration is '{made_from}'")


def _digest() -> str:
    made_from = [
        duckdb.__version__,
        *(sql for folder in ("schema", "macros/plain", *_VIEWS) for sql in read_sql(folder).values()),
    ]
    return blake2s("\0".join(made_from).encode(), digest_size=16).hexdigest()


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make every macro and view again, each after those that it builds on, so their files need no order.

    Raises:
        Misconfigured: says which file is not understood.
    """
    # Old ones first: a view that is gone must not linger, and a stale one must not be built on.
    old = connection.execute("select view_name from duckdb_views() where not internal and not temporary").fetchall()
    for (name,) in old:
        connection.execute(f'drop view "{name}"')
    made = {name: sql for folder in _VIEWS for name, sql in read_sql(folder).items()}
    for name in in_order(made):
        try:
            connection.execute(made[name])
        except duckdb.CatalogException as error:  # it names what is not there
            raise Misconfigured(f"sql/**/{name}.sql: {first_line(error)}") from None


def in_order(statements: Mapping[str, str]) -> list[str]:
    """The names of views and macros, those that others read or call before these."""
    any_name = "|".join(statements)
    names_another = re.compile(rf"(?i)\b(?:from|join)\s+({any_name})\b|\b({any_name})\(")
    needed = {}
    for name, sql in statements.items():
        code = re.sub("--.*", "", sql.partition("\ncomment on ")[0])
        needed[name] = {found for pair in names_another.findall(code) for found in pair if found} - {name}
    return list(TopologicalSorter(needed).static_order())


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
