"""The snapshot over HTTP: complete, as ranges, and while it is replaced."""

import asyncio
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from starlette.types import Message

from embedsink.auth.key_store import KeyStore
from embedsink.engine import SNAPSHOT_DOWNLOADS_MAX
from embedsink.http.streaming import FileDownload
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import view
from tests.support.servers import wait_until

PATH = "/api/v1/analytics.duckdb"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("data")
    with open_server(folder, segment_seal_s=0.01) as server:
        server.post(view(), key=server.key())
        server.rows("/api/v1/reports/views", key=server.key("read"))
    # The first snapshot of a server is published at once; later ones wait for twenty times the duration of a copy.
    with open_server(folder) as server:
        wait_until(lambda: server.engine.loader.status.snapshot_count == 1, description="the snapshot is published")
        assert rows_in(server.folder.snapshot) == 1
        yield server


def rows_in(snapshot: Path) -> int:
    with duckdb.connect(str(snapshot), read_only=True) as connection:
        [(count,)] = connection.execute("select count(*) from event").fetchall()
    return int(count)


def test_the_snapshot_opens_as_a_database(published: Server, tmp_path: Path) -> None:
    response = published.get(PATH, key=published.key("read"))
    assert int(response.headers["content-length"]) == len(response.content)
    assert response.headers["content-disposition"] == 'attachment; filename="analytics.duckdb"'
    (tmp_path / "analytics.duckdb").write_bytes(response.content)
    assert rows_in(tmp_path / "analytics.duckdb") == 1


def test_a_range_of_the_snapshot_can_be_downloaded(published: Server) -> None:
    key = published.key("read")
    snapshot = published.get(PATH, key=key).content
    for requested, part in {"bytes=8-11": snapshot[8:12], "bytes=-5": snapshot[-5:], "bytes=9-": snapshot[9:]}.items():
        response = published.get(PATH, key=key, headers={"range": requested})
        assert (response.status_code, response.content) == (206, part)
        assert response.headers["content-range"].endswith(f"/{len(snapshot)}")


@pytest.mark.parametrize("requested", ["bytes=5-1", "bytes=0-1,3-4", "lines=0-1", "bytes=-", "=", ""])
def test_an_invalid_or_multiple_range_answers_with_the_whole_file(published: Server, requested: str) -> None:
    assert published.get(PATH, key=published.key("read"), headers={"range": requested}).status_code == 200


@pytest.mark.parametrize(
    "requested", ["bytes=-0", f"bytes={10**17}-", f"bytes={10**400}-{10**401}", "bytes=SIZE-", "-"]
)
def test_an_unsatisfiable_range_answers_416_with_the_size(published: Server, requested: str) -> None:
    key = published.key("read")
    size = len(published.get(PATH, key=key).content)
    requested = requested.replace("SIZE", str(size)) if requested != "-" else f"BYTES={size}-{size}"
    response = published.get(PATH, key=key, headers={"range": requested})
    assert (response.status_code, problem(response)) == (416, "bad_range")
    assert response.headers["content-range"] == f"bytes */{size}"
    assert f"contains none of the file's {size:,} bytes." in response.json()["detail"]
    # Only GET has parts (RFC 9110, section 14.2).
    assert published.request("HEAD", PATH, key=key, headers={"range": requested}).status_code == 200


