"""`GET /api/v1/deployments`: the list and its pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.app import Server, open_server, problem
from tests.support.envelopes import event_or_action, view

PATH = "/api/v1/deployments"
AT = 1_763_596_800_000


def sync(job: str) -> dict[str, Any]:
    return {
        "syncJobId": job,
        "generatedFiles": [],
        "manifestStats": {"models": 1, "sources": 1, "macros": 1},
        "svcCount": 1,
        "completedAt": "2026-11-02T10:00:00Z",
        "durationMs": 1,
    }


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Open a server with two views and an action of 1, a sync of 2, a session of 3, and events without a deployment."""
    with open_server(tmp_path_factory.mktemp("data"), segment_seal_s=0.01) as server:
        key = server.key()
        refresh = event_or_action("action:refresh")
        for context, events in (
            ({"deployment": 1, "session": "s1"}, [view(), view(timestamp=0), refresh]),
            ({"session": "s3"}, [event_or_action("event:ready", {"deploymentId": 3}), view()]),
            ({}, [view()]),
        ):
            assert server.post({"context": context, "events": events}, key=key).status_code == 202
        for job in ("a", "b"):
            answer = server.ask("PUT", f"{PATH}/2/dbt-sync/{job}/result", key=server.key("sync"), json=sync(job))
            assert answer.status_code == 200
        server.rows("/api/v1/reports/sync_impact", key=server.key("read"), count=2)
        server.key("read", deployments=[1, 4])
        server.revoke(server.key("read", deployments=[5]))
        yield server


def pages(server: Server, key: str, limit: int) -> list[list[dict[str, Any]]]:
    found, cursor = [], None
    while True:
        query = {"limit": limit} | ({} if cursor is None else {"cursor": cursor})
        answer = server.get(PATH, key=key, params=query).json()
        found.append(answer["deployments"])
        cursor = answer["nextCursor"]
        if cursor is None:
            return found


def test_deployments_come_from_events_actions_syncs_and_live_keys(house: Server) -> None:
    answer = house.get(PATH, key=house.key("read")).json()
    assert answer["nextCursor"] is None
    counts = ("deploymentId", "eventCount", "actionCount", "syncCount", "keyCount")
    assert [tuple(one[name] for name in counts) for one in answer["deployments"]] == [
        (1, 2, 1, 0, 1),
        (2, 0, 0, 2, 0),
        (3, 2, 0, 0, 0),
        (4, 0, 0, 0, 1),
    ]
    for one in answer["deployments"]:
        # By the server's clock: the client's says 1970.
        assert (one["firstSeenAt"] or "2") <= (one["lastSeenAt"] or "2")
        assert (one["firstSeenAt"] is None) == (one["deploymentId"] == 4)
        assert one["firstSeenAt"] is None or (one["firstSeenAt"] > "2020" and one["firstSeenAt"].endswith("Z"))


@pytest.mark.parametrize(
    ("scope", "expected"), [([1], [1]), ([2, 3], [2, 3]), ([4], [4]), ([9], [9]), (None, [1, 2, 3, 4])]
)
def test_a_scoped_key_sees_only_its_deployments(house: Server, scope: list[int] | None, expected: list[int]) -> None:
    key = house.key("admin", deployments=scope)
    try:
        listed = [one["deploymentId"] for one in house.get(PATH, key=key).json()["deployments"]]
    finally:
        house.revoke(key)
    assert listed == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 1_000])
def test_the_pages_together_are_complete(house: Server, limit: int) -> None:
    key = house.key("read")
    found = pages(house, key, limit)
    assert [one for page in found for one in page] == house.get(PATH, key=key).json()["deployments"]
    assert all(len(page) == limit for page in found[:-1])
    assert found[-1]


def test_a_cursor_stays_valid_when_deployments_are_added(house: Server) -> None:
    key = house.key("read")
    cursor = house.get(PATH, key=key, params={"limit": 2}).json()["nextCursor"]
    newcomer = house.key("read", deployments=[-7])
    try:
        after = house.get(PATH, key=key, params={"cursor": cursor}).json()["deployments"]
        assert [one["deploymentId"] for one in after] == [3, 4]
        assert house.get(PATH, key=key, params={"limit": 1}).json()["deployments"][0]["deploymentId"] == -7
    finally:
        house.revoke(newcomer)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=1&limit=2",
        "cursor=x",
        "cursor=",
        "cursor=1.5",
        "since=7d",
        "deployment=1",
    ],
)
def test_an_invalid_parameter_answers_400(house: Server, query: str) -> None:
    assert problem(house.get(f"{PATH}?{query}", key=house.key("read"))) == "bad_parameter"


def test_an_ingest_key_cannot_list_deployments(house: Server) -> None:
    assert problem(house.get(PATH, key=house.key())) == "wrong_kind"


def test_an_empty_server_has_no_deployments(server: Server) -> None:
    assert server.get(PATH, key=server.key("read")).json() == {"deployments": [], "nextCursor": None}
