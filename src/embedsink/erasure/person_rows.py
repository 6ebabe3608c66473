"""The rows of a person in the store, and the texts that identify a user of the directory."""

from collections.abc import Iterable
from typing import Any

import orjson

from embedsink.key_scope import EVERYTHING
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.store.database import Store
from embedsink.store.reader import Reader

# The attributes of a user of the directory that identify a person.
_IDENTIFYING = ("userName", "externalId", "displayName")


def count_rows(reader: Reader) -> dict[str, int]:
    """Return how many rows an erasure would remove, by kind. The reader has `Person.variables`."""
    [row] = reader.dicts("person_count")
    return {
        "events": row["event_count"],
        "actions": row["action_count"],
        "rejections": row["rejection_count"],
        "losses": row["loss_count"],
        "directoryUsers": row["directory_user_count"],
    }


def count_all_rows(store: Store, person: Person, privacy: Privacy, *, deleted_user_id: str | None) -> int:
    """Return how many rows of a person the store has. See `directory_users` for the users that count."""
    with store.reader(person.variables(privacy)) as reader:
        counts = count_rows(reader)
    counts["directoryUsers"] = len(directory_users(store, person, privacy, deleted_user_id=deleted_user_id))
    return sum(counts.values())


def count_unnamed_rejections(store: Store, person: Person, privacy: Privacy) -> int | None:
    """Return how many stored rejections without a viewer contain an id of a person; None if the request is limited."""
    if person.is_limited:
        return None
    texts = privacy.stored_forms("viewer", person.viewer)
    with store.reader({**EVERYTHING.variables(), "texts": texts}) as reader:
        [row] = reader.dicts("unnamed_rejection_count")
    count: int = row["rejection_count"]
    return count


def directory_users(
    store: Store, person: Person, privacy: Privacy, *, deleted_user_id: str | None
) -> list[dict[str, Any]]:
    """Return the users of the directory who are the person, with `user_id` and `resource` (JSON).

    Args:
        store: the store.
        person: the person.
        privacy: the privacy rules.
        deleted_user_id: the only user to return; None for all.
    """
    with store.reader(person.variables(privacy)) as reader:
        users = reader.dicts("person_directory")
    return [
        user | {"resource": orjson.loads(user["resource"])}
        for user in users
        if deleted_user_id in (None, user["user_id"])
    ]


def identifying_texts(user: dict[str, Any]) -> Iterable[str]:
    """Yield the texts of a user of the directory that identify the person."""
    for name in _IDENTIFYING:
        if user.get(name):
            yield str(user[name])
    for email in user.get("emails") or ():
        if email.get("value"):
            yield str(email["value"])
