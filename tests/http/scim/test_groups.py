"""Changes of the members of small and large groups, and the limits of requests."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from embedsink.auth.keys import KeyKind
from embedsink.auth.tokens import new_token
from embedsink.directory import search, storage
from embedsink.directory.limits import ATTRIBUTES_MAX, BULK_OPERATIONS_MAX, SHORT_BODY_BYTES_MAX, VALUES_MAX
from embedsink.directory.resources import Resources
from embedsink.directory.storage import RESOURCE_BYTES_MAX
from embedsink.ingest.records import DirectoryChange, directory_line
from embedsink.journal.segment import trailer
from tests.http.scim.test_access import assert_scim_error
from tests.support.app import Server, open_server
from tests.support.stores import make_folder

BULK = "urn:ietf:params:scim:api:messages:2.0:BulkRequest"
SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Group"
MEMBER_COUNT = 30_000
# One request with a large group. Objects of its members would take seconds.
REQUEST_S_MAX = 0.7
PREFIX = "/api/scim/v2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server whose directory has users, and a group of many of them."""
    folder = make_folder(tmp_path_factory.mktemp("data"))
    ids = [f"u{number}" for number in range(MEMBER_COUNT)]
    changes = [DirectoryChange("User", name, {"id": name, "userName": name, "meta": meta("User", 1)}) for name in ids]
    group = {"id": "large", "displayName": "Large", "meta": meta("Group", 2)}
    changes.append(DirectoryChange("Group", "large", group, members_added=tuple(ids)))
    lines = b"".join(directory_line(change, received_at=0) for change in changes)
    (folder.journal / "000000000001-00000000.ndjson").write_bytes(lines + trailer(lines))
    with open_server(folder.path) as server:
        yield server


def meta(name: str, version: int) -> dict[str, str]:
    return {"resourceType": name, "created": "2026-11-28T08:00:00Z", "version": f'W/"{version}"'}


