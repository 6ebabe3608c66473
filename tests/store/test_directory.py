"""The directory's tables after loads: the newest version of each user and group, and the members of groups."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from embedsink.ingest.records import DirectoryChange, directory_line, read_directory_changes
from embedsink.key_scope import EVERYTHING
from embedsink.store.database import Store
from embedsink.store.limits import StoreLimits
from tests.support.envelopes import RECEIVED_AT
from tests.support.loaded_store import LoadedStore

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
ANN: dict[str, Any] = {
    "id": "u1",
    "externalId": "ann",
    "userName": "ann@example.com",
    "displayName": "Ann",
    "active": True,
    "emails": [{"value": "a@home.example"}, {"value": "ann@work.example", "primary": True}],
    ENTERPRISE: {"department": "Sales", "employeeNumber": "12"},
}


def user(resource: dict[str, Any] | None = ANN, *, id: str = "u1", deactivated_at: int | None = None) -> bytes:
    change = DirectoryChange("User", id, resource, deactivated_at)
    return directory_line(change, received_at=RECEIVED_AT)


def group(*, added: tuple[str, ...] = (), removed: tuple[str, ...] = (), name: str | None = "Analysts") -> bytes:
    resource = None if name is None else {"id": "g1", "displayName": name}
    change = DirectoryChange("Group", "g1", resource, members_added=added, members_removed=removed)
    return directory_line(change, received_at=RECEIVED_AT)


def members(loaded_store: LoadedStore) -> list[str]:
    return [id for (id,) in loaded_store.query("select user_id from directory_member order by user_id")]


def users(loaded_store: LoadedStore) -> list[tuple[Any, ...]]:
    return loaded_store.query(
        "select user_id, viewer, display_name, department, is_active from directory_user order by 1"
    )


def test_a_line_is_read_as_the_change_that_was_written() -> None:
    changes = [
        DirectoryChange("User", "u1", ANN, deactivated_at=RECEIVED_AT),
        DirectoryChange("User", "u1", None),
        DirectoryChange("Group", "g1", {"id": "g1"}, members_added=("u1",), members_removed=("u2", "u3")),
    ]
    lines = b"".join(directory_line(change, received_at=1) for change in changes)
    assert list(read_directory_changes(b'{"kind":"event"}\n' + lines)) == list(enumerate(changes, start=2))


def test_a_user_is_stored_in_its_newest_version(loaded_store: LoadedStore) -> None:
    loaded_store.lines(user(), user(ANN | {"displayName": "Anna"}))
    assert users(loaded_store) == [("u1", "ann", "Anna", "Sales", True)]
    loaded_store.lines(user(ANN | {"active": False}, deactivated_at=RECEIVED_AT))
    assert users(loaded_store) == [("u1", "ann", "Ann", "Sales", False)]
    [(deactivated_at,)] = loaded_store.query("select deactivated_at from directory_user")
    assert deactivated_at.replace(tzinfo=UTC) == datetime.fromtimestamp(RECEIVED_AT / 1000, UTC)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"name": {"formatted": "Ann B. Clark", "givenName": "Ann"}}, "Ann B. Clark"),
        ({"name": {"givenName": "Ann", "familyName": "Clark"}}, "Ann Clark"),
        ({"name": {"familyName": "Clark"}}, "Clark"),
        ({"name": {}}, None),
        ({}, None),
    ],
    ids=["formatted", "both names", "one name", "empty", "missing"],
)
def test_a_user_without_a_display_name_is_shown_by_its_name(
    loaded_store: LoadedStore, fields: dict[str, Any], name: str | None
) -> None:
    loaded_store.lines(user({"id": "u1", "userName": "ann", **fields}))
    assert users(loaded_store) == [("u1", None, name, None, True)]


def test_nothing_of_a_deleted_user_is_stored_but_its_id(loaded_store: LoadedStore) -> None:
    loaded_store.lines(user(), group(added=("u1", "u2")))
    loaded_store.lines(user(None), group(removed=("u1",)))
    [row] = loaded_store.query("select * exclude (ingest_seq, received_at) from directory_user")
    assert row == ("u1", *[None] * (len(row) - 1))
    assert members(loaded_store) == ["u2"]


def test_members_are_added_and_removed_in_the_order_of_the_lines(loaded_store: LoadedStore) -> None:
    loaded_store.lines(group(added=("u1", "u2", "u3")), group(removed=("u1", "u2")), group(added=("u1",)))
    assert members(loaded_store) == ["u1", "u3"]
    loaded_store.lines(group(added=("u2",), removed=("u3",)), group(name=None, removed=("u1", "u2")))
    assert members(loaded_store) == []
    assert loaded_store.query("select name, resource from directory_group") == [(None, None)]


def test_an_older_segment_that_is_loaded_later_changes_nothing(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path)
    loaded_store.count = 7
    loaded_store.lines(user(None), group(added=("u2",)))
    loaded_store.count = 3
    loaded_store.lines(user(), group(added=("u1",), name="Former"))
    assert users(loaded_store) == [("u1", None, None, None, None)]
    assert members(loaded_store) == ["u2"]
    assert loaded_store.query("select name from directory_group") == [("Analysts",)]


@pytest.mark.parametrize(
    ("attribute", "viewer"),
    [
        ("externalId", "ann"),
        ("userName", "ann@example.com"),
        ("emails", "ann@work.example"),
        ("employeeNumber", "12"),
    ],
)
def test_another_viewer_attribute_applies_after_a_restart(tmp_path: Path, attribute: str, viewer: str) -> None:
    first = LoadedStore(tmp_path, StoreLimits(viewer_attribute="userName"))
    first.lines(user(), user(None, id="u2"))
    first.store.close()
    store = Store(first.store.path, StoreLimits(viewer_attribute=attribute))
    store.open()
    with store.reader(EVERYTHING.variables()) as reader:
        rows = reader._execute("select user_id, viewer from directory_user order by 1").fetchall()
    assert rows == [("u1", viewer), ("u2", None)]
    store.close()


def test_the_first_of_emails_without_a_primary_one_is_the_viewer(tmp_path: Path) -> None:
    loaded_store = LoadedStore(tmp_path, StoreLimits(viewer_attribute="emails"))
    loaded_store.lines(user({"id": "u1", "emails": [{"value": "first"}, {"value": "second"}]}))
    loaded_store.lines(user({"id": "u2"}, id="u2"))
    assert loaded_store.query("select viewer from directory_user order by user_id") == [("first",), (None,)]


def test_a_reader_with_limits_sees_no_resource(loaded_store: LoadedStore) -> None:
    loaded_store.lines(user(), group(added=("u2", "u1")))
    with loaded_store.store.reader(EVERYTHING.variables()) as reader:
        rows = {row["resource_type"]: row for row in reader.dicts("directory_resource")}
    assert (rows["User"]["members"], sorted(rows["Group"]["members"])) == (None, ["u1", "u2"])
    for limit in ({"deployments": [1]}, {"tenants": ["acme"]}):
        with loaded_store.store.reader({**EVERYTHING.variables(), **limit}) as reader:
            assert reader.dicts("directory_resource") == []


def damaged_copy(loaded_store: LoadedStore, name: str) -> Path:
    """Return a copy of the store, as a file from which rows are salvaged."""
    loaded_store.store.checkpoint()
    copy = loaded_store.folder / name
    copy.write_bytes(loaded_store.store.path.read_bytes())
    return copy


def test_salvaged_rows_never_replace_newer_versions(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    old = LoadedStore(tmp_path / "old")
    old.lines(user(), user(ANN | {"id": "u2"}, id="u2"))
    old.lines(user(ANN | {"displayName": "Anna"}), group(added=("u1", "u2")))
    (tmp_path / "new").mkdir()
    new = LoadedStore(tmp_path / "new")
    new.count = 2
    new.lines(user(ANN | {"displayName": "Annika"}))
    new.store.salvage([damaged_copy(old, "damaged.duckdb")], journal_numbers=[])
    names = new.query("select user_id, display_name from directory_user order by 1")
    assert names == [("u1", "Annika"), ("u2", "Ann")]
    assert members(new) == ["u1", "u2"]
    assert new.failed_checks() == {}
