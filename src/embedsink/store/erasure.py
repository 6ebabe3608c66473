"""The selection of the rows of people to erase."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from embedsink.store.session_variables import set_variables
from embedsink.store.sql_files import read_sql

_SELECTED = """
select
    (select count(*) from erased_envelope where person = $1 and direction = 'event'),
    (select count(*) from erased_envelope where person = $1 and direction = 'action'),
    (select count(*) from erased_rejection where person = $1),
    (select loss_count from erased_loss where person = $1),
    (select list(text order by text) from erased_text where person = $1)
"""


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The rows of one person.

    Args:
        event_count: the number of events.
        action_count: the number of actions.
        rejection_count: the number of quarantined rejections.
        loss_count: the number of losses in the person's sessions.
        texts: a session and up to 3 long texts that only this person's events contain.
    """

    event_count: int
    action_count: int
    rejection_count: int
    loss_count: int
    texts: tuple[str, ...]


def select_people(connection: duckdb.DuckDBPyConnection, people: Sequence[Mapping[str, object]]) -> list[SelectedRows]:
    """Fill the temporary tables that `sql/erasure/4_delete.sql` reads. Return the rows of each person.

    A row of two people counts for the first of them.

    Args:
        connection: a connection to the store, whose session variables are changed.
        people: the variables that select each person, as `Person.variables` returns them.
    """
    erasure = read_sql("erasure")
    connection.execute(erasure["create"])
    for number, variables in enumerate(people):
        set_variables(connection, {**variables, "person": number})
        connection.execute(erasure["select"])
    connection.execute(erasure["relate"])
    return [_selected(connection, number) for number in range(len(people))]


def _selected(connection: duckdb.DuckDBPyConnection, person: int) -> SelectedRows:
    """Return the rows of a person that `select_people` has selected."""
    [(event_count, action_count, rejection_count, loss_count, texts)] = connection.execute(
        _SELECTED, [person]
    ).fetchall()
    return SelectedRows(event_count, action_count, rejection_count, loss_count, tuple(texts or ()))
