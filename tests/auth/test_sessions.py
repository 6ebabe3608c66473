"""Sessions: their end, their limits, and the persons whose sessions end at once."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from embedsink.auth import sessions as sessions_module
from embedsink.auth.key_cache import KeyCache
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.sessions import LoggedOut, Person, Sessions


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.json")


@pytest.fixture
def key(store: KeyStore) -> Key:
    return store.create(KeyKind.READ, deployments=[7], now=time.time())[0]


@pytest.fixture
def cache(store: KeyStore, key: Key, clock: Clock) -> KeyCache:
    return KeyCache(store, clock)


@pytest.fixture
def sessions(cache: KeyCache, clock: Clock) -> Sessions:
    return Sessions(cache, clock, timeout_s=100, idle_timeout_s=30)


def test_a_session_grants_what_its_key_grants(sessions: Sessions, key: Key) -> None:
    token = sessions.start(key)
    found = sessions.find(token)
    assert found is not None
    assert (found.key_id, found.kinds, found.scope) == (key.key_id, key.kinds, key.scope)
    assert found.digest != key.digest
    assert sessions.is_live(found)
    assert sessions.find("other") is None
    assert token not in repr(vars(sessions))


def test_a_session_ends_after_its_time_and_without_use(sessions: Sessions, key: Key, clock: Clock) -> None:
    token, idle = sessions.start(key), sessions.start(key)
    for _ in range(4):
        clock.now += 24
        assert sessions.find(token) is not None
    assert sessions.find(idle) is None
    clock.now += 5
    assert sessions.find(token) is None


def test_an_open_stream_counts_as_use(sessions: Sessions, key: Key, clock: Clock) -> None:
    token = sessions.start(key)
    found = sessions.find(token)
    assert found is not None
    for _ in range(3):
        clock.now += 29
        assert sessions.is_live(found)
    clock.now += 14
    assert not sessions.is_live(found)


def test_looking_for_a_session_is_no_use(sessions: Sessions, key: Key, clock: Clock) -> None:
    token = sessions.start(key)
    clock.now += 29
    assert sessions.has(token)
    clock.now += 1
    assert not sessions.has(token)
    assert not sessions.has("unknown")


def test_a_logout_ends_one_session(sessions: Sessions, key: Key) -> None:
    token, other = sessions.start(key), sessions.start(key)
    sessions.end(token)
    sessions.end("unknown")
    assert sessions.find(token) is None
    assert sessions.find(other) is not None


def test_a_changed_key_changes_its_sessions(sessions: Sessions, key: Key, store: KeyStore, cache: KeyCache) -> None:
    token = sessions.start(key)
    document = json.loads(store.path.read_text())
    document["keys"][0]["deployments"] = [8]
    store.path.write_text(json.dumps({"keys": document["keys"]}))
    cache.refresh()
    found = sessions.find(token)
    assert found is not None
    assert found.scope.deployments == frozenset({8})


def test_a_changed_key_ends_what_is_open(sessions: Sessions, key: Key, store: KeyStore, cache: KeyCache) -> None:
    token = sessions.start(key)
    opened = sessions.find(token)
    assert opened is not None
    document = json.loads(store.path.read_text())
    document["keys"][0]["deployments"] = [8]
    store.path.write_text(json.dumps({"keys": document["keys"]}))
    cache.refresh()
    assert not sessions.is_live(opened)
    assert not cache.is_live(key)
    reopened = sessions.find(token)
    assert reopened is not None
    assert sessions.is_live(reopened)
    assert reopened.scope.deployments == frozenset({8})


def test_a_revoked_key_ends_its_sessions(sessions: Sessions, key: Key, store: KeyStore, cache: KeyCache) -> None:
    token = sessions.start(key)
    found = sessions.find(token)
    assert found is not None
    store.revoke(key.key_id, now=time.time())
    cache.refresh()
    assert sessions.find(token) is None
    assert not sessions.is_live(found)


def test_a_key_has_a_limited_number_of_sessions(
    sessions: Sessions, key: Key, store: KeyStore, cache: KeyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "SESSIONS_PER_KEY_MAX", 3)
    other, _ = store.create(KeyKind.READ, now=time.time())
    cache.refresh()
    other_token = sessions.start(other)
    tokens = [sessions.start(key) for _ in range(5)]
    assert [sessions.find(token) is not None for token in tokens] == [False, False, True, True, True]
    assert sessions.find(other_token) is not None


def test_ended_sessions_take_no_memory(sessions: Sessions, key: Key, clock: Clock) -> None:
    for _ in range(3):
        sessions.start(key)
    clock.now += 200
    sessions.start(key)
    assert len(sessions._sessions) == 1


def test_the_provider_ends_sessions_of_a_person(sessions: Sessions, key: Key) -> None:
    people = [
        Person("https://a.example", "ann", "s1", issued_at=10),
        Person("https://a.example", "ann", "s2", issued_at=10),
        Person("https://a.example", "bob", None, issued_at=10),
        Person("https://b.example", "ann", "s1", issued_at=10),
    ]
    person_key = replace(key, key_id="p_1", digest="")
    tokens = [sessions.start(person_key, person) for person in people] + [sessions.start(key)]

    def states() -> list[bool]:
        return [sessions.find(token) is not None for token in tokens]

    def end(subject: str, session_id: str | None, *, issued_at: float = 10) -> int:
        return sessions.end_of_person(Person("https://a.example", subject, session_id, issued_at))

    assert end("ann", None, issued_at=9) == 0  # It is older than the logins.
    assert end("", "s2") == 1
    assert states() == [True, False, True, True, True]
    assert end("ann", "s1") == 1
    assert states() == [False, False, True, True, True]
    assert end("", "s9") == 0
    assert end("bob", "s9") == 1  # The provider did not name the session of this login.
    assert states() == [False, False, False, True, True]


def test_a_logout_prevents_a_login_that_is_not_finished(sessions: Sessions, key: Key, clock: Clock) -> None:
    person_key = replace(key, key_id="p_1", digest="")
    ann = Person("https://a.example", "ann", "s1", issued_at=10)
    assert sessions.end_of_person(Person("https://a.example", "ann", "s1", issued_at=10)) == 0
    with pytest.raises(LoggedOut, match="logged out at the provider"):
        sessions.start(person_key, ann)
    with pytest.raises(LoggedOut):  # The code was exchanged after the logout.
        sessions.start(person_key, replace(ann, issued_at=11))
    for other in (
        replace(ann, session_id=None, issued_at=11),
        replace(ann, session_id="s2"),
        replace(ann, subject="bob"),
    ):
        assert sessions.find(sessions.start(person_key, other)) is not None
    clock.now += 61
    assert sessions.find(sessions.start(person_key, ann)) is not None


def test_a_repeated_logout_ends_no_later_session(sessions: Sessions, key: Key) -> None:
    person_key = replace(key, key_id="p_1", digest="")
    logout = Person("https://a.example", "ann", None, issued_at=10)
    sessions.end_of_person(logout)
    token = sessions.start(person_key, replace(logout, issued_at=11))
    assert sessions.end_of_person(logout) == 0
    assert sessions.find(token) is not None


def test_a_session_follows_its_key_to_another_id(
    sessions: Sessions, key: Key, cache: KeyCache, store: KeyStore
) -> None:
    token = sessions.start(key)
    content = json.loads(store.path.read_text())
    content["keys"][0]["key_id"] = "k_renamed"
    del content["checksum"]
    store.path.write_text(json.dumps(content))
    cache.refresh()
    session = sessions.find(token)
    assert session is not None
    assert session.key_id == "k_renamed"