@pytest.fixture
def scim(server: Server) -> Any:
    key = server.key("scim")

    def send(method: str, path: str, body: Any = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/scim+json"}
        content = body if isinstance(body, str) else json.dumps(body)
        return server.request(method, f"{PREFIX}{path}", headers=headers, content=content if body is not None else None)

    return send


def patch(scim: Any, group_id: str, *operations: dict[str, Any], query: str = "") -> httpx2.Response:
    response: httpx2.Response = scim("PATCH", f"/Groups/{group_id}{query}", {"Operations": list(operations)})
    return response


def members(scim: Any, group_id: str) -> set[str]:
    return {member["value"] for member in scim("GET", f"/Groups/{group_id}").json().get("members", ())}


def values(*ids: str) -> list[dict[str, str]]:
    return [{"value": one} for one in ids]


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "members", "value": values("u2", "u3")}], {"u0", "u1", "u2", "u3"}),
        ([{"op": "Add", "path": "Members", "value": {"value": "u2", "display": "b"}}], {"u0", "u1", "u2"}),
        ([{"op": "add", "value": {"members": values("u2"), "displayName": "B"}}], {"u0", "u1", "u2"}),
        ([{"op": "replace", "path": "members", "value": values("u2")}], {"u2"}),
        ([{"op": "replace", "path": "members", "value": []}], set()),
        ([{"op": "replace", "value": {"members": values("u2", "u2")}}], {"u2"}),
        ([{"op": "remove", "path": "members"}], set()),
        ([{"op": "remove", "path": 'members[value eq "u0"]'}], {"u1"}),
        ([{"op": "remove", "path": 'members[value eq "u9"]'}], {"u0", "u1"}),
        ([{"op": "Remove", "path": "members", "value": values("u0", "u9")}], {"u1"}),
        ([{"op": "add", "value": {SCHEMA: {"members": values("u2"), "displayName": "B"}}}], {"u0", "u1", "u2"}),
        ([{"op": "replace", "path": SCHEMA, "value": {"Members": values("u2"), "displayName": "B"}}], {"u2"}),
        ([{"op": "add", "path": "", "value": {"members": values("u2")}}], {"u0", "u1", "u2"}),
        ([{"op": "add", "value": {f"{SCHEMA}:members": values("u2")}}], {"u0", "u1", "u2"}),
        # Attributes of other schemas are ignored.
        ([{"op": "replace", "value": {"urn:example:ext:members": [], "displayName": "B"}}], {"u0", "u1"}),
        ([{"op": "add", "value": {"urn:example:ext:members": ["x"], "displayName": "B"}}], {"u0", "u1"}),
        ([{"op": "add", "value": {"urn:ietf:params:scim:schemas:core:2.0:User:members": []}}], {"u0", "u1"}),
        (
            [{"op": "add", "value": {SCHEMA: {"members": values("u2")}, "members": values("u3")}}],
            {"u0", "u1", "u2", "u3"},
        ),
        ([{"op": "add", "path": " members", "value": values("u2")}], {"u0", "u1", "u2"}),
        ([{"op": "remove", "path": ' members [value eq "U0"]'}], {"u1"}),
        ([{"op": "remove", "path": 'members\t[value eq "u0"]'}], {"u1"}),
        (
            [
                {"op": "remove", "path": f"{SCHEMA}:members"},
                {"op": "add", "path": "members", "value": values("u3")},
            ],
            {"u3"},
        ),
    ],
)
def test_a_patch_changes_the_members(scim: Any, operations: list[dict[str, Any]], expected: set[str]) -> None:
    group_id = scim("POST", "/Groups", {"displayName": "A", "members": values("u0", "u1")}).json()["id"]
    response = patch(scim, group_id, *operations)
    assert (response.status_code, response.content) == (204, b"")
    assert members(scim, group_id) == expected
    group = scim("GET", f"/Groups/{group_id}").json()
    assert group["displayName"] == ("B" if "displayName" in str(operations) else "A")
    assert response.headers["etag"] == group["meta"]["version"]
    of_user = scim("GET", "/Users/u3").json().get("groups", ())
    assert (group_id in {one["value"] for one in of_user}) == ("u3" in expected)


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ({"op": "add", "path": "members", "value": ["u2"]}, 400),
        ({"op": "add", "value": {"members": values("u1"), "": 1}}, 400),
        ({"op": "replace", "value": {"members.value": None}}, 400),
        ({"op": "replace", "value": {SCHEMA: {'members[value eq "u0"]': values("u2")}}}, 400),
        ({"op": "replace", "value": {SCHEMA: {'members[value eq "u0"].value': None}}}, 400),
        ({"op": "add", "path": "members", "value": [{"display": "u2"}]}, 400),
        ({"op": "add", "path": "members", "value": values("unknown")}, 400),
        ({"op": "remove", "path": 'members[type eq "User"]'}, 400),
        ({"op": "remove", "path": "members.value"}, 400),
        ({"op": "remove", "path": 'members[value eq "u0" or value eq "u1"]'}, 400),
        ({"op": "replace", "path": 'members[value eq "u0"].value', "value": "u2"}, 400),
    ],
)
def test_an_invalid_patch_changes_no_member(scim: Any, operation: dict[str, Any], status: int) -> None:
    created = scim("POST", "/Groups", {"displayName": "A", "members": values("u0")}).json()
    assert_scim_error(patch(scim, created["id"], {"op": "remove", "path": "members"}, operation), status)
    assert scim("GET", f"/Groups/{created['id']}").json() == created


def test_a_patch_with_attributes_is_answered_with_them(scim: Any) -> None:
    group_id = scim("POST", "/Groups", {"displayName": "A"}).json()["id"]
    add = {"op": "add", "path": "members", "value": values("u0")}
    assert patch(scim, group_id, add, query="?attributes=members.value").json()["members"] == values("u0")
    assert "members" not in patch(scim, group_id, add, query="?attributes=displayName").json()


