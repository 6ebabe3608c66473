import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.auth.key_cache import KeyCache
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import DEPLOYMENT_MAX, normalize_origin, parse_deployment, parse_duration, parse_tenant
from embedsink.auth.tokens import looks_like_key, new_token
from embedsink.errors import Misconfigured
from embedsink.key_scope import KeyScope
from tests.support.envelopes import parse_body, view
from tests.support.programs import require

NOW = 1_795_224_600.123456
# Written by the program before its entries were a pydantic model.
EARLIER_FILE = Path(__file__).with_name("keys.json")
DAY_S = 86_400
PAGE = "https://app.example.com"
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# Programs that create or revoke keys in another process.
CREATE_MANY = """
import sys
from pathlib import Path
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
for _ in range(int(sys.argv[2])):
    print(KeyStore(Path(sys.argv[1])).create(KeyKind.READ, now=0.0)[0].key_id, flush=True)
"""
REVOKE = """
import sys, time
from pathlib import Path
from embedsink.auth.key_store import KeyStore
KeyStore(Path(sys.argv[1])).revoke(sys.argv[2], now=time.time())
"""


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.json")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def start_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_python(code: str, *arguments: object) -> str:
    with start_python(code, *arguments) as python:
        output, _ = python.communicate(timeout=30)
    assert python.returncode == 0
    return output


def ids_in(file: KeyStore) -> list[str]:
    keys = file.keys()
    return [key.key_id for key in keys]


def rewrite(file: KeyStore, change: Callable[[dict[str, object]], None]) -> None:
    """Edit the first entry by hand, which removes the checksum."""
    document = json.loads(file.path.read_text())
    change(document["keys"][0])
    document.pop("checksum", None)
    file.path.write_text(json.dumps(document))


# The form of a token


@pytest.mark.parametrize("kind", KeyKind)
def test_a_token_contains_its_kind_and_a_valid_checksum(file: KeyStore, kind: KeyKind) -> None:
    _, token = file.create(kind, now=NOW)
    assert re.fullmatch(f"es_{kind.value}_[0-9A-Za-z]{{49}}", token)
    assert looks_like_key(token)


def make_token(kind: KeyKind) -> str:
    return new_token(kind)


@given(kind=st.sampled_from(KeyKind), at=st.integers(0, 200), other=st.characters())
def test_the_checksum_detects_any_wrong_character(kind: KeyKind, at: int, other: str) -> None:
    token = make_token(kind)
    at %= len(token)
    changed = token[:at] + other + token[at + 1 :]
    assert looks_like_key(changed) == (changed == token)


def test_the_checksum_detects_every_base62_typing_error_in_one_token() -> None:
    token = make_token(KeyKind.INGEST)
    changed = {token[:at] + other + token[at + 1 :] for at in range(len(token)) for other in BASE62} - {token}
    assert len(changed) > 3_000
    assert not any(map(looks_like_key, changed))


def test_the_checksum_detects_swapped_characters() -> None:
    token = make_token(KeyKind.READ)
    swapped = {token[:at] + token[at + 1] + token[at] + token[at + 2 :] for at in range(len(token) - 1)} - {token}
    assert not any(map(looks_like_key, swapped))


def test_the_checksum_detects_truncated_and_lengthened_tokens() -> None:
    token = make_token(KeyKind.ADMIN)
    assert not any(looks_like_key(token[:length]) for length in range(len(token)))
    assert not any(looks_like_key(token + end) for end in ("0", "\n", " ", "=", token))


@given(st.text() | st.from_regex(r"es_(ingest|read|sync|admin)_\w{49}\Z"))
def test_other_text_does_not_look_like_a_key(text: str) -> None:
    assert not looks_like_key(text)


def test_tokens_are_unique_and_use_the_whole_alphabet() -> None:
    tokens = {make_token(KeyKind.INGEST) for _ in range(500)}
    assert len(tokens) == 500
    assert set("".join(token.removeprefix("es_ingest_") for token in tokens)) == set(BASE62)


# The file


def test_a_created_key_is_read_back_unchanged(file: KeyStore) -> None:
    key, _ = file.create(
        KeyKind.INGEST,
        deployments=[14, 12],
        origins=[PAGE, "http://localhost:8080"],
        expires_at=NOW + DAY_S,
        label="Produktionsseite 東京",
        now=NOW,
    )
    assert KeyStore(file.path).keys() == [key]
    assert key.scope.deployments == frozenset({12, 14})
    assert key.origins == frozenset({PAGE, "http://localhost:8080"})
    assert key.created_at == pytest.approx(NOW, abs=0.001)
    assert key.expires_at == pytest.approx(NOW + DAY_S, abs=0.001)


