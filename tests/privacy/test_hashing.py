"""Hashes of personal data, and the file with their secrets."""

import hmac
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from embedsink.audit.changes import secret_file_of
from embedsink.errors import Misconfigured
from embedsink.privacy.hashing import SecretFile, hash_text
from tests.support.servers import running_server, wait_until
from tests.support.stores import make_folder

SECRET = bytes(range(32))


def test_a_hash_is_an_hmac_of_the_field_and_the_text() -> None:
    expected = hmac.new(SECRET, b"viewer\0ann@example.com", sha256).hexdigest()[:32]
    assert hash_text("viewer", "ann@example.com", SECRET) == f"h_{expected}"
    assert hash_text("tenant", "ann@example.com", SECRET) != f"h_{expected}"


def test_a_hash_is_not_hashed_again() -> None:
    once = hash_text("viewer", "ann", SECRET)
    assert hash_text("viewer", once, SECRET) == once
    assert hash_text("viewer", once.upper(), SECRET) != once.upper()


def test_any_text_has_a_hash() -> None:
    assert len({hash_text("query", text, SECRET) for text in ("", "\0", "\ud800", "é", "x" * 100_000)}) == 5


def test_secrets_are_private_and_durable(tmp_path: Path) -> None:
    file = SecretFile(tmp_path / "privacy_secrets.json")
    assert file.read() == []
    [secret] = file.read_or_create()
    assert file.read_or_create() == [secret]
    assert (tmp_path / "privacy_secrets.json").stat().st_mode & 0o777 == 0o600
    newer, former = file.rotate()
    assert (len(newer), former) == (32, secret)
    assert newer != secret
    [newest] = file.rotate(keeps_former=False)
    assert newest not in (newer, secret)


@pytest.mark.parametrize("content", ["", "{}", '{"secrets": ["00"]}', '{"secrets": [1]}', '{"secrets": ["x"]}', "[]"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "privacy_secrets.json"
    path.write_text(content)
    with pytest.raises(Misconfigured, match="is damaged"):
        SecretFile(path).read_or_create()
    assert path.read_text() == content


def test_a_missing_file_that_is_expected_is_refused(tmp_path: Path) -> None:
    file = SecretFile(tmp_path / "privacy_secrets.json", is_expected=True)
    for call in (file.read, file.read_or_create, file.rotate):
        with pytest.raises(Misconfigured, match="is missing, but earlier events are hashed"):
            call()
    assert len(file.rotate(keeps_former=False)) == len(file.read_or_create()) == 1


def test_the_secret_of_hashed_questions_is_expected_at_the_next_start(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "data")
    with running_server(folder.path, EMBEDSINK_QUESTION_RETENTION_DAYS="30"):
        wait_until((folder.audit / "recorded-settings.json").exists, description="the settings are recorded")
    folder.privacy_secrets.unlink()
    with pytest.raises(Misconfigured, match="is missing, but earlier events are hashed"):
        secret_file_of(folder).read_or_create()


def test_concurrent_rotations_lose_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "privacy_secrets.json"
    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(lambda _: SecretFile(path).read_or_create(), range(8)))
        rotated = list(threads.map(lambda _: SecretFile(path).rotate(), range(8)))
    assert len({tuple(secrets) for secrets in created}) == 1
    assert {secret for secrets in rotated for secret in secrets} == set(SecretFile(path).read())
    assert len(SecretFile(path).read()) == 9
