"""The deletion of a person's rows, with all that was derived from them."""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from embedsink.store.insert import fill_session_ready
from embedsink.store.ledger import count_removed
from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

_SELECTED = """
select
    (select count(*) from erased_envelope where direction = 'event'),
    (select count(*) from erased_envelope where direction = 'action'),
    (select count(*) from erased_rejection),
    (select count(*) from loss where (key_id, session) in (from erased_session)),
    (select list(text order by text) from erased_text)
"""


@dataclass(frozen=True, slots=True)
class ErasedRows:
    """The deleted rows of one person.

    Args:
        event_count: the number of events.
        action_count: the number of actions.
        rejection_count: the number of quarantined rejections.
        loss_count: the number of losses in the person's sessions.
        texts: a session and up to 3 long texts that only this person's events contained.
    """

    event_count: int
    action_count: int
    rejection_count: int
    loss_count: int
    texts: tuple[str, ...]


def delete_person(connection: duckdb.DuckDBPyConnection, variables: Mapping[str, object]) -> ErasedRows:
    """Delete the rows of a person. Return what was deleted.

    Args:
        connection: a connection to the store, in a transaction. Its session variables are changed.
        variables: the variables that select the person, as `Person.variables` returns them.
    """
    erasure = read_sql("erasure")
    set_variables(connection, variables)
    connection.execute(erasure["select"])
    connection.execute(erasure["relate"])
    [(event_count, action_count, rejection_count, loss_count, texts)] = connection.execute(_SELECTED).fetchall()
    connection.execute(erasure["delete"])
    count_removed(connection)
    # For each person: in shared sessions, the remaining `ready` events may name other deployments, which decide what
    # belongs to the next person.
    fill_session_ready(connection)
    return ErasedRows(event_count, action_count, rejection_count, loss_count, tuple(texts or ()))