def test_keys_are_stored_in_the_order_of_their_creation(file: KeyStore) -> None:
    created = [file.create(kind, now=NOW)[0] for kind in KeyKind]
    assert file.keys() == created


def test_a_missing_file_has_no_keys(file: KeyStore) -> None:
    assert file.keys() == []


def test_a_stolen_file_contains_no_part_of_a_token(file: KeyStore) -> None:
    created = [file.create(kind, label="x", now=NOW) for kind in KeyKind for _ in range(5)]
    for key, _ in created[:5]:
        file.revoke(key.key_id, now=NOW)
    stored = b"\n".join(path.read_bytes() for path in file.path.parent.iterdir()).decode()
    for key, token in created:
        random = token.rsplit("_", 1)[1]
        assert key.key_id in stored
        assert not [part for at in range(42) if (part := random[at : at + 8]) in stored]


def test_the_repr_contains_neither_the_token_nor_its_digest(file: KeyStore) -> None:
    key, token = file.create(KeyKind.READ, now=NOW)
    assert token not in repr(key)
    assert key.digest not in repr(key)


@pytest.mark.parametrize("mask", [0, 0o777])
def test_only_the_owner_can_read_the_file_with_any_umask(file: KeyStore, mask: int) -> None:
    umask = os.umask(mask)
    try:
        file.create(KeyKind.READ, now=NOW)
        file.create(KeyKind.READ, now=NOW)
    finally:
        os.umask(umask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in file.path.parent.iterdir()} == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for others")
def test_files_written_by_root_belong_to_the_owner_of_the_folder(file: KeyStore) -> None:
    os.chown(file.path.parent, 4711, 4712)
    file.create(KeyKind.READ, now=NOW)
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in file.path.parent.iterdir()}
    assert owners == {(4711, 4712)}


