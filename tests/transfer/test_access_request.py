"""The access request: everything about one person, and nothing about anyone else."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest

from embedsink.erasure.person_rows import count_unnamed_rejections
from embedsink.ingest.records import delivery_lines
from embedsink.journal.segment import inspect, trailer
from embedsink.key_scope import EVERYTHING
from embedsink.privacy import erased_people
from embedsink.privacy.hashing import hash_text
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.protocol.delivery import Rejection
from embedsink.reasons import Reason
from embedsink.store.database import Store
from embedsink.transfer.access_request import write_person
from tests.support.envelopes import parse_body, view
from tests.support.given import write_segment
from tests.support.redaction import storable
from tests.support.stores import open_store

SECRETS = [bytes(32), bytes(range(32))]
PRIVACY = Privacy(secrets=SECRETS)
PEOPLE = ("ann", hash_text("viewer", "ann", SECRETS[1]), "bob", "annabel", None)
NOW = datetime(2026, 11, 28, tzinfo=UTC)


def person_events(viewer: str | None, **fields: Any) -> list[dict[str, Any]]:
    """Return events, an action, rejections and losses of a viewer in a session of their own."""
    own = {"viewer": viewer, "session": f"s-{viewer}", **fields}
    return [
        {"type": "view", "title": f"view of {viewer}", **own},
        {"type": "ai-query", "query": f"question of {viewer}", **own},
        {"type": "navigate", "direction": "action", "path": f"/of/{viewer}", **own},
        {"type": "scroll", "rejected": "unknown_type", **own},
        {"lost": {"queue_overflow": 3}, **own},
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("store")
    given = [one for viewer in PEOPLE for one in person_events(viewer)]
    given += person_events("ann", tenant="acme", session="s-acme") + person_events("ann", deployment=2, session="s-2")
    # A session of two people, a rejection of another person, and a session whose `ready` names the tenant.
    given += [{"type": "view", "viewer": viewer, "session": "shared"} for viewer in ("ann", "bob")]
    given += [{"lost": {"shared": 1}, "session": "shared", "viewer": "bob"}]
    given += [{"type": "scroll", "rejected": "unknown_type", "viewer": "bob", "title": "ann", "session": "s-bob"}]
    unknown = {"viewer": "ann", "session": "s-ready", "deployment": None, "surface": "app"}
    given += [{"type": "ready", "embedTenant": "globex", "deploymentId": 9, **unknown}, {"type": "view", **unknown}]
    given += [{"lost": {"queue_overflow": 4}, **unknown}]
    given += [{"type": "scroll", "rejected": "unknown_type", **unknown}]
    # A session that another person shares by an action, one of actions only, and one whose first event has no viewer.
    given += [{"type": "view", "viewer": "ann", "session": "by action"}]
    given += [{"type": "refresh", "direction": "action", "viewer": "bob", "session": "by action"}]
    given += [{"lost": {"shared": 1}, "session": "by action", "viewer": "bob"}]
    given += [{"type": "refresh", "direction": "action", "viewer": "ann", "session": "actions"}]
    given += [{"lost": {"queue_overflow": 6}, "session": "actions"}]
    given += [{"type": "view", "session": "login", "viewer": viewer} for viewer in (None, "ann")]
    given += [{"type": "view", "session": session, "viewer": None} for session in ("shared", None)]
    given += [
        {"user": "ann", "name": "Ann"},
        {"user": "bob", "name": "Bob"},
        {"group": "Analysts", "members": ["ann", "bob"]},
    ]
    store = open_store(folder / "store.duckdb")
    store.load(inspect(write_segment(folder, given)))
    yield store
    store.close()


def archive_of(store: Store, person: Person, privacy: Privacy = PRIVACY) -> dict[str, Any]:
    """Return the content of each file of an archive."""
    file = io.BytesIO()
    with store.reader(person.variables(privacy)) as reader:
        counts = write_person(reader, person, privacy, file, snapshot_at=NOW)
    archive = ZipFile(file)
    content: dict[str, Any] = {
        name: json.loads(archive.read(f"{name}.json")) for name in ("rejections", "losses", "directory", "manifest")
    }
    content["events"] = [json.loads(line) for line in archive.read("events.ndjson").splitlines()]
    assert content["manifest"]["counts"] == counts == {name: len(content[name]) for name in counts}
    return content


def viewers_in(content: list[dict[str, Any]]) -> set[str | None]:
    return {delivery["context"].get("viewer") for delivery in content}


def test_an_archive_has_everything_about_a_person(store: Store) -> None:
    content = archive_of(store, Person("ann"))
    assert viewers_in(content["events"]) == {"ann", PEOPLE[1], None}
    assert len(content["events"]) == 3 * 4 + 1 + 2 + 1 + 1 + 2
    assert [one["context"] for one in content["events"] if "viewer" not in one["context"]] == [
        {"deployment": 1, "session": "login"}
    ]
    assert {one["viewer"] for one in content["rejections"]} == {"ann", PEOPLE[1]}
    assert len(content["rejections"]) == 5
    assert {(one["session"], one["reason"], one["lost_count"]) for one in content["losses"]} == {
        *((f"s-{name}", "queue_overflow", 3) for name in ("ann", PEOPLE[1], "acme", "2")),
        ("s-ready", "queue_overflow", 4),
        ("actions", "queue_overflow", 6),
    }
    [user] = content["directory"]
    assert (user["resource"]["displayName"], user["group_names"]) == ("Ann", ["Analysts"])
    assert content["manifest"]["searchedViewers"] == ["ann", *PRIVACY.hashes("viewer", "ann")]
    assert content["manifest"]["snapshotAt"] == "2026-11-28T00:00:00Z"
    text = json.dumps(content)
    assert "bob" not in text
    assert "annabel" not in text


def test_a_tenant_and_a_deployment_limit_an_archive(store: Store) -> None:
    for person, session in (
        (Person("ann", tenants=frozenset({"acme"})), "s-acme"),
        (Person("ann", deployments=frozenset({2})), "s-2"),
    ):
        content = archive_of(store, person)
        assert {delivery["context"]["session"] for delivery in content["events"]} == {session}
        assert {one["session"] for one in content["losses"]} == {session}
        assert [one["session"] for one in content["rejections"]] == [session]
        assert content["directory"] == []


def test_a_tenant_may_come_from_the_ready_event_of_a_session(store: Store) -> None:
    for person in (Person("ann", tenants=frozenset({"globex"})), Person("ann", deployments=frozenset({9}))):
        content = archive_of(store, person)
        assert [delivery["context"]["session"] for delivery in content["events"]] == ["s-ready"] * 2
        assert [one["lost_count"] for one in content["losses"]] == [4]
        assert [one["session"] for one in content["rejections"]] == ["s-ready"]


@pytest.mark.parametrize(
    "body",
    [
        {"context": {"viewer": "eve", "tenant": "acme", "deployment": 3, "typo": 1}, "events": [view()]},
        [{"context": {"viewer": "eve"}, "events": [view()]}],
        {"events": [{"context": {"viewer": "eve"}, "events": [view()]}]},
    ],
    ids=["context", "array", "nested"],
)
def test_rejected_input_names_a_person(tmp_path: Path, body: Any) -> None:
    store = open_store(tmp_path / "store.duckdb")
    lines = delivery_lines(storable(parse_body(body)), key_id="k1", new_id=uuid4)
    path = tmp_path / "000000000009-00000000.ndjson"
    path.write_bytes(lines + trailer(lines))
    store.load(inspect(path))
    [rejection] = archive_of(store, Person("eve"))["rejections"]
    assert rejection["viewer"] is None
    has_context = isinstance(body, dict) and "context" in body
    for person in (Person("eve", tenants=frozenset({"acme"})), Person("eve", deployments=frozenset({3}))):
        assert len(archive_of(store, person)["rejections"]) == has_context
    for person in (
        Person("ev"),
        Person("eve", tenants=frozenset({"globex"})),
        Person("eve", deployments=frozenset({2})),
    ):
        assert archive_of(store, person)["rejections"] == []
    store.close()


def store_of_rejections(folder: Path, bodies: list[bytes]) -> Store:
    """Return a store with rejected envelopes, which it stores whole."""
    store = open_store(folder / "store.duckdb")
    rejected = [Rejection(0, Reason.BAD_FIELD, "path: is invalid.", body) for body in bodies]
    lines = b"".join(
        delivery_lines(storable(replace(parse_body({}), rejected=[one])), key_id="k1", new_id=uuid4) for one in rejected
    )
    path = folder / "000000000009-00000000.ndjson"
    path.write_bytes(lines + trailer(lines))
    store.load(inspect(path))
    return store


ODD_INPUT = [
    '{"context": {"viewer": {"id": "~", "n": {"a": 1}}}, "events": [{}]}',
    '{"context": {"Viewer": [["x", {"~": null}], "}"]}}',
    '{"context": {"view\\u0065r": {"a": "]", "b": {"c": "\\u007e"}}}}',
    '{"context": {"viewer": ' + '{"a": [' * 14 + '"~"' + "]}" * 14 + "}}",
    '{"viewer": {"n": ["~"]}, "viewer": "bob"}',
    '{"context": {"viewer": {"n": {"id": "~"}},}, }',
    '{"x\\"viewer": "~", "x": {"y\\"viewer": ["~"]}}',
    '{"context": {"viewer": {"n": {}}, "tenant": "~"}, "~": ["~"], "viewers": "~"}',
    '{"context": {"userId": "~", "page": "viewer: ~, \\"viewer\\": \\"~\\""}}',
    '{"context": {"viewer": {"n": ["~~", "\\"~\\"", true]}}}',
]


@pytest.mark.parametrize("viewer", ["eve", 'e"v\\e', "42", "ë ve"])
def test_the_store_and_erased_people_find_the_same_viewers(tmp_path: Path, viewer: str) -> None:
    escaped = "".join(f"\\u{ord(character):04x}" for character in viewer)
    bodies = [body.replace("~", json.dumps(viewer)[1:-1]).replace("\\u007e", escaped).encode() for body in ODD_INPUT]
    bodies += [b'{"viewer": {"a": [42, {}]}}', b'{"viewer": [4.2, {}]}']
    store = store_of_rejections(tmp_path, bodies)
    found = {one["raw"].encode() for one in archive_of(store, Person(viewer))["rejections"]}
    assert found == {body for body in bodies if viewer in erased_people.viewers_in(body)}
    assert len(found) == 6 + (viewer == "42")
    store.close()


def test_rejections_that_contain_an_id_elsewhere_are_counted(tmp_path: Path) -> None:
    ids = ["eve", "eve@corp.example", PRIVACY.hashes("viewer", "eve")[1]]
    bodies = [f'{{"context": {{"userId": "{one}"}}}}' for one in ids]
    bodies += [f'{{"context": "{{\\"viewer\\": \\"{one}\\"}}"}}' for one in ids]
    bodies += [f"<viewer>{one}</viewer>" for one in ids]  # Short texts need quotation marks.
    bodies += ['{"x": "eve@corp.example2"}', '{"x": "eve1"}', "x" * 20_000 + ' "eve"']
    store = store_of_rejections(tmp_path, [body.encode() for body in bodies])
    assert count_unnamed_rejections(store, Person("eve"), PRIVACY) == 2 + 3 + 1
    assert count_unnamed_rejections(store, Person("eve@corp.example"), PRIVACY) == 3
    assert count_unnamed_rejections(store, Person("eve", tenants=frozenset({"acme"})), PRIVACY) is None
    store.close()


@pytest.mark.parametrize(
    ("viewer", "body"),
    [
        ("alice@corp.example", b'{"text": "From:\\nalice@corp.example"}'),
        ("alice@corp.example", b'{"userId": "alice\\u0040corp.example"}'),
        ("jos\u00e9 maria", b'{"userId": "jos\\u00e9 maria"}'),
        ("CORP\\alice.smith", b'{"userId": "CORP\\\\alice.smith"}'),
        ("alice@corp.example", b'{"userId": "alice@corp.example", "x": "\xff\x00"}'),
    ],
)
def test_escaped_and_encoded_ids_in_rejections_are_counted(tmp_path: Path, viewer: str, body: bytes) -> None:
    store = store_of_rejections(tmp_path, [body])
    assert count_unnamed_rejections(store, Person(viewer), PRIVACY) == 1
    store.close()


def test_a_person_without_data_has_an_empty_archive(store: Store) -> None:
    content = archive_of(store, Person("joe"))
    assert content["manifest"]["counts"] == {"events": 0, "rejections": 0, "losses": 0, "directory": 0}


def test_without_a_person_the_views_have_no_rows(store: Store) -> None:
    with store.reader(EVERYTHING.variables()) as reader:
        for name in ("person_envelope", "person_session", "person_rejection", "person_loss", "person_directory"):
            assert reader.dicts(name) == []


def test_a_hashed_viewer_is_searched_once() -> None:
    [hashed, *_] = PRIVACY.hashes("viewer", "ann")
    assert PRIVACY.stored_forms("viewer", hashed) == [hashed]
