"""The macro that reduces questions and messages to their shape."""

import time
from collections.abc import Iterator
from itertools import product

import duckdb
import pytest

from embedsink.store.sql_files import read_sql


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
        # Words and names that contain digits.
        ("The facade of week-5", "the facade of week-#"),
        ("b2b in q3", "b#b in q#"),
        ("decade by decade", "decade by decade"),
    ],
)
def test_case_spacing_numbers_and_ids_are_folded_and_words_are_not(
    connection: duckdb.DuckDBPyConnection, text: str, shape: str
) -> None:
    assert connection.execute("select shape_of($1)", [text]).fetchall() == [(shape,)]


def test_a_hexadecimal_id_is_folded_with_digits_at_any_position(connection: duckdb.DuckDBPyConnection) -> None:
    drawn = ["".join(places) for length in range(6, 11) for places in product("d7", repeat=length)]
    ids = [id for id in drawn if "7" in id or len(id) >= 8]
    shapes = connection.execute("select id, shape_of('job ' || id || ' failed') from unnest($1) as t(id)", [ids])
    assert {id: shape for id, shape in shapes.fetchall() if shape != "job # failed"} == {}


def test_hexadecimal_words_without_a_digit_are_words(connection: duckdb.DuckDBPyConnection) -> None:
    words = ["facade", "decade", "accede", "defaced", "effaced", "acceded", "beef", "cafe5", "a1b2c"]
    shapes = connection.execute("select id, shape_of(id) from unnest($1) as t(id)", [words]).fetchall()
    assert dict(shapes) == {word: word for word in words[:-2]} | {"cafe5": "cafe#", "a1b2c": "a#b#c"}


def test_a_long_text_is_cut_at_whitespace_within_1000_characters(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    words = "no " * 333
    folded = connection.execute(
        "select shape_of($1), shape_of($2), shape_of($3)", [words, f"{words}3f2a9c and on", f"{words}550e8400-e29b x"]
    ).fetchone()
    assert folded == (words.strip(), f"{words}…", f"{words}…")


@pytest.mark.parametrize("marks", ["\u0301" * 500 + "\u0316" * 499, "\u0301" * 999, "\u0f71" * 500 + "\u0f39" * 499])
def test_the_time_is_at_most_proportional_to_the_length_of_a_text(
    connection: duckdb.DuckDBPyConnection, marks: str
) -> None:
    """A delivery may contain a thousand events with such texts. Normalizing them in full takes six seconds."""
    started_at = time.process_time()
    connection.execute("select max(shape_of($1 || number)) from range(1000) as numbers (number)", [f"a{marks}"])
    assert time.process_time() - started_at < 2


def test_combining_marks_are_normalized(connection: duckdb.DuckDBPyConnection) -> None:
    assert connection.execute("select shape_of($1) = shape_of($2)", ["Ḗtat", "E\u0304\u0301tat"]).fetchall() == [
        (True,)
    ]
