"""The directory of an open data folder: durable before a response, complete after restarts, unchanged by failures."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from scim2_server.requests import ScimRequest

from embedsink.engine import Engine
from embedsink.errors import Unavailable
from embedsink.ingest.records import read_directory_changes
from embedsink.journal.writer import Journal
from embedsink.key_scope import EVERYTHING
from embedsink.reasons import Reason
from embedsink.settings import Settings
from tests.support.servers import wait_until
from tests.support.stores import make_folder

Response = tuple[int, dict[str, Any]]


async def ask(engine: Engine, method: str, path: str, body: object = None, **query: str) -> Response:
    request = ScimRequest(
        method,
        "https://events.example/api/scim/v2",
        path,
        query=query,
        headers={"Content-Type": "application/scim+json"},
        body=b"" if body is None else json.dumps(body).encode(),
    )
    response = await engine.directory.answer(request)
    return int(response.status), response.body or {}


def user(name: str, **fields: Any) -> dict[str, Any]:
    return {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": name, **fields}


def group(name: str, *members: str) -> dict[str, Any]:
    schemas = ["urn:ietf:params:scim:schemas:core:2.0:Group"]
    return {"schemas": schemas, "displayName": name, "members": [{"value": member} for member in members]}


def patch(**operation: Any) -> dict[str, Any]:
    return {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": [operation]}


async def listed(engine: Engine) -> list[dict[str, Any]]:
    """Return all users and groups, ordered by their ids."""
    resources = [
        resource
        for path in ("/Users", "/Groups")
        for resource in (await ask(engine, "GET", path))[1].get("Resources", ())
    ]
    return sorted(resources, key=lambda resource: str(resource["id"]))


def run(folder: Path, action: Callable[[Engine], Coroutine[Any, Any, Any]], **settings: Any) -> Any:
    """Open the folder, run an action, and close the folder."""

    async def opened() -> Any:
        async with Engine(make_folder(folder), Settings(**settings)) as engine:
            return await action(engine)

    return asyncio.run(opened())


async def provision(engine: Engine) -> list[dict[str, Any]]:
    """Make a change of each kind, and return the resulting users and groups."""
    ids = [str((await ask(engine, "POST", "/Users", user(f"u{number}")))[1]["id"]) for number in range(4)]
    _, analysts = await ask(engine, "POST", "/Groups", group("Analysts", *ids[:3]))
    await ask(engine, "PATCH", f"/Users/{ids[0]}", patch(op="replace", path="active", value=False))
    await ask(engine, "PUT", f"/Users/{ids[1]}", user("renamed", id=ids[1]))
    await ask(engine, "DELETE", f"/Users/{ids[2]}")
    await ask(engine, "PATCH", f"/Groups/{analysts['id']}", patch(op="add", path="members", value=[{"value": ids[3]}]))
    _, empty = await ask(engine, "POST", "/Groups", group("Empty"))
    await ask(engine, "DELETE", f"/Groups/{empty['id']}")
    return await listed(engine)


def stored_count(engine: Engine) -> int:
    """Return the number of resources in the store, including deleted ones."""
    with engine.store.reader(EVERYTHING.variables()) as reader:
        return len(reader.dicts("directory_resource"))


@pytest.mark.parametrize("seal_s", [0.01, 60.0], ids=["loaded", "in the journal"])
def test_a_restart_changes_nothing(tmp_path: Path, seal_s: float) -> None:
    async def act(engine: Engine) -> list[dict[str, Any]]:
        resources = await provision(engine)
        if seal_s < 1:
            await asyncio.to_thread(wait_until, lambda: stored_count(engine) == 6, description="all are loaded")
        return resources

    before = run(tmp_path, act, segment_seal_s=seal_s)
    assert [resource.get("displayName") or resource["userName"] for resource in before].count("Analysts") == 1
    assert run(tmp_path, listed) == before
    _, created = run(tmp_path, lambda engine: ask(engine, "POST", "/Users", user("new")))
    versions = {resource["meta"]["version"] for resource in before}
    assert created["meta"]["version"] not in versions


def test_a_change_is_in_the_journal_when_it_is_answered(tmp_path: Path) -> None:
    async def act(engine: Engine) -> list[str]:
        status, created = await ask(engine, "POST", "/Users", user("ann"))
        assert status == 201
        [segment] = engine.folder.journal.glob("*.open")
        changes = [change.resource_id for _, change in read_directory_changes(segment.read_bytes())]
        assert changes == [created["id"]]
        return changes

    run(tmp_path, act, segment_seal_s=60.0)


def test_a_refused_change_is_undone_and_the_next_one_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(engine: Engine) -> None:
        _, ann = await ask(engine, "POST", "/Users", user("ann"))
        before = await listed(engine)
        with monkeypatch.context() as patched:
            refusal = Unavailable(Reason.OVERLOADED)

            def refuse(_: bytes) -> None:
                raise refusal

            patched.setattr(engine.journal, "append", refuse)
            for method, path, body in (
                ("POST", "/Users", user("bob")),
                ("PATCH", f"/Users/{ann['id']}", patch(op="replace", path="active", value=False)),
                ("DELETE", f"/Users/{ann['id']}", None),
            ):
                with pytest.raises(Unavailable):
                    await ask(engine, method, path, body)
                assert await listed(engine) == before
        assert (await ask(engine, "POST", "/Users", user("bob")))[0] == 201

    run(tmp_path, act)


def test_a_cancelled_request_takes_effect(tmp_path: Path) -> None:
    async def act(engine: Engine) -> list[dict[str, Any]]:
        await listed(engine)
        task = asyncio.create_task(ask(engine, "POST", "/Users", user("ann")))
        await asyncio.sleep(0)
        task.cancel()
        # The next request waits for the cancelled one.
        return await listed(engine)

    names = [resource["userName"] for resource in run(tmp_path, act)]
    assert names == ["ann"]
    assert [resource["userName"] for resource in run(tmp_path, listed)] == names


def test_an_incomplete_journal_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(engine: Engine) -> None:
        with monkeypatch.context() as full_disk:
            full_disk.setattr(Journal, "is_recovered", False)
            with pytest.raises(Unavailable, match="journal is not recovered") as error:
                await listed(engine)
            assert error.value.reason is Reason.NOT_READY
        assert await listed(engine) == []

    run(tmp_path, act)


def test_a_request_with_more_changes_than_the_journal_takes_is_refused(tmp_path: Path) -> None:
    async def act(engine: Engine) -> None:
        ids = [(await ask(engine, "POST", "/Users", user(f"u{number}")))[1]["id"] for number in range(3)]
        before = await listed(engine)
        operations = [{"method": "DELETE", "path": f"/Users/{one}"} for one in ids]
        body = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:BulkRequest"], "Operations": operations}
        engine.journal.limits = replace(engine.journal.limits, pending_bytes_max=300)
        status, error = await ask(engine, "POST", "/Bulk", body)
        assert (status, error["detail"]) == (413, "The request changes too many resources. Send it in parts.")
        assert await listed(engine) == before

    run(tmp_path, act)


def test_concurrent_changes_of_one_user_are_serialised(tmp_path: Path) -> None:
    async def act(engine: Engine) -> None:
        _, ann = await ask(engine, "POST", "/Users", user("ann"))
        emails = [{"value": f"{number}@example.com", "type": f"t{number}"} for number in range(10)]
        path = f"/Users/{ann['id']}"
        await asyncio.gather(
            *[ask(engine, "PATCH", path, patch(op="add", path="emails", value=[email])) for email in emails],
            *[ask(engine, "POST", "/Users", user("same")) for _ in range(5)],
        )
        _, stored = await ask(engine, "GET", path)
        assert sorted(email["value"] for email in stored["emails"]) == [f"{number}@example.com" for number in range(10)]
        assert len(await listed(engine)) == 2

    run(tmp_path, act)


def test_a_bulk_request_is_one_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operations = [
        {"method": "POST", "path": "/Users", "bulkId": f"b{number}", "data": user(f"u{number}")} for number in range(20)
    ]
    body = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:BulkRequest"], "Operations": operations}

    async def act(engine: Engine) -> None:
        append = MagicMock(wraps=engine.journal.append)
        monkeypatch.setattr(engine.journal, "append", append)
        _, response = await ask(engine, "POST", "/Bulk", body)
        assert {operation["status"] for operation in response["Operations"]} == {"201"}
        assert [lines.count(b"\n") for ((lines,), _) in append.call_args_list] == [20]

    run(tmp_path, act)
