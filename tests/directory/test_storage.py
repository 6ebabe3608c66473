"""The directory in memory follows the rules of scim2-server, and undoes changes that did not become durable."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson
import pytest
from scim2_models import (
    InvalidValueException,
    PayloadTooLargeException,
    ResourceType,
    ScimProvider,
    SearchRequest,
    TooManyException,
    UniquenessException,
)
from scim2_server.testing import ScimStorageContract

from embedsink.auth.keys import KeyKind
from embedsink.auth.tokens import new_token
from embedsink.directory import storage as directory_storage
from embedsink.directory.provider import create_provider
from embedsink.directory.resources import GROUP, USER, Resources
from embedsink.directory.storage import RESOURCE_BYTES_MAX, DirectoryFull, DirectoryStorage
from embedsink.ingest.records import DirectoryChange

MIB = 1_048_576
NOW = "2026-11-28T08:00:00Z"
USER_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:User"


@cache
def shared_provider() -> ScimProvider:
    return create_provider(body_bytes_max=MIB)


def type_of(name: str) -> ResourceType:
    [resource_type] = [one for one in shared_provider().resource_types if one.name == name]
    return resource_type


def resource(name: str, **fields: Any) -> Any:
    return shared_provider().model_for(type_of(name)).model_validate(fields)  # type: ignore[union-attr]


def user(name: str, **fields: Any) -> Any:
    return resource(USER, userName=name, **fields)


def group(name: str, *members: str) -> Any:
    return resource(GROUP, displayName=name, members=[{"value": member} for member in members])


class TestContract(ScimStorageContract):
    @pytest.fixture(autouse=True)
    def provider(self) -> Iterator[ScimProvider]:
        with shared_provider() as provider:  # as scim2-server does for each request
            yield provider

    @pytest.fixture
    def storage(self) -> DirectoryStorage:
        return DirectoryStorage(shared_provider(), bytes_max=MIB)


# The API pages by index. With CI set, a skipped test fails.
for name in dir(ScimStorageContract):
    if "cursor" in name:
        setattr(TestContract, name, None)


@pytest.fixture
def storage() -> DirectoryStorage:
    return DirectoryStorage(shared_provider(), bytes_max=MIB)


def create(storage: DirectoryStorage, name: str, value: Any) -> str:
    return str(storage.create(type_of(name), value).id)


def state(storage: DirectoryStorage) -> dict[str, Any]:
    """Return everything that a storage keeps between requests, but the last version."""
    hidden = ("last_version", "models", "_bindings")
    return {name: repr(value) for name, value in vars(storage._resources).items() if name not in hidden}


def test_a_change_of_a_group_records_only_the_changed_members(storage: DirectoryStorage) -> None:
    ids = [create(storage, USER, user(f"u{number}")) for number in range(3)]
    group_id = create(storage, GROUP, group("Analysts", *ids[:2]))
    storage.commit()
    changed = group("Analysts", *ids[1:])
    changed.id = group_id
    storage.update(type_of(GROUP), changed)
    [change] = storage.changes
    assert (change.members_added, change.members_removed) == ((ids[2],), (ids[0],))
    assert change.resource is not None
    assert "members" not in change.resource


def test_a_deleted_user_leaves_its_groups(storage: DirectoryStorage) -> None:
    ann, bob = create(storage, USER, user("ann")), create(storage, USER, user("bob"))
    group_id = create(storage, GROUP, group("Analysts", ann, bob))
    version = storage.get(type_of(GROUP), group_id).meta.version  # type: ignore[union-attr]
    storage.commit()
    storage.delete(type_of(USER), ann)
    assert [(change.resource_id, change.members_removed) for change in storage.changes] == [
        (group_id, (ann,)),
        (ann, ()),
    ]
    analysts: Any = storage.get(type_of(GROUP), group_id)
    assert [member.value for member in analysts.members] == [bob]
    assert analysts.meta.version != version


def test_members_and_groups_refer_to_each_other(storage: DirectoryStorage) -> None:
    ann = create(storage, USER, user("ann", displayName="Ann"))
    inner = create(storage, GROUP, group("Inner", ann))
    outer: Any = storage.get(type_of(GROUP), create(storage, GROUP, group("Outer", inner, ann)))
    assert {(member.value, member.type, str(member.ref)) for member in outer.members} == {
        (inner, "Group", f"Groups/{inner}"),
        (ann, "User", f"Users/{ann}"),
    }
    person: Any = storage.get(type_of(USER), ann)
    assert {one.display for one in person.groups} == {"Inner", "Outer"}


def test_a_password_is_not_stored(storage: DirectoryStorage) -> None:
    create(storage, USER, user("ann", password="hunter2"))
    assert "hunter2" not in repr(vars(storage))


def test_a_key_in_a_text_is_redacted(storage: DirectoryStorage) -> None:
    key = new_token(KeyKind.SCIM)
    ann = create(storage, USER, user("ann", title=f"a {key} b"))
    assert key not in repr(vars(storage))
    assert storage.get(type_of(USER), ann).title.startswith("a es_scim_")  # type: ignore[attr-defined]


def test_the_first_deactivation_counts() -> None:
    times = iter(datetime(2026, 11, 28, hour, tzinfo=UTC) for hour in range(9, 20))
    storage = DirectoryStorage(shared_provider(), bytes_max=MIB, clock=lambda: next(times))
    ann = create(storage, USER, user("ann", active=False))
    for active, title in ((False, "a"), (True, "a"), (False, "a")):
        storage.update(type_of(USER), user("ann", id=ann, active=active, title=title))
    first, second, third, fourth = [change.deactivated_at for change in storage.changes]
    assert first is not None
    assert (second, third) == (first, None)
    assert fourth == first + 3 * 3_600_000


def test_a_change_that_stores_nothing_makes_no_version(storage: DirectoryStorage) -> None:
    ann = create(storage, USER, user("ann", title="a"))
    analysts = create(storage, GROUP, group("Analysts", ann))
    storage.commit()
    before = storage.get(type_of(USER), ann).meta
    assert storage.update(type_of(USER), user("ann", id=ann, title="a", password="hunter2")).meta == before
    same = group("Analysts", ann)
    same.id = analysts
    storage.update(type_of(GROUP), same)
    assert storage.changes == []


def test_a_rollback_restores_everything(storage: DirectoryStorage) -> None:
    ann, bob = create(storage, USER, user("ann", active=False)), create(storage, USER, user("bob", externalId="b"))
    analysts = create(storage, GROUP, group("Analysts", ann, bob))
    storage.commit()
    before = state(storage)
    renamed = user("anna", externalId="a")
    renamed.id = ann
    storage.update(type_of(USER), renamed)
    storage.delete(type_of(USER), bob)
    create(storage, USER, user("carl"))
    smaller = group("Readers")
    smaller.id = analysts
    storage.update(type_of(GROUP), smaller)
    storage.delete(type_of(GROUP), analysts)
    assert state(storage) != before
    storage.roll_back()
    after = state(storage)
    # The order within dictionaries and sets has no effect.
    assert {name: sorted(text) for name, text in after.items()} == {name: sorted(text) for name, text in before.items()}
    assert storage.changes == []


def test_what_is_deleted_takes_no_memory(storage: DirectoryStorage) -> None:
    before = state(storage)
    for _ in range(3):
        ann = create(storage, USER, user("ann", externalId="a"))
        analysts = create(storage, GROUP, group("Analysts", ann))
        storage.delete(type_of(GROUP), analysts)
        storage.delete(type_of(USER), ann)
    assert state(storage) == before


def test_a_full_directory_accepts_only_what_makes_it_smaller() -> None:
    storage = DirectoryStorage(shared_provider(), bytes_max=2_000)
    ann = user("ann", title="x" * 1_000)
    ann.id = create(storage, USER, ann)
    with pytest.raises(DirectoryFull, match="EMBEDSINK_DIRECTORY_BYTES_MAX"):
        create(storage, USER, user("bob", title="x" * 1_000))
    assert storage.search([type_of(USER)], SearchRequest(start_index=1)).total == 1
    smaller = user("ann")
    smaller.id = ann.id
    storage.update(type_of(USER), smaller)
    create(storage, USER, user("bob", title="x" * 1_300))
    with pytest.raises(DirectoryFull):
        create(storage, GROUP, group("x" * 256))
    assert [change.resource_type for change in storage.changes] == [USER, USER, USER]


def test_a_full_directory_accepts_only_deactivations() -> None:
    full = DirectoryStorage(shared_provider(), bytes_max=1)
    for number in range(3):
        resource = {"schemas": [USER_SCHEMA], "id": str(number), "userName": f"u{number}", "active": True}
        full.apply(DirectoryChange(USER, str(number), resource | {"meta": {"version": 'W/"1"', "created": NOW}}))
    for number in range(3):
        name, id = f"u{number}", str(number)
        with pytest.raises(DirectoryFull):
            full.update(type_of(USER), user(name, id=id, title="x" * 100))
        with pytest.raises(DirectoryFull):
            full.update(type_of(USER), user(name, id=id, active=False, title="x"))
        full.update(type_of(USER), user(name, id=id, active=False))
        with pytest.raises(DirectoryFull):
            full.update(type_of(USER), user(name, id=id, active=False, title="x" * 100))
    with pytest.raises(DirectoryFull):
        create(full, USER, user("v", active=False))
    assert [change.deactivated_at is not None for change in full.changes] == [True] * 3


def test_deactivations_keep_the_maximum_size_of_a_directory() -> None:
    def restarted(versions: dict[str, DirectoryChange]) -> DirectoryStorage:
        storage = DirectoryStorage(shared_provider(), bytes_max=4_000)
        for change in versions.values():
            storage.apply(change)
        return storage

    storage = restarted({})
    ids = [create(storage, USER, user(f"u{number}")) for number in range(10)]
    versions = {change.resource_id: change for change in storage.changes}
    for _ in range(3):
        storage = restarted(versions)
        for number, resource_id in enumerate(ids):
            storage.update(type_of(USER), user(f"u{number}", id=resource_id, active=True))
            with suppress(DirectoryFull):
                storage.update(type_of(USER), user(f"u{number}", id=resource_id, active=False, title="x" * 900))
        versions |= {change.resource_id: change for change in storage.changes}
        assert sum(len(orjson.dumps(change.resource)) for change in versions.values()) <= 4_000


def test_members_must_exist(storage: DirectoryStorage) -> None:
    ann = create(storage, USER, user("ann"))
    for unknown in ("x", "x" * 1_000_000, new_token(KeyKind.SCIM)):
        with pytest.raises(InvalidValueException) as error:
            create(storage, GROUP, group("Analysts", ann, unknown))
        assert "members: no user and no group has the id" in str(error.value)
        assert len(str(error.value)) < 500
    assert [change.resource_type for change in storage.changes] == [USER]


def test_a_resource_has_a_maximum_size(storage: DirectoryStorage) -> None:
    create(storage, USER, user("ann", title="x" * (RESOURCE_BYTES_MAX - 1_000)))
    with pytest.raises(PayloadTooLargeException, match="65,536 bytes"):
        create(storage, USER, user("bob", title="x" * RESOURCE_BYTES_MAX))


@pytest.mark.parametrize("name", ["", " "])
def test_a_name_is_not_empty(storage: DirectoryStorage, name: str) -> None:
    for resource_type, value in ((USER, user(name)), (GROUP, group(name))):
        with pytest.raises(InvalidValueException, match="is empty"):
            create(storage, resource_type, value)


def test_unknown_schemas_are_not_stored(storage: DirectoryStorage) -> None:
    ann = user("ann")
    ann.schemas = [*ann.schemas, "x"]
    assert storage.get(type_of(USER), create(storage, USER, ann)).schemas == [USER_SCHEMA]


def test_a_search_ends_after_its_time(storage: DirectoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        create(storage, USER, user(f"u{number}"))
    monkeypatch.setattr(directory_storage, "REQUEST_S_MAX", -1.0)
    storage.begin()
    model = shared_provider().model_for(type_of(USER))
    for query in ({"filter": 'title eq "x"'}, {"sortBy": "title"}, {}):
        request = SearchRequest[model].model_validate(query | {"startIndex": 1})  # type: ignore[valid-type]
        with pytest.raises(TooManyException, match="compare only userName"):
            storage.search([type_of(USER)], request)


@pytest.mark.parametrize(
    ("filter", "read_count"),
    [
        ('userName eq "U7"', 1),
        ('urn:ietf:params:scim:schemas:core:2.0:User:userName eq "u7"', 1),
        ('externalId eq "e7"', 1),
        ('externalId eq "E7"', 0),
        ('userName eq "missing"', 0),
        ('title eq "t7"', 20),
    ],
)
def test_a_lookup_by_name_or_external_id_reads_one_resource(
    storage: DirectoryStorage, monkeypatch: pytest.MonkeyPatch, filter: str, read_count: int
) -> None:
    for number in range(20):
        create(storage, USER, user(f"u{number}", externalId=f"e{number}", title=f"t{number}"))
    model = shared_provider().model_for(type_of(USER))
    request = SearchRequest[model].model_validate({"filter": filter, "startIndex": 1})  # type: ignore[valid-type]
    read_ids: list[str] = []
    read = Resources.read

    def counted(self: Resources, name: str, resource_id: str, **options: bool) -> Any:
        read_ids.append(resource_id)
        return read(self, name, resource_id, **options)

    monkeypatch.setattr(Resources, "read", counted)
    found = storage.search([type_of(USER)], request).total
    assert (len(read_ids) - (found or 0), found) == (read_count, min(read_count, 1))


@pytest.mark.parametrize("names", ["straße strasse", "ａnn ann", "ﬁn fin", "Ann ann", "e\u0301va éva", "İ i\u0307"])
def test_two_user_names_are_equal_if_a_filter_says_so(storage: DirectoryStorage, names: str) -> None:
    first, second = names.split()
    create(storage, USER, user(first))
    model = shared_provider().model_for(type_of(USER))
    query = {"filter": f'userName eq "{second}"', "startIndex": 1}
    request = SearchRequest[model].model_validate(query)  # type: ignore[valid-type]
    found = storage.search([type_of(USER)], request).total
    assert request.filter is not None
    assert found == request.filter.match(user(first))
    if found:
        with pytest.raises(UniquenessException):
            create(storage, USER, user(second))
    else:
        create(storage, USER, user(second))


def test_deleted_users_are_returned_as_they_were_committed(storage: DirectoryStorage) -> None:
    ann = create(storage, USER, user("ann", title="a"))
    storage.commit()
    storage.update(type_of(USER), user("anna", id=ann, title="b"))
    storage.delete(type_of(USER), ann)
    storage.delete(type_of(USER), create(storage, USER, user("bob")))
    assert [one["userName"] for one in storage.deleted_users()] == ["ann"]
