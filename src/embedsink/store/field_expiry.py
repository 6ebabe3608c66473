"""The deletion of single fields after their retention. The events remain, and so do the reports that count them."""

from collections.abc import Callable
from datetime import datetime, timedelta

import duckdb

from embedsink.store.expiry import first_ingest_seq_to_keep
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

# The maximum number of events that are selected for a transaction. Changes stay in memory until the next checkpoint.
CHANGED_AT_ONCE = 50_000
# A question may have stages that were loaded later. They are changed together.
_QUESTION_DURATION_MAX = timedelta(days=1)


def clear_extra(connection: duckdb.DuckDBPyConnection, *, loaded_before: datetime) -> int:
    """Delete the fields that are not in the protocol from events and actions that were loaded before a time.

    Args:
        connection: a connection to the database, in a transaction.
        loaded_before: the time, in UTC.

    Returns:
        The number of changed events and actions; 0 if nothing remains to delete.
    """
    _select_before(connection, loaded_before)
    connection.execute(read_sql("retention")["clear_extra"])
    [(count,)] = connection.execute("select count(*) from row_with_extra").fetchall()
    return int(count)


def hash_questions(
    connection: duckdb.DuckDBPyConnection, *, loaded_before: datetime, hash_question: Callable[[str], str]
) -> int:
    """Replace the texts of AI questions that were loaded before a time by hashes, so that reports still count them.

    Args:
        connection: a connection to the database, in a transaction.
        loaded_before: the time, in UTC.
        hash_question: returns the hash of a text: `h_` and 32 hexadecimal digits.

    Returns:
        The number of changed events; 0 if no text remains.
    """
    _select_before(connection, loaded_before)
    later_limit = first_ingest_seq_to_keep(connection, loaded_before + _QUESTION_DURATION_MAX)
    set_variables(connection, {"expire_with": later_limit})
    retention = read_sql("retention")
    connection.execute(retention["question_text"])
    texts = [text for (text,) in connection.execute("select distinct query from question_text").fetchall()]
    if not texts:
        return 0
    hashes = [hash_question(text) for text in texts]
    connection.execute("insert into question_hash select unnest($1), unnest($2)", [texts, hashes])
    connection.execute(retention["hash_questions"])
    [(count,)] = connection.execute("select count(*) from hashed_stage").fetchall()
    return int(count)


def _select_before(connection: duckdb.DuckDBPyConnection, loaded_before: datetime) -> None:
    """Set the variables that select the events that were loaded before a time."""
    limit = first_ingest_seq_to_keep(connection, loaded_before)
    set_variables(connection, {"expire_below": limit, "expire_at_once": CHANGED_AT_ONCE})