def test_a_patch_without_an_effect_makes_no_version(scim: Any) -> None:
    created = scim("POST", "/Groups", {"displayName": "A", "members": values("u0")}).json()
    assert patch(scim, created["id"], {"op": "add", "path": "members", "value": values("u0")}).status_code == 204
    assert scim("GET", f"/Groups/{created['id']}").json()["meta"] == created["meta"]


def test_a_patch_in_a_bulk_request_is_the_same(scim: Any) -> None:
    group_id = scim("POST", "/Groups", {"displayName": "A", "members": values("u0")}).json()["id"]
    manager = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager"
    operations = [
        {"method": "PATCH", "path": f"/Groups/{group_id}", "data": data([{"op": "remove", "path": "members"}])},
        {"method": "PATCH", "path": "/Users/u5", "data": data([{"op": "Add", "path": manager, "value": "u6"}])},
    ]
    body = {"schemas": [BULK], "Operations": operations}
    response = scim("POST", "/Bulk", body)
    assert [one["status"] for one in response.json()["Operations"]] == ["200", "200"], response.text
    assert members(scim, group_id) == set()
    assert scim("GET", "/Users/u5").json()[manager.rpartition(":")[0]]["manager"]["value"] == "u6"


def data(operations: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": operations}


def test_a_large_group_is_changed_quickly(scim: Any) -> None:
    scim("GET", "/Groups/large?excludedAttributes=members")
    for request in (
        lambda: patch(scim, "large", {"op": "remove", "path": 'members[value eq "u7"]'}),
        lambda: patch(scim, "large", {"op": "add", "path": "members", "value": values("u7")}),
        lambda: patch(scim, "large", {"op": "replace", "path": "displayName", "value": "Larger"}),
        lambda: patch(scim, "large", *({"op": "remove", "path": f'members[value eq "u{n}"]'} for n in range(200))),
        lambda: scim("GET", "/Groups/large?excludedAttributes=members"),
        lambda: scim("GET", '/Groups?filter=displayName eq "larger"&excludedAttributes=members'),
    ):
        began_at = time.perf_counter()
        response = request()
        assert response.status_code in (200, 204)
        assert time.perf_counter() - began_at < REQUEST_S_MAX
    assert members(scim, "large") == {f"u{number}" for number in range(200, MEMBER_COUNT)}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/Users?attributes=" + ",".join(["id"] * (ATTRIBUTES_MAX + 1)), None),
        ("/Users/u1?excludedAttributes=" + ",".join(["title"] * (ATTRIBUTES_MAX + 1)), None),
        ("/Users/.search", {"attributes": ["userName"] * (ATTRIBUTES_MAX + 1)}),
        ("/Users/.search", {"attributes": ",".join(["title"] * (ATTRIBUTES_MAX + 1))}),
        ("/.search", {"excludedAttributes": [",".join(["title"] * (ATTRIBUTES_MAX + 1))]}),
        ("/Users/.search", {"Excluded_Attributes": ["title"] * (ATTRIBUTES_MAX + 1)}),
    ],
    ids=["list", "user", "search", "text", "list of a text", "Python name"],
)
def test_a_request_names_a_limited_number_of_attributes(scim: Any, path: str, body: Any) -> None:
    response = scim("GET" if body is None else "POST", path, body)
    assert_scim_error(response, 400)
    assert response.json()["detail"] == "A request can name at most 100 attributes. Name fewer."