def test_root_changes_the_owner_of_every_file_before_the_rename(
    file: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root, record the new owner of every file instead of setting it."""
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("chown", "fchown"):
        monkeypatch.setattr(os, name, lambda file, *owner: owners.append(owner))
    file.create(KeyKind.READ, now=NOW)
    folder = file.path.parent.stat()
    assert owners == [(folder.st_uid, folder.st_gid)] * len(list(file.path.parent.iterdir()))


def test_the_file_is_readable_by_people(file: KeyStore) -> None:
    file.create(KeyKind.INGEST, origins=[PAGE], label="Zürich", now=NOW)
    text = file.path.read_text(encoding="utf-8")
    assert '      "label": "Zürich",\n' in text
    assert '      "created_at": "2026-11-21T01:30:00.123Z",\n' in text
    assert text.endswith("}\n")


def test_concurrent_creates_lose_no_key(file: KeyStore) -> None:
    processes = [start_python(CREATE_MANY, file.path, 15) for _ in range(3)]
    printed = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(ids_in(file)) == 45
    assert set(ids_in(file)) == set(itertools.chain(*printed))


def test_a_create_killed_at_any_moment_leaves_a_complete_file_with_every_printed_key(file: KeyStore) -> None:
    announced: set[str] = set()
    for cycle in range(6):
        with start_python(CREATE_MANY, file.path, 10_000) as process:
            assert process.stdout is not None
            announced.add(process.stdout.readline().strip())
            time.sleep(0.007 * cycle)
            process.send_signal(signal.SIGKILL)
            # The kill may cut the last line: then that key was not printed.
            announced.update(line.strip() for line in process.stdout if line.endswith("\n"))
        assert announced <= set(ids_in(file))
    key, _ = file.create(KeyKind.READ, now=NOW)
    assert ids_in(file)[-1] == key.key_id


def test_the_file_is_synced_before_its_rename_and_the_folder_after_it(file: KeyStore, tmp_path: Path) -> None:
    require("strace")
    trace = tmp_path / "trace"
    calls = "trace=flock,write,fsync,fdatasync,rename,renameat,renameat2"
    strace = ["strace", "-f", "-y", "-o", str(trace), "-e", calls]
    command = [*strace, sys.executable, "-c", CREATE_MANY, str(file.path), "1"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    ours = [line for line in trace.read_text().splitlines() if str(file.path.parent) in line]
    steps = [match[1] for line in ours if (match := re.search(r"\b(flock|write|f(?:data)?sync|rename)\w*\(", line))]
    assert steps == ["flock", "write", "fsync", "rename", "fsync"]
    assert f"<{file.path}.new>" in ours[2]
    assert f"<{file.path.parent}>" in ours[4]


def test_a_full_disk_is_reported_and_changes_nothing(file: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = file.create(KeyKind.READ, now=NOW)

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(Misconfigured, match=r"keys\.json: No space left on device\. Fix the cause"):
        file.create(KeyKind.READ, now=NOW)
    with pytest.raises(Misconfigured):
        file.revoke(key.key_id, now=NOW)
    assert file.keys() == [key]


def test_create_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"typo/keys\.json: No such file or directory"):
        KeyStore(tmp_path / "typo" / "keys.json").create(KeyKind.READ, now=NOW)


def test_create_refuses_to_overwrite_a_damaged_file(file: KeyStore) -> None:
    file.path.write_text('{"keys": [')
    with pytest.raises(Misconfigured, match=r"^keys\.json: is not JSON \(.+\)\. Correct or restore the file\.$"):
        file.create(KeyKind.READ, now=NOW)
    assert file.path.read_text() == '{"keys": ['


DEPLOYMENTS = "a list of deployments up to 9,007,199,254,740,991, or null for all of them"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"expires_at": NOW}, "expires_at: 2026-11-21T01:30:00.123Z is in the past. Choose a later time."),
        ({"deployments": []}, f"deployments: [] is not {DEPLOYMENTS}."),
        ({"deployments": [True]}, f"deployments: [true] is not {DEPLOYMENTS}."),
        ({"deployments": [2**53]}, f"deployments: [9007199254740992] is not {DEPLOYMENTS}."),
        ({"deployments": [-(2**63) - 1]}, f"deployments: [-9223372036854775809] is not {DEPLOYMENTS}."),
        ({"label": "two\nlines"}, r'label: "two\nlines" is not one line of at most 100 characters.'),
        ({"label": "\ud800"}, r'label: "\ud800" is not one line of at most 100 characters.'),
    ],
)
def test_create_refuses_invalid_arguments(file: KeyStore, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(Misconfigured, match=f"^{re.escape(message)}$"):
        file.create(KeyKind.INGEST, now=NOW, **arguments)  # type: ignore[arg-type]
    assert not file.path.exists()


def test_a_deployment_beyond_64_bits_in_the_file_is_refused(file: KeyStore) -> None:
    file.create(KeyKind.INGEST, deployments=[12], now=NOW)
    file.path.write_text(file.path.read_text().replace("12\n", "99999999999999999999\n"))
    with pytest.raises(Misconfigured, match=r"keys\[0\]\.deployments: \[99999999999999999999\] is not a list"):
        file.keys()


def test_keys_and_events_accept_the_same_deployments(file: KeyStore) -> None:
    for deployment in (-DEPLOYMENT_MAX, -1, 0, DEPLOYMENT_MAX):
        assert parse_body({"context": {"deployment": deployment}, "events": [view()]}).accepted
        key, _ = file.create(KeyKind.INGEST, deployments=[deployment], now=NOW)
        assert key.scope == KeyScope(frozenset({deployment}), shows_names=False)
        assert parse_deployment(str(deployment)) == deployment
    for deployment in (-DEPLOYMENT_MAX - 1, DEPLOYMENT_MAX + 1):
        assert not parse_body({"context": {"deployment": deployment}, "events": [view()]}).accepted
        with pytest.raises(Misconfigured):
            file.create(KeyKind.INGEST, deployments=[deployment], now=NOW)
        with pytest.raises(Misconfigured):
            parse_deployment(str(deployment))


@pytest.mark.parametrize("text", ["", "1_2", "１２", "+12", " 12", "12.0", "012", "-0", "0x12", "twelve", "9" * 5_000])
def test_a_deployment_is_typed_in_plain_digits(text: str) -> None:
    with pytest.raises(Misconfigured, match=r"^deployment: .+ is not an integer from .+ Write it in plain digits\.$"):
        parse_deployment(text)


# Revocation


def test_a_revoked_key_stays_in_the_file_with_its_revocation_time(file: KeyStore) -> None:
    key, _ = file.create(KeyKind.READ, now=NOW)
    other, _ = file.create(KeyKind.READ, now=NOW)
    revoked = file.revoke(key.key_id, now=NOW + 5)
    assert file.keys() == [revoked, other]
    assert revoked.revoked_at == pytest.approx(NOW + 5, abs=0.001)


def test_revoking_again_keeps_the_first_time(file: KeyStore) -> None:
    key, _ = file.create(KeyKind.READ, now=NOW)
    first = file.revoke(key.key_id, now=NOW)
    assert file.revoke(key.key_id, now=NOW + DAY_S) == first


def test_a_leaked_token_can_be_revoked_without_its_id(file: KeyStore) -> None:
    key, token = file.create(KeyKind.READ, now=NOW)
    assert file.revoke(token, now=NOW).key_id == key.key_id


def test_revoking_an_unknown_key_suggests_the_nearest(file: KeyStore) -> None:
    key, _ = file.create(KeyKind.READ, now=NOW)
    mistyped = key.key_id[:-1] + ("0" if key.key_id[-1] != "0" else "1")
    with pytest.raises(Misconfigured, match=f'^key "{mistyped}" does not exist. Did you mean "{key.key_id}"\\?$'):
        file.revoke(mistyped, now=NOW)
    with pytest.raises(Misconfigured, match=r'^key "website" does not exist. `embedsink keys list` shows all keys'):
        file.revoke("website", now=NOW)


def test_revoking_an_unknown_token_does_not_repeat_it(file: KeyStore) -> None:
    token = make_token(KeyKind.ADMIN)
    with pytest.raises(Misconfigured, match=r'^key "es_admin_…[0-9a-f]{8}" does not exist\.') as refusal:
        file.revoke(token, now=NOW)
    assert token[9:] not in str(refusal.value)


# Scope and origins


def test_a_key_is_limited_to_its_deployments_if_it_has_any(file: KeyStore) -> None:
    unscoped, _ = file.create(KeyKind.READ, now=NOW)
    scoped, _ = file.create(KeyKind.READ, deployments=[12], now=NOW)
    assert (unscoped.scope.deployments, scoped.scope.deployments) == (None, frozenset({12}))


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "*",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://app.example.com.evil.example",
        "https://evil-app.example.com",
        "https://app.example.com@evil.example",
        "https://аpp.example.com",  # a Cyrillic а
        "https://app.example.com/",
        f"{PAGE}, {PAGE}",
    ],
)
def test_a_key_with_origins_is_refused_for_other_origins(file: KeyStore, origin: str) -> None:
    limited, _ = file.create(KeyKind.INGEST, origins=[PAGE], now=NOW)
    unlimited, _ = file.create(KeyKind.INGEST, now=NOW)
    assert limited.allows_origin(PAGE)
    assert not limited.allows_origin(origin)
    assert unlimited.allows_origin(origin)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("https://app.example.com", "https://app.example.com"),
        ("HTTPS://App.Example.COM", "https://app.example.com"),
        ("https://app.example.com/", "https://app.example.com"),
        ("https://app.example.com:443", "https://app.example.com"),
        ("http://app.example.com:80/", "http://app.example.com"),
        ("http://app.example.com:443", "http://app.example.com:443"),
        ("https://app.example.com:08443", "https://app.example.com:8443"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
    ],
)
def test_an_origin_is_normalized_as_browsers_send_it(typed: str, sent: str) -> None:
    assert normalize_origin(typed) == sent
    assert normalize_origin(sent) == sent


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "null",
        "",
        "app.example.com",
        "//app.example.com",
        "https://",
        "https://*.example.com",
        "https://app.example.com/reports",
        "https://app.example.com//",
        "https://app.example.com?x=1",
        "https://app.example.com#x",
        "https://user@app.example.com",
        "https://app.example.com:0",
        "https://app.example.com:65536",
        "https://app.example.com:",
        "https://app.example.com.",
        "https://-app.example.com",
        "https://bücher.example",
        "https://\u212aey.example",  # the Kelvin sign, whose lower case is k
        "https://app.example.com\n",
        " https://app.example.com",
        "https://app.example.com\\@evil.example",
        "https://[::1",
        "ftp://app.example.com",
        "file:///tmp",
        "chrome-extension://abcdefgh",
    ],
)
def test_an_invalid_origin_is_refused_with_an_example(file: KeyStore, origin: str) -> None:
    with pytest.raises(Misconfigured, match=r"^origin: \".*\" is not http\(s\)://host or .*\. Example: https://"):
        file.create(KeyKind.INGEST, origins=[PAGE, origin], now=NOW)
    assert not file.path.exists()


# The cache


def test_a_live_key_is_found_by_its_exact_token_only(file: KeyStore, clock: Clock) -> None:
    created = [file.create(kind, now=NOW) for kind in KeyKind]
    cache = KeyCache(file, clock)
    for key, token in created:
        assert cache.find(token) == key
        assert cache.find(key.key_id) is None
        assert cache.find(key.digest) is None
        assert cache.find(token.lower()) is None
        assert cache.find(f" {token}") is None
        assert cache.find(token[:-1]) is None


@given(st.text(st.characters(exclude_categories=())))
def test_find_accepts_any_text(text: str) -> None:
    assert KeyCache(KeyStore(Path("missing-keys.json")), Clock()).find(text) is None


def test_a_key_expires_exactly_at_its_expiry_time(file: KeyStore, clock: Clock) -> None:
    key, token = file.create(KeyKind.READ, expires_at=NOW + 60, now=NOW)
    cache = KeyCache(file, clock)
    assert key.expires_at is not None
    clock.now = key.expires_at - 0.001
    assert cache.find(token) == key
    clock.now = key.expires_at
    assert cache.find(token) is None


def test_setting_the_clock_back_does_not_restore_a_revoked_key(file: KeyStore, clock: Clock) -> None:
    key, token = file.create(KeyKind.READ, now=NOW)
    file.revoke(key.key_id, now=NOW)
    cache = KeyCache(file, clock)
    clock.now = NOW - 365 * DAY_S
    assert cache.find(token) is None


def test_a_new_key_is_found_after_a_refresh(file: KeyStore, clock: Clock) -> None:
    cache = KeyCache(file, clock)
    key, token = file.create(KeyKind.READ, now=NOW)
    assert cache.find(token) is None
    assert cache.refresh()
    assert cache.find(token) == key
    assert not cache.refresh()


def test_a_revocation_by_another_process_takes_effect_within_a_second(file: KeyStore) -> None:
    key, token = file.create(KeyKind.READ, now=NOW)
    other, other_token = file.create(KeyKind.READ, now=NOW)
    cache = KeyCache(file, time.time)
    assert cache.find(token) == key
    run_python(REVOKE, file.path, key.key_id)
    revoked_at = time.monotonic()
    while cache.find(token) is not None:
        assert time.monotonic() - revoked_at < 1
        time.sleep(0.5)  # as often as the server refreshes
        cache.refresh()
    assert cache.find(other_token) == other


def test_every_rewrite_is_noticed_even_within_one_clock_tick(file: KeyStore, clock: Clock) -> None:
    cache = KeyCache(file, clock)
    for _ in range(30):
        key, token = file.create(KeyKind.READ, now=NOW)
        assert cache.refresh()
        assert cache.find(token) == key
        file.revoke(key.key_id, now=NOW)
        assert cache.refresh()
        assert cache.find(token) is None


def test_a_deleted_file_has_no_keys(file: KeyStore, clock: Clock) -> None:
    _, token = file.create(KeyKind.READ, now=NOW)
    cache = KeyCache(file, clock)
    file.path.unlink()
    assert cache.refresh()
    assert cache.find(token) is None


DAMAGES = {
    "half-written": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "zeroed": lambda text: "\0" * len(text),
    "latin-1": lambda text: text.replace("seite", "\udcfc"),
    "bottomless": lambda text: "[" * 100_000,
    "not an object": lambda text: "[]",
    "no list": lambda text: '{"keys": {}}',
    "null": lambda text: '{"keys": [null]}',
    "misspelt": lambda text: text.replace("expires_at", "expire_at"),
    "unknown kind": lambda text: text.replace('"read"', '"reader"'),
    "no scope": lambda text: text.replace("\n        12\n      ", ""),
    "wrong scope": lambda text: text.replace("\n        12\n", '"12"'),
    "wrong origin": lambda text: text.replace(PAGE, "*"),
    "no zone": lambda text: text.replace("Z", ""),
    "duplicate field": lambda text: text.replace('"revoked_at"', '"revoked_at": "2026-11-21T01:30:00Z", "revoked_at"'),
    "duplicate key": lambda text: json.dumps({"keys": json.loads(text)["keys"] * 2}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_leaves_the_keys_in_effect_and_is_reported_once(
    file: KeyStore, clock: Clock, damage: Callable[[str], str]
) -> None:
    key, token = file.create(
        KeyKind.READ, deployments=[12], origins=[PAGE], expires_at=NOW + DAY_S, label="seite", now=NOW
    )
    valid_text = file.path.read_text()
    cache = KeyCache(file, clock)
    file.path.write_bytes(damage(valid_text).encode(errors="surrogateescape"))
    assert file.path.read_bytes() != valid_text.encode()

    with pytest.raises(
        Misconfigured, match=r"^keys\.json: .+\. Correct or restore the file\. Until then, the server uses"
    ) as error:
        cache.refresh()
    assert cache.problem == str(error.value)
    assert [cache.refresh() for _ in range(3)] == [False] * 3
    assert cache.find(token) == key

    file.path.write_text(valid_text)
    assert cache.refresh()
    assert not cache.problem
    assert cache.find(token) == key


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"origins": [PAGE]}, "origins: a sync key can't have origins. Use an empty list."),
        (
            {"tenants": ["acme"]},
            "tenants: a sync key can't have tenants, because results of dbt syncs have none. Leave them out.",
        ),
    ],
    ids=["origins", "tenants"],
)
def test_a_sync_key_with_origins_or_tenants_is_refused(file: KeyStore, limits: dict[str, Any], message: str) -> None:
    with pytest.raises(Misconfigured, match=f"^{re.escape(message)}$"):
        file.create(KeyKind.SYNC, **limits, now=NOW)
    file.create(KeyKind.SYNC, now=NOW)
    rewrite(file, lambda entry: entry.update(limits))
    with pytest.raises(Misconfigured, match=rf"^keys\.json: keys\[0\]\.{re.escape(message)} Correct or restore"):
        file.keys()


@pytest.mark.parametrize(
    ("limits", "correction"),
    [
        ({"origins": [PAGE]}, "Use an empty list"),
        ({"deployments": [7]}, "Use null"),
        ({"tenants": ["acme"]}, "Leave them out"),
    ],
    ids=["origins", "deployments", "tenants"],
)
def test_a_scim_key_with_limits_is_refused(file: KeyStore, limits: dict[str, Any], correction: str) -> None:
    [name] = limits
    message = f"{name}: a scim key can't have {name}, because the directory has none. {correction}."
    with pytest.raises(Misconfigured, match=f"^{re.escape(message)}$"):
        file.create(KeyKind.SCIM, **limits, now=NOW)
    file.create(KeyKind.SCIM, now=NOW)
    rewrite(file, lambda entry: entry.update(limits))
    with pytest.raises(Misconfigured, match=rf"^keys\.json: keys\[0\]\.{re.escape(message)} Correct or restore"):
        file.keys()


def test_only_read_keys_with_the_grant_and_admin_keys_show_names(file: KeyStore) -> None:
    granted, _ = file.create(KeyKind.READ, shows_names=True, now=NOW)
    for kind in KeyKind:
        file.create(kind, now=NOW)
    keys = file.keys()
    assert [(key.kind, key.shows_names) for key in keys] == [
        (KeyKind.READ, True),
        *((kind, kind is KeyKind.ADMIN) for kind in KeyKind),
    ]
    # Earlier versions can read an entry without the grant.
    entries = json.loads(file.path.read_text())["keys"]
    assert ["names" in entry for entry in entries] == [True] + [False] * len(KeyKind)
    assert entries[0]["names"] is True
    assert granted.shows_names


@pytest.mark.parametrize("kind", [KeyKind.INGEST, KeyKind.SYNC, KeyKind.SCIM, KeyKind.ADMIN])
def test_names_of_another_kind_of_key_are_refused(file: KeyStore, kind: KeyKind) -> None:
    file.create(kind, now=NOW)
    rewrite(file, lambda entry: entry.update(names=True))
    with pytest.raises(Misconfigured, match=r"^keys\.json: keys\[0\]\.names: applies to read keys only"):
        file.keys()


@pytest.mark.parametrize("tenant", ["*", " ", "", "a\nb", "x" * 201])
def test_a_tenant_that_is_not_a_name_is_refused(file: KeyStore, tenant: str) -> None:
    with pytest.raises(Misconfigured, match=r"^tenants: "):
        file.create(KeyKind.READ, tenants=[tenant], now=NOW)
    with pytest.raises(Misconfigured, match=r"is not one line of 1 to 200 characters, or is \*\. Correct it\."):
        parse_tenant(tenant)


def test_a_file_without_a_checksum_from_before_sync_keys_is_read(file: KeyStore, clock: Clock) -> None:
    token = "es_ingest_M6o1n8rDLiSLQNSvJ3UqZbVC8f4Jr5vHkDJKV3ywyHp2f9aBc"
    file.path.write_text(
        """{
  "keys": [
    {
      "key_id": "k_0123456789ab",
      "kind": "ingest",
      "label": "",
      "deployments": null,
      "origins": [
        "https://app.example.com"
      ],
      "created_at": "2026-11-21T01:30:00.123Z",
      "expires_at": null,
      "revoked_at": null,
      "digest": "DIGEST"
    }
  ]
}
""".replace("DIGEST", sha256(token.encode()).hexdigest())
    )
    assert KeyCache(file, clock).find(token) == file.keys()[0]


def replace_kind(entry: dict[str, object]) -> None:
    entry["kind"] = "reader"


def misspell_a_field(entry: dict[str, object]) -> None:
    entry["expire_at"] = entry.pop("expires_at")


def remove_a_field(entry: dict[str, object]) -> None:
    del entry["revoked_at"]


FIELDS = "key_id, kind, label, deployments, tenants, names, origins, created_at, expires_at, revoked_at, digest"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace_kind, 'keys[0].kind: "reader" is not one of ingest, read, sync, scim, admin.'),
        (misspell_a_field, f'keys[0]: "expire_at" is not a field of a key. The fields are {FIELDS}.'),
        (remove_a_field, f"keys[0].revoked_at: is missing. The fields are {FIELDS}."),
    ],
)
def test_an_invalid_entry_is_refused_with_its_index_its_field_and_the_allowed_values(
    file: KeyStore, change: Callable[[dict[str, object]], None], message: str
) -> None:
    file.create(KeyKind.READ, now=NOW)
    rewrite(file, change)
    with pytest.raises(Misconfigured, match=f"^keys\\.json: {re.escape(message)} Correct or restore the file\\.$"):
        file.keys()


def test_the_second_of_two_equal_keys_is_named(file: KeyStore) -> None:
    file.create(KeyKind.READ, now=NOW)
    file.path.write_text(json.dumps({"keys": json.loads(file.path.read_text())["keys"] * 2}))
    with pytest.raises(Misconfigured, match=r"^keys\.json: keys\[1\]: has the key_id or digest of an earlier entry\."):
        file.keys()


def test_a_file_of_an_earlier_commit_is_read_and_written_back_unchanged(file: KeyStore) -> None:
    earlier = json.loads(EARLIER_FILE.read_text(encoding="utf-8"))
    shutil.copy(EARLIER_FILE, file.path)
    ingest, read, sync, admin = file.keys()
    kinds = [KeyKind.INGEST, KeyKind.READ, KeyKind.SYNC, KeyKind.ADMIN]
    assert [key.kind for key in (ingest, read, sync, admin)] == kinds
    assert ingest.scope.deployments == frozenset({-3, 14})
    assert ingest.origins == frozenset({PAGE, "http://localhost:8080"})
    assert sync.revoked_at == pytest.approx(NOW + 4, abs=0.001)
    file.create(KeyKind.READ, now=NOW)
    assert json.loads(file.path.read_text(encoding="utf-8"))["keys"][:4] == earlier["keys"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)
INSTANTS = st.datetimes(timezones=st.timezones() | st.none()).map(lambda moment: moment.isoformat())


# No deadline: each example waits for several fsyncs.
@given(name=st.sampled_from([field.name for field in fields(Key)]), value=JSON_VALUES | INSTANTS)
def test_any_value_in_a_field_is_accepted_or_refused(name: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = KeyStore(Path(folder) / "keys.json")
        file.create(KeyKind.READ, now=NOW)
        rewrite(file, lambda entry: entry.update({name: value}))
        try:
            keys = file.keys()
        except Misconfigured:
            return
        created, _ = file.create(KeyKind.READ, now=NOW)
        # A key that ended long ago may be removed.
        known = [key.key_id for key in file.keys()]  # noqa: SIM118
        assert known in ([*(key.key_id for key in keys), created.key_id], [created.key_id])


def test_a_server_does_not_start_on_a_damaged_file(file: KeyStore, clock: Clock) -> None:
    file.path.write_text("{}")
    with pytest.raises(Misconfigured, match=r'^keys\.json: is not \{"keys": \[…\]\}\.'):
        KeyCache(file, clock)


def test_an_unreadable_file_leaves_the_keys_in_effect_until_it_is_readable_again(file: KeyStore, clock: Clock) -> None:
    key, token = file.create(KeyKind.READ, now=NOW)
    cache = KeyCache(file, clock)
    # Put a folder at the path: root could read a file with any permissions.
    readable_file = file.path.rename(file.path.with_name("good"))
    file.path.mkdir()
    with pytest.raises(Misconfigured, match=r"keys\.json: Is a directory\. Make it readable for this user\."):
        cache.refresh()
    assert not cache.refresh()
    assert cache.find(token) == key
    # Restore the file with the same mtime, size and inode, as after a chmod and its reversal.
    file.path.rmdir()
    readable_file.rename(file.path)
    assert cache.refresh()
    assert cache.problem is None


def test_a_new_problem_is_reported_again(file: KeyStore, clock: Clock) -> None:
    cache = KeyCache(file, clock)
    for text in ("{", "[]"):
        file.path.write_text(text)
        with pytest.raises(Misconfigured):
            cache.refresh()
        assert not cache.refresh()


def test_edited_origins_and_time_zones_are_normalized(file: KeyStore, clock: Clock) -> None:
    _, token = file.create(KeyKind.INGEST, now=NOW)
    cache = KeyCache(file, clock)
    rewrite(file, lambda entry: entry.update(origins=["HTTPS://APP.example.com:443/"]))
    rewrite(file, lambda entry: entry.update(expires_at="2026-11-21T02:30:01+01:00"))
    cache.refresh()
    key = cache.find(token)
    assert key is not None
    assert key.allows_origin(PAGE)
    clock.now += 1
    assert cache.find(token) is None


# The checksum of the file


def test_every_flipped_bit_is_refused_or_changes_no_key(file: KeyStore) -> None:
    for kind in KeyKind:
        origins = [PAGE] if kind is KeyKind.INGEST else []
        deployments = None if kind is KeyKind.SCIM else [12]
        file.create(kind, label="a label", deployments=deployments, origins=origins, expires_at=NOW + 60, now=NOW)
    valid_bytes, keys = file.path.read_bytes(), file.keys()
    for offset in range(len(valid_bytes)):
        flipped = bytearray(valid_bytes)
        flipped[offset] ^= 1
        file.path.write_bytes(flipped)
        with contextlib.suppress(Misconfigured):
            assert file.keys() == keys, f"byte {offset}"


def test_keys_that_do_not_match_their_checksum_are_refused_with_instructions(file: KeyStore) -> None:
    file.create(KeyKind.READ, deployments=[12], now=NOW)
    file.path.write_text(file.path.read_text().replace("12\n", "13\n"))
    with pytest.raises(Misconfigured, match=r'does not match its keys: .* delete the member "checksum"'):
        file.keys()
    rewrite(file, lambda entry: None)
    [key] = file.keys()
    assert key.scope.deployments == frozenset({13})


def test_a_file_without_a_checksum_is_valid_and_gets_one_at_the_next_change(file: KeyStore) -> None:
    old, token = file.create(KeyKind.READ, now=NOW)
    rewrite(file, lambda entry: None)
    assert file.keys() == [old]
    file.create(KeyKind.READ, now=NOW)
    assert len(json.loads(file.path.read_text())["checksum"]) == 64
    assert file.keys()[0] == old
    assert KeyCache(file, lambda: NOW).find(token) == old


# Origins that may send, for preflights


def test_without_ingest_keys_no_origin_may_send(file: KeyStore, clock: Clock) -> None:
    file.create(KeyKind.READ, origins=[PAGE], now=NOW)
    file.create(KeyKind.ADMIN, now=NOW)
    assert KeyCache(file, clock).origins() == frozenset()


def test_the_origins_of_all_live_ingest_keys_may_send(file: KeyStore, clock: Clock) -> None:
    file.create(KeyKind.INGEST, origins=[PAGE, "https://b.example"], now=NOW)
    file.create(KeyKind.INGEST, origins=["https://b.example", "https://soon.example"], expires_at=NOW + 60, now=NOW)
    revoked, _ = file.create(KeyKind.INGEST, origins=["https://gone.example"], now=NOW)
    file.revoke(revoked.key_id, now=NOW)
    cache = KeyCache(file, clock)
    assert cache.origins() == frozenset({PAGE, "https://b.example", "https://soon.example"})
    clock.now += 60
    assert cache.origins() == frozenset({PAGE, "https://b.example"})


def test_one_live_ingest_key_without_origins_allows_all_origins(file: KeyStore, clock: Clock) -> None:
    file.create(KeyKind.INGEST, origins=[PAGE], now=NOW)
    anywhere, _ = file.create(KeyKind.INGEST, now=NOW)
    cache = KeyCache(file, clock)
    assert cache.origins() is None
    file.revoke(anywhere.key_id, now=NOW)
    cache.refresh()
    assert cache.origins() == frozenset({PAGE})


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("15m", 900),
        ("24h", DAY_S),
        ("90d", 90 * DAY_S),
        ("2w", 14 * DAY_S),
        ("36500d", 36_500 * DAY_S),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "d", "90x", "-1d", "1.5d", "90 d", "1h30m", "0d", "36501d", "9" * 5_000 + "d", "٣d"]
)
def test_other_durations_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(Misconfigured, match=r'^duration: ".* is not a duration from 1s to .* Example: 90d\.$'):
        parse_duration(text)


def test_a_key_of_the_longest_duration_can_be_created(file: KeyStore) -> None:
    key, _ = file.create(KeyKind.READ, expires_at=NOW + parse_duration("36500d"), now=NOW)
    assert isinstance(key, Key)
    assert file.keys() == [key]


def test_an_ended_key_is_retained_for_400_days_and_a_live_key_without_limit(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.json")
    day = 86_400
    revoked, _ = keys.create(KeyKind.READ, label="revoked", now=0)
    keys.create(KeyKind.READ, label="expired", expires_at=day, now=0)
    keys.create(KeyKind.READ, label="live", now=0)
    keys.revoke(revoked.key_id, now=2 * day)
    for days, labels in ((400, ["revoked", "expired", "live"]), (401.5, ["revoked", "live"]), (403, ["live"])):
        keys.create(KeyKind.READ, label="new", now=days * day)
        known = keys.keys()
        assert [key.label for key in known if key.label != "new"] == labels, days


def test_only_the_newest_ended_keys_are_retained_beyond_the_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedsink.auth.key_store.ENDED_KEYS_MAX", 2)
    keys = KeyStore(tmp_path / "keys.json")
    for number in range(5):
        key, _ = keys.create(KeyKind.READ, label=str(number), now=number)
        keys.revoke(key.key_id, now=number)
    known = keys.keys()
    assert [key.label for key in known] == ["3", "4"]
