"""The snapshot over HTTP: whole, in parts, and the same to the end when it is replaced."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from starlette.types import Message

from embedsink.http.download import FileDownload
from tests.envelope.sending import view
from tests.http.asking import Server, open_server, problem
from tests.servers import wait_until

PATH = "/api/v1/analytics.duckdb"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with open_server(tmp_path_factory.mktemp("data"), segment_seal_s=0.01, snapshot_interval_s=0.05) as server:
        server.post(view(), key=server.key())
        server.rows("/api/v1/reports/views", key=server.key("read"))
        wait_until(lambda: rows_in(server.folder.snapshot) == 1, what="the event is in the snapshot")
        yield server


def rows_in(snapshot: Path) -> int:
    with duckdb.connect(str(snapshot), read_only=True) as connection:
        [(count,)] = connection.execute("select count(*) from event").fetchall()
    return int(count)


def test_it_opens_as_a_database(published: Server, tmp_path: Path) -> None:
    answer = published.get(PATH, key=published.key("read"))
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert answer.headers["content-disposition"] == 'attachment; filename="analytics.duckdb"'
    (tmp_path / "analytics.duckdb").write_bytes(answer.content)
    assert rows_in(tmp_path / "analytics.duckdb") == 1


def test_a_part_of_it_can_be_had(published: Server) -> None:
    key = published.key("read")
    whole = published.get(PATH, key=key).content
    for asked, part in {"bytes=8-11": whole[8:12], "bytes=-5": whole[-5:], "bytes=9-": whole[9:]}.items():
        answer = published.get(PATH, key=key, headers={"range": asked})
        assert (answer.status_code, answer.content) == (206, part)
        assert answer.headers["content-range"].endswith(f"/{len(whole)}")


@pytest.mark.parametrize("asked", ["bytes=5-1", "bytes=0-1,3-4", "lines=0-1", "bytes=-0", f"bytes={10**17}-", "=", ""])
def test_a_part_that_there_is_not_is_all_of_it(published: Server, asked: str) -> None:
    assert published.get(PATH, key=published.key("read"), headers={"range": asked}).status_code == 200


def test_it_is_for_keys_of_all_deployments(published: Server) -> None:
    assert problem(published.get(PATH, key=published.key("read", deployments=[1]))) == "out_of_scope"
    assert published.get(PATH, key=published.key("admin")).status_code == 200


def test_before_the_first_there_is_a_time_to_wait(published: Server, tmp_path: Path) -> None:
    kept = published.folder.snapshot.rename(tmp_path / "kept")
    try:
        assert problem(published.get(PATH, key=published.key("read"))) == "not_ready"
    finally:
        kept.rename(published.folder.snapshot)


class Receiver:
    """Who downloads a file, and what came; `after` happens with the first chunk of it."""

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


def test_a_file_that_is_replaced_meanwhile_goes_on_from_the_old_one(tmp_path: Path) -> None:
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


def test_a_file_that_was_replaced_before_the_first_byte_is_the_old_one_too(tmp_path: Path) -> None:
    file, new = tmp_path / "file", tmp_path / "new"
    file.write_bytes(b"old")
    new.write_bytes(b"newer")
    download = FileDownload(os.open(file, os.O_RDONLY), lambda: True, filename="file")
    new.rename(file)
    receiver = Receiver()
    asyncio.run(download(SCOPE, receiver.receive, receiver.send))
    assert receiver.body == b"old"


def test_it_is_cut_when_its_key_is_revoked(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1_000_000)
    receiver = Receiver()
    download = FileDownload(os.open(file, os.O_RDONLY), lambda: receiver.chunk_count < 2, filename="file")
    asyncio.run(download(SCOPE, receiver.receive, receiver.send))
    assert receiver.chunk_count == 2
    assert len(receiver.body) < 1_000_000