def test_a_patch_ends_after_its_time(scim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = scim("GET", "/Users/u1").json()
    replacement = {"op": "replace", "path": "title", "value": "x"}
    bulk = [
        {"method": "PATCH", "path": "/Users/u1", "data": data([replacement])},
        {"method": "PUT", "path": "/Users/u1", "data": {"schemas": before["schemas"], "userName": "x"}},
        {"method": "POST", "path": "/Users", "bulkId": "b", "data": {"schemas": before["schemas"], "userName": "y"}},
        {"method": "DELETE", "path": "/Users/u1"},
    ]
    monkeypatch.setattr(storage, "REQUEST_S_MAX", 0.0)
    response = scim("PATCH", "/Users/u1", {"Operations": [replacement]})
    assert_scim_error(response, 400)
    assert response.json()["scimType"] == "tooMany"
    operations = scim("POST", "/Bulk", {"schemas": [BULK], "Operations": bulk}).json()["Operations"]
    assert [operation["status"] for operation in operations] == ["400"] * 4
    monkeypatch.undo()
    assert scim("GET", "/Users/u1").json() == before


def test_a_hostile_patch_delays_others_for_seconds_only(scim: Any) -> None:
    emails = [{"value": f"{number}@example.com", "type": f"t{number}"} for number in range(VALUES_MAX)]
    user = scim("POST", "/Users", {"userName": "hostile", "emails": emails}).json()
    selection = " or ".join(f'value co "q{number}"' for number in range(40))
    operation = {"op": "replace", "path": f'emails[{selection} or value co "9@"].type', "value": "z"}
    began_at = time.perf_counter()
    assert_scim_error(scim("PATCH", f"/Users/{user['id']}", {"Operations": [operation] * 100}), 400)
    assert time.perf_counter() - began_at < 30
    assert scim("GET", f"/Users/{user['id']}").json() == user


@pytest.mark.parametrize(
    ("path", "attribute"), [("/Groups", "members"), ("/Users", "groups")], ids=["members of groups", "groups of users"]
)
def test_a_filter_compares_a_limited_number_of_references(
    scim: Any, monkeypatch: pytest.MonkeyPatch, path: str, attribute: str
) -> None:
    group_id = scim("POST", "/Groups", {"displayName": "A", "members": values("u0", "u1", "u2")}).json()["id"]
    found_id, value = (group_id, "u0") if path == "/Groups" else ("u0", group_id)
    total = scim("GET", f"{path}?count=0").json()["totalResults"]
    monkeypatch.setattr(storage, "REQUEST_S_MAX", 60.0)
    monkeypatch.setattr(Resources, "reference_count", lambda *_: 1)
    monkeypatch.setattr(search, "REFERENCE_COMPARISONS_MAX", 2 * total)
    for count, status in ((2, 200), (3, 400)):
        comparison = " or ".join([f'value eq "{value}"'] * count)
        response = scim("GET", f"{path}?filter={attribute}[{comparison}]&attributes=id")
        assert response.status_code == status
        found = {one["id"] for one in response.json().get("Resources", ())}
        assert (found_id in found) == (status == 200)
    assert response.json()["scimType"] == "tooMany"
    many_names = " or ".join(['displayName eq "A"'] * 9)
    assert scim("GET", f"/Groups?filter={many_names}").status_code == 200


def test_words_in_a_value_are_no_comparisons(scim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    group_id = scim("POST", "/Groups", {"displayName": "All members and or and", "members": values("u0")}).json()["id"]
    monkeypatch.setattr(search, "REFERENCE_COMPARISONS_MAX", 0)
    filter = 'displayName eq "All members and or and" or displayName eq "groups"'
    assert [one["id"] for one in scim("GET", f"/Groups?filter={filter}").json()["Resources"]] == [group_id]


@pytest.mark.parametrize("attribute", ["members", "groups"])
def test_a_response_has_a_limited_number_of_references(
    scim: Any, monkeypatch: pytest.MonkeyPatch, attribute: str
) -> None:
    user = {"userName": f"referenced by {attribute}"}
    user_id = scim("POST", "/Users", user).json()["id"]
    group = {"displayName": f"Of {attribute}", "members": values(user_id, "u0", "u1")}
    group_ids = sorted(scim("POST", "/Groups", group).json()["id"] for _ in range(3))
    collection, one, body = ("/Users", user_id, user) if attribute == "groups" else ("/Groups", group_ids[0], group)
    name = next(iter(body))
    found = f"{collection}?filter={name} eq {json.dumps(body[name])}"
    path = f"{collection}/{one}"
    monkeypatch.setattr(search, "RESPONSE_REFERENCES_MAX", 2)
    for response in (
        scim("GET", path),
        scim("GET", found),
        scim("GET", f"{found}&sortBy={attribute}.value&count=1"),
        scim("GET", f"{path}?attributes={attribute}.value"),
        scim("PUT", path, body),
        scim("PATCH", f"{path}?attributes={attribute}", {"Operations": [{"op": "remove", "path": "externalId"}]}),
    ):
        assert_scim_error(response, 400)
        assert response.json()["scimType"] == "tooMany"
        assert f"Add excludedAttributes={attribute}." in response.json()["detail"]
    without = f"excludedAttributes={attribute}"
    patch = {"Operations": [{"op": "replace", "path": "externalId", "value": "x"}]}
    assert scim("PATCH", path, patch).status_code == 204
    assert scim("PATCH", f"{path}?attributes=externalId", patch).json()["externalId"] == "x"
    assert scim("GET", f"{path}?{without}").json()["externalId"] == "x"
    for query in (without, f"{without}&sortBy={attribute}.value", "attributes=externalId"):
        assert scim("GET", f"{found}&{query}").json()["Resources"][0]["externalId"] == "x"
    assert scim("DELETE", path).status_code == 204


def test_large_resources_are_compared_first(scim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read_ids: list[str] = []
    read = Resources.read

    def recorded(self: Resources, name: str, resource_id: str, **options: bool) -> Any:
        read_ids.append(resource_id)
        return read(self, name, resource_id, **options)

    monkeypatch.setattr(Resources, "read", recorded)
    monkeypatch.setattr(storage, "REQUEST_S_MAX", 60.0)  # a busy machine takes longer than a request may
    response = scim("POST", "/.search", {"filter": 'members.value eq "missing"'})
    assert (response.json()["totalResults"], read_ids[0]) == (0, "large")


def test_the_urn_of_a_schema_requests_all_of_its_attributes(scim: Any) -> None:
    group = scim("POST", "/Groups", {"displayName": "Urn", "members": values("u0")}).json()
    found = scim("GET", f"/Groups/{group['id']}?attributes={SCHEMA}").json()
    assert (found["displayName"], found["members"]) == ("Urn", group["members"])


def test_filters_and_paths_have_a_limited_length(scim: Any) -> None:
    long = " or ".join(["value pr"] * 100)
    for response in (
        scim("GET", f"/Users?filter={long}"),
        scim("POST", "/.search", {"Filter": long}),
        scim("POST", "/.search", {"sort_by": "x" * 1_001}),
        scim("GET", f"/Users?attributes={'x' * 1_001}"),
        scim("PATCH", "/Users/u1", {"Operations": [{"op": "remove", "path": f"emails[{long}]"}]}),
    ):
        assert_scim_error(response, 400)
        assert "at most 1,000 characters" in response.json()["detail"]


def test_a_page_has_a_limited_size(scim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    group = {"displayName": "x" * 256, "members": values("u0", "u1", "u2")}
    ids = [scim("POST", "/Groups", group).json()["id"] for _ in range(5)]
    assert_scim_error(scim("POST", "/Groups", group | {"displayName": "x" * 257}), 400)
    monkeypatch.setattr(search, "PAGE_BYTES_MAX", 5_000)
    found, start = [], 1
    while start <= 5:
        query = f"filter=displayName eq {json.dumps(group['displayName'])}&startIndex={start}"
        page = scim("GET", f"/Groups?{query}").json()
        assert page["totalResults"] == 5
        assert 1 <= page["itemsPerPage"] == len(page["Resources"]) < 5
        found += [one["id"] for one in page["Resources"]]
        start += page["itemsPerPage"]
    assert found == sorted(ids)
    users = scim("GET", "/Users?count=100").json()
    assert (users["totalResults"] > MEMBER_COUNT - 1, 1 <= users["itemsPerPage"] < 10) == (True, True)


def test_a_bug_in_a_bulk_request_undoes_all_of_it(scim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    operations = [
        {"method": "POST", "path": "/Users", "bulkId": "a", "data": {"userName": "before the bug"}},
        {"method": "DELETE", "path": "/Users/u1"},
    ]
    monkeypatch.setattr(storage.DirectoryStorage, "delete", fail)
    response = scim("POST", "/Bulk", {"schemas": [BULK], "Operations": operations})
    monkeypatch.undo()
    assert response.status_code == 500
    assert scim("GET", '/Users?filter=userName eq "before the bug"').json()["totalResults"] == 0


def test_a_body_has_a_limited_number_of_urns(scim: Any) -> None:
    body = {"userName": "x"} | {f"urn:x:{number}": 1 for number in range(1_001)}
    assert_scim_error(scim("POST", "/Users", body), 413)
    escaped = json.dumps(body).replace("urn", "\\u0075rn")
    assert_scim_error(scim("POST", "/Users", escaped), 413)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_body_that_is_not_json_passes_no_limit(scim: Any, number: str) -> None:
    names = ",".join(f'"urn:x:{name}":1' for name in range(1_001))
    response = scim("POST", "/Users", f'{{"userName":"x","y":{number},{names}}}')
    assert_scim_error(response, 400)
    assert response.json()["scimType"] == "invalidSyntax"


def test_the_last_of_two_equal_names_counts_for_the_limits_too(scim: Any) -> None:
    emails = json.dumps([{"value": "x"}] * (VALUES_MAX + 1))
    response = scim("POST", "/Users", f'{{"userName":"twice","emails":{emails},"emails":[]}}')
    assert response.status_code == 201
    assert "emails" not in response.json()


def test_a_patch_in_a_bulk_request_may_have_more_operations_than_the_request(scim: Any) -> None:
    patch_operations = [{"op": "replace", "path": "title", "value": "x"}] * (BULK_OPERATIONS_MAX + 1)
    patches = [{"method": "PATCH", "path": "/Users/u7", "data": data(patch_operations)}]
    response = scim("POST", "/Bulk", {"schemas": [BULK], "Operations": patches})
    assert [one["status"] for one in response.json()["Operations"]] == ["200"]
    assert_scim_error(
        scim("POST", "/Bulk", {"schemas": [BULK], "Operations": patches * (BULK_OPERATIONS_MAX + 1)}), 413
    )


def test_the_case_of_a_members_id_does_not_matter(scim: Any) -> None:
    user_id = scim("POST", "/Users", {"userName": "cased"}).json()["id"]
    group = scim("POST", "/Groups", {"displayName": "Cased", "members": values(user_id.upper())}).json()
    assert members(scim, group["id"]) == {user_id}
    assert scim("PUT", f"/Groups/{group['id']}", group | {"members": values(user_id.upper())}).status_code == 200
    assert members(scim, group["id"]) == {user_id}


def test_a_key_in_any_attribute_is_redacted(scim: Any) -> None:
    key = new_token(KeyKind.ADMIN)
    secret = key.rpartition("_")[2]
    created = scim("POST", "/Users", {"userName": "titled", "title": f"{key} of Ann"})
    assert created.status_code == 201
    assert created.json()["title"].endswith(" of Ann")
    assert secret not in created.text
    assert secret not in scim("GET", "/Users?filter=title pr").text
    refused = scim("POST", "/Users", {"userName": "certified", "x509Certificates": [{"value": key}]})
    assert_scim_error(refused, 400)
    assert secret not in refused.text


def test_an_attribute_has_a_limited_number_of_values(scim: Any) -> None:
    values = [{"value": f"a{number}"} for number in range(VALUES_MAX + 1)]
    user = scim("POST", "/Users", {"userName": "mailed", "emails": values[:-1]}).json()
    remove = {"op": "remove", "path": "emails", "value": values}
    began_at = time.perf_counter()
    for body in (
        b'{"userName":"z","emails":[%b1]}' % (b"1," * 500_000),
        b'{"userName":"z","x":[%b{}]}' % (b"{}," * 340_000),
    ):
        assert_scim_error(scim("POST", "/Users", body.decode()), 400)
    assert_scim_error(scim("POST", "/Groups", '{"displayName":"z","members":[%s1]}' % ("1," * 500_000)), 400)
    assert_scim_error(scim("POST", "/Bulk", '{"Operations":[%s1]}' % ("1," * 120_000)), 413)
    assert_scim_error(scim("PATCH", "/Users/u1", '{"Operations":[%s1]}' % ("1," * 120_000)), 413)
    assert time.perf_counter() - began_at < 5
    for response in (
        scim("POST", "/Users", {"userName": "many", "emails": values}),
        scim("PATCH", f"/Users/{user['id']}", {"Operations": [remove]}),
        scim("PATCH", f"/Users/{user['id']}", {"Operations": [{"op": "replace", "value": {"emails": values}}]}),
    ):
        assert_scim_error(response, 400)
        assert "more than 200 values" in response.json()["detail"]
    assert scim("GET", f"/Users/{user['id']}").json() == user


@pytest.mark.parametrize(
    ("method", "path"), [("PATCH", "/Groups/large"), ("PATCH", "/Users/u1"), ("POST", "/Bulk"), ("POST", "/.search")]
)
def test_a_change_has_a_limited_size(scim: Any, method: str, path: str) -> None:
    response = scim(method, path, {"x": "x" * SHORT_BODY_BYTES_MAX})
    assert_scim_error(response, 413)
    assert response.json()["detail"] == "The body has more than 262,144 bytes. Send it in parts."


def test_one_invalid_operation_of_a_bulk_request_affects_no_other(scim: Any) -> None:
    manager = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager"
    operations = [
        {"method": "PATCH", "path": "/Users/u8", "data": data([{"op": "Add", "path": manager, "value": "u6"}])},
        {"method": "PATCH", "path": "/Users/u9", "data": {}},
    ]
    response = scim("POST", "/Bulk", {"schemas": [BULK], "Operations": operations})
    assert [one["status"] for one in response.json()["Operations"]] == ["200", "400"]


def test_a_resource_has_a_limited_size(scim: Any) -> None:
    assert_scim_error(scim("POST", "/Users", {"userName": "large", "title": "x" * RESOURCE_BYTES_MAX}), 413)


@pytest.mark.parametrize("index", [2**63, 10**20], ids=["64 bits", "more"])
def test_a_large_start_index_is_beyond_the_last_resource(scim: Any, index: int) -> None:
    for response in (
        scim("GET", f"/Users?startIndex={index}"),
        scim("GET", f"/Groups?startIndex={index}"),
        scim("POST", "/.search", {"startIndex": index}),
    ):
        assert (response.status_code, response.json().get("Resources", [])) == (200, [])


def test_a_change_that_stores_nothing_keeps_the_version(scim: Any) -> None:
    person = {"schemas": [SCHEMA.replace("Group", "User")], "userName": "same"}
    user_path = f"/Users/{scim('POST', '/Users', person).json()['id']}"
    group = {"schemas": [SCHEMA], "displayName": "Same", "members": [{"value": user_path.rpartition("/")[2]}]}
    group_path = f"/Groups/{scim('POST', '/Groups', group).json()['id']}"
    password = {"op": "replace", "path": "password", "value": "hunter2"}
    patch = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": [password]}
    for method, path, body in (
        ("PUT", user_path, person | {"password": "hunter2"}),
        ("PATCH", user_path, patch),
        ("PUT", group_path, group),
        ("PUT", group_path, scim("GET", group_path).json()),
    ):
        before = scim("GET", path).json()["meta"]
        assert scim(method, path, body).status_code in (200, 204)
        assert scim("GET", path).json()["meta"] == before
    for path in (user_path, group_path):
        assert scim("DELETE", path).status_code == 204
