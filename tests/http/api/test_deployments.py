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
def populated_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
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
            response = server.request("PUT", f"{PATH}/2/dbt-sync/{job}/result", key=server.key("sync"), json=sync(job))
            assert response.status_code == 200
        server.rows("/api/v1/reports/sync_impact", key=server.key("read"), count=2)
        server.key("read", deployments=[1, 4])
        server.revoke(server.key("read", deployments=[5]))
        yield server


def pages(server: Server, key: str, limit: int) -> list[list[dict[str, Any]]]:
    found_pages, cursor = [], None
    while True:
        query = {"limit": limit} | ({} if cursor is None else {"cursor": cursor})
        answer = server.get(PATH, key=key, params=query).json()
        found_pages.append(answer["deployments"])
        cursor = answer["nextCursor"]
        if cursor is None:
            return found_pages


def test_deployments_come_from_events_actions_syncs_and_live_keys(populated_server: Server) -> None:
    answer = populated_server.get(PATH, key=populated_server.key("read")).json()
    assert answer["nextCursor"] is None
    counts = ("deploymentId", "eventCount", "actionCount", "syncCount", "keyCount")
    assert [tuple(deployment[name] for name in counts) for deployment in answer["deployments"]] == [
        (1, 2, 1, 0, 1),
        (2, 0, 0, 2, 0),
        (3, 2, 0, 0, 0),
        (4, 0, 0, 0, 1),
    ]
    for deployment in answer["deployments"]:
        # Times are by the server's clock; the client's clock shows 1970.
        assert (deployment["firstSeenAt"] or "2") <= (deployment["lastSeenAt"] or "2")
        assert (deployment["firstSeenAt"] is None) == (deployment["deploymentId"] == 4)
        assert deployment["firstSeenAt"] is None or (
            deployment["firstSeenAt"] > "2020" and deployment["firstSeenAt"].endswith("Z")
        )


@pytest.mark.parametrize(
    ("scope", "expected"), [([1], [1]), ([2, 3], [2, 3]), ([4], [4]), ([9], [9]), (None, [1, 2, 3, 4])]
)
def test_a_scoped_key_sees_only_its_deployments(
    populated_server: Server, scope: list[int] | None, expected: list[int]
) -> None:
    key = populated_server.key("admin", deployments=scope)
    try:
        listed = [
            deployment["deploymentId"] for deployment in populated_server.get(PATH, key=key).json()["deployments"]
        ]
    finally:
        populated_server.revoke(key)
    assert listed == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 1_000])
def test_the_pages_together_are_complete(populated_server: Server, limit: int) -> None:
    key = populated_server.key("read")
    found_pages = pages(populated_server, key, limit)
    assert [deployment for page in found_pages for deployment in page] == populated_server.get(PATH, key=key).json()[
        "deployments"
    ]
    assert all(len(page) == limit for page in found_pages[:-1])
    assert found_pages[-1]


def test_a_cursor_stays_valid_when_deployments_are_added(populated_server: Server) -> None:
    key = populated_server.key("read")
    cursor = populated_server.get(PATH, key=key, params={"limit": 2}).json()["nextCursor"]
    newcomer = populated_server.key("read", deployments=[-7])
    try:
        after = populated_server.get(PATH, key=key, params={"cursor": cursor}).json()["deployments"]
        assert [deployment["deploymentId"] for deployment in after] == [3, 4]
        assert populated_server.get(PATH, key=key, params={"limit": 1}).json()["deployments"][0]["deploymentId"] == -7
    finally:
        populated_server.revoke(newcomer)


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
def test_an_invalid_parameter_answers_400(populated_server: Server, query: str) -> None:
    assert problem(populated_server.get(f"{PATH}?{query}", key=populated_server.key("read"))) == "bad_parameter"


def test_an_ingest_key_cannot_list_deployments(populated_server: Server) -> None:
    assert problem(populated_server.get(PATH, key=populated_server.key())) == "wrong_kind"


def test_an_empty_server_has_no_deployments(server: Server) -> None:
    assert server.get(PATH, key=server.key("read")).json() == {"deployments": [], "nextCursor": None}