def test_the_snapshot_answers_304_until_the_next_is_published(published: Server) -> None:
    key = published.key("read")
    tag = published.get(PATH, key=key).headers["etag"]
    assert re.fullmatch(r'"[0-9a-f-]+"', tag)
    for known in (tag, f'"other", W/{tag}', "*"):
        for part in ({}, {"range": "bytes=0-1"}, {"range": f"bytes={10**17}-"}):
            second_response = published.get(PATH, key=key, headers={"if-none-match": known} | part)
            assert (second_response.status_code, second_response.content, second_response.headers["etag"]) == (
                304,
                b"",
                tag,
            )
    status = published.folder.snapshot.stat()
    os.utime(published.folder.snapshot, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    other = published.get(PATH, key=key, headers={"if-none-match": tag})
    assert other.status_code == 200
    assert other.headers["etag"] != tag


def test_a_download_resumes_only_with_the_same_snapshot(published: Server) -> None:
    key = published.key("read")
    first = published.get(PATH, key=key)
    requested = {"range": "bytes=0-9"}
    same = published.get(PATH, key=key, headers=requested | {"if-range": first.headers["etag"]})
    assert (same.status_code, same.content) == (206, first.content[:10])
    other_tags = ('"other"', f"W/{first.headers['etag']}", first.headers["last-modified"])
    for other, part in itertools.product(other_tags, ("bytes=0-9", f"bytes={10**17}-")):
        response = published.get(PATH, key=key, headers={"range": part, "if-range": other})
        assert (response.status_code, response.content) == (200, first.content), other


def test_the_number_of_concurrent_downloads_is_limited(published: Server) -> None:
    """Beyond the limit downloads get 503 with Retry-After; 304 needs no slot, and each end frees a slot."""
    key = published.key("read")
    tag = published.get(PATH, key=key).headers["etag"]

    slots = [published.engine.limiters.snapshots.slot(f"k_{number}") for number in range(SNAPSHOT_DOWNLOADS_MAX)]
    for slot in slots:
        published._runner.run(slot.__aenter__())
    try:
        refused = published.get(PATH, key=key)
        assert (refused.status_code, problem(refused)) == (503, "overloaded")
        assert "write" not in refused.json()["title"]
        assert refused.json()["detail"].startswith(
            "analytics.duckdb: all running and waiting slots are in use (4 concurrent downloads"
        )
        assert published.get(PATH, key=key, headers={"if-none-match": tag}).status_code == 304
        # A refused export has no open descriptor, so it retains no replaced snapshot.
        snapshot = published.folder.snapshot.resolve()
        assert [descriptor for descriptor in Path("/dev/fd").iterdir() if descriptor.resolve() == snapshot] == []
    finally:
        for slot in slots:
            published._runner.run(slot.__aexit__(None, None, None))
    for _ in range(2 * SNAPSHOT_DOWNLOADS_MAX):
        assert published.get(PATH, key=key).status_code == 200


def test_one_key_cannot_use_all_download_slots(published: Server) -> None:
    key, other = published.key("read"), published.key("read")
    key_id, _ = (key_record.key_id for key_record in KeyStore(published.folder.keys).keys()[-2:])
    slots = [published.engine.limiters.snapshots.slot(key_id) for _ in range(SNAPSHOT_DOWNLOADS_MAX - 1)]
    for slot in slots:
        published._runner.run(slot.__aenter__())
    try:
        assert problem(published.get(PATH, key=key)) == "overloaded"
        assert published.get(PATH, key=other).status_code == 200
    finally:
        for slot in slots:
            published._runner.run(slot.__aexit__(None, None, None))
    assert published.get(PATH, key=key).status_code == 200


def test_two_ranges_or_two_if_range_headers_are_ignored(published: Server) -> None:
    key = published.key("read")
    complete_response = published.get(PATH, key=key)
    tag, size = complete_response.headers["etag"], len(complete_response.content)
    for headers in (
        [("range", "bytes=0-1"), ("range", "bytes=4-5")],
        [("range", f"bytes={size}-"), ("range", "bytes=4-5")],
        [("range", "bytes=0-1"), ("if-range", tag), ("if-range", '"other"')],
    ):
        assert published.get(PATH, key=key, headers=headers).status_code == 200, headers


def test_the_snapshot_needs_a_key_without_a_scope(published: Server) -> None:
    assert problem(published.get(PATH, key=published.key("read", deployments=[1]))) == "out_of_scope"
    assert published.get(PATH, key=published.key("admin")).status_code == 200


def test_before_the_first_snapshot_retry_after_is_sent(published: Server, tmp_path: Path) -> None:
    moved = published.folder.snapshot.rename(tmp_path / "moved")
    try:
        assert problem(published.get(PATH, key=published.key("read"))) == "not_ready"
    finally:
        moved.rename(published.folder.snapshot)


class Receiver:
    """A client that downloads a file and counts its chunks."""

    def __init__(self) -> None:
        self.body = b""
        self.chunk_count = 0

    async def receive(self) -> Message:
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.body += message["body"]
            self.chunk_count += 1


SCOPE = {"type": "http", "method": "GET", "headers": [], "extensions": {}}


def test_a_file_replaced_during_the_download_continues_unchanged(tmp_path: Path) -> None:
    file, new = tmp_path / "file", tmp_path / "new"
    file.write_bytes(b"old" * 100_000)
    new.write_bytes(b"n" * 7)
    descriptor = os.open(file, os.O_RDONLY)
    receiver = Receiver()

    async def send(message: Message) -> None:
        if receiver.chunk_count == 1:
            new.rename(file)
        await receiver.send(message)

    download = FileDownload(descriptor, lambda: True, filename="file")
    asyncio.run(download(SCOPE, receiver.receive, send))
    assert file.read_bytes() == b"n" * 7
    assert receiver.body == b"old" * 100_000
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file_replaced_before_the_first_byte_is_sent_unchanged(tmp_path: Path) -> None:
    file, new = tmp_path / "file", tmp_path / "new"
    file.write_bytes(b"old")
    new.write_bytes(b"newer")
    download = FileDownload(os.open(file, os.O_RDONLY), lambda: True, filename="file")
    new.rename(file)
    receiver = Receiver()
    asyncio.run(download(SCOPE, receiver.receive, receiver.send))
    assert receiver.body == b"old"


def test_a_download_is_cut_when_its_key_is_revoked(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1_000_000)
    receiver = Receiver()
    download = FileDownload(os.open(file, os.O_RDONLY), lambda: receiver.chunk_count < 2, filename="file")
    asyncio.run(download(SCOPE, receiver.receive, receiver.send))
    assert receiver.chunk_count == 2
    assert len(receiver.body) < 1_000_000
