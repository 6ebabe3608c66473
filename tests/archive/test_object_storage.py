"""Archives in object storage: a real S3 server on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedsink.archive.archive import Added, Archive
from embedsink.archive.target import ArchiveFailed, open_target
from embedsink.errors import Misconfigured
from embedsink.store import object_storage as object_storage_module
from embedsink.store.database import Store
from tests.archive.test_archive import load, rows_by_ingest_seq, stored_rows
from tests.support.archives import check_archive
from tests.support.object_storage import object_storage
from tests.support.servers import free_port
from tests.support.stores import open_store


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("s3") / "buckets"
    folder.mkdir()
    with object_storage(folder) as variables:
        yield folder, variables


@pytest.fixture
def bucket(environment: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of an empty bucket."""
    folder, variables = environment
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    path = folder / tmp_path.name.replace("_", "-")
    path.mkdir()
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store.duckdb")
    load(store, {"at": "2026-11-01T10:00"}, {"at": "2026-10-31T10:00"}, {"lost": {"queue_overflow": 1}, "type": None})
    yield store
    store.close()


def url_of(bucket: Path) -> str:
    return f"s3://{bucket.name}/embedsink"


def add(store: Store, url: str) -> Added:
    with store.archive_rows() as rows:
        selected = rows.next_range(0)
        assert selected is not None
        return Archive(open_target(url)).add(rows, selected)


def test_object_storage_gets_the_same_files_as_a_folder(store: Store, bucket: Path) -> None:
    assert add(store, url_of(bucket)) == Added(row_count=3, file_count=3)
    assert add(store, f"{url_of(bucket)}/") == Added()
    load(store, {}, number=2)
    assert add(store, url_of(bucket)) == Added(row_count=1, file_count=1)
    (bucket / "embedsink" / "archive.lock").touch()  # Only folders have one.
    assert check_archive(bucket / "embedsink") == 4
    for table in ("event", "action", "loss"):
        assert rows_by_ingest_seq(bucket / "embedsink", table) == stored_rows(store, table)


def test_files_of_a_killed_process_are_added_to_the_manifest(store: Store, bucket: Path) -> None:
    add(store, url_of(bucket))
    (bucket / "embedsink" / "2026-11" / "manifest.json").unlink()
    assert add(store, url_of(bucket)) == Added()
    (bucket / "embedsink" / "archive.lock").touch()
    assert check_archive(bucket / "embedsink") == 3


def test_wrong_credentials_are_one_sentence(store: Store, bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(
        ArchiveFailed, match=rf"^archive {url_of(bucket)}: refuses the credentials\. Check AWS_ACCESS_KEY_ID"
    ):
        add(store, url_of(bucket))
    assert list(bucket.iterdir()) == []


def test_a_missing_bucket_is_one_sentence(store: Store, bucket: Path) -> None:
    with pytest.raises(ArchiveFailed, match=r"^archive s3://nothing: does not exist\. Create the bucket"):
        add(store, "s3://nothing")


def test_unreachable_object_storage_is_one_sentence(
    store: Store, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ArchiveFailed, match=r"can't be reached\. Check the network and AWS_ENDPOINT_URL\."):
        add(store, url_of(bucket))


def test_missing_credentials_are_refused_at_the_start(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Misconfigured, match="AWS_SECRET_ACCESS_KEY: is not set"):
        open_target(url_of(bucket))


def test_a_missing_extension_is_refused_at_the_start(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_storage_module, "_PACKAGE", "no_such_package")
    with pytest.raises(Misconfigured, match=r"is not installed, and s3:// needs it\. .*embedsink\[archive\]"):
        open_target(url_of(bucket))


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(Misconfigured, match="has no bucket"):
        open_target("s3:///")
