"""What texts have in common: the macro that folds questions and messages."""

from collections.abc import Iterator

import duckdb
import pytest

from embedsink.sqlfiles import read_sql


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(read_sql("macros")["shape_of"])
        yield connection


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("s_6820212c69599354 is gone", "s_# is gone"),
        ("job 3f2a9c failed", "job # failed"),
        ("job f3a29c failed", "job # failed"),
        ("job deadbeef failed", "job # failed"),
        ("at 0xDEADBEEF", "at #"),
        ("at 0x1f", "at #"),
        ("id=550e8400-e29b-41d4-a716-446655440000;", "id=#;"),
        ("a1b2c3 and d4e5f6", "# and #"),
        ("-5 rows", "# rows"),
        ("+7 rows (-3.5)", "# rows (#)"),
        ("٣ rows, १२ more", "# rows, # more"),
        ("wide\u3000 \u00a0space\u2003 ", "wide space"),
        ("took 1.5ms", "took #ms"),
        ("1234567.89 of 12,345,678", "# of #"),
        ("since 2026-11-01", "since #"),
        # Words, and what is a name rather than a number.
        ("The facade of week-5", "the facade of week-#"),
        ("b2b in q3", "b#b in q#"),
        ("decade by decade", "decade by decade"),
    ],
)
def test_case_spacing_numbers_and_ids_are_folded_and_words_are_not(
    connection: duckdb.DuckDBPyConnection, text: str, shape: str
) -> None:
    assert connection.execute("select shape_of($1)", [text]).fetchall() == [(shape,)]
