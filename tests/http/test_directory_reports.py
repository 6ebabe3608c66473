"""Departments, groups and names over HTTP: parameters, grants, limited keys and entity tags."""

import csv
import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

from embedsink.ingest.records import DirectoryChange, directory_line
from embedsink.reports.format import REPORT_FORMATS
from tests.support.app import Server, open_server, problem
from tests.support.given import ENTERPRISE
from tests.support.servers import wait_until

NAME = "Ada Lovelace"
FIVE = ("ai_queries", "downloads", "error_rates", "sessions", "views")


@dataclass(frozen=True)
class Directory:
    """A server with a directory, and keys of its readers."""

    server: Server
    names: str
    read: str
    scoped: str
    tenant: str
    admin: str

    def get(self, path: str, key: str | None = None, etag: str | None = None) -> httpx2.Response:
        headers = {} if etag is None else {"If-None-Match": etag}
        return self.server.get(f"/api/v1/{path}", key=key or self.read, headers=headers)

    def put_user(self, user_id: str, *, department: str, is_active: bool = True) -> None:
        """Record a new version of a user, and wait until it is loaded."""
        resource = {
            "id": user_id,
            "externalId": user_id,
            "userName": user_id,
            "displayName": NAME,
            "active": is_active,
            ENTERPRISE: {"department": department},
        }
        deactivated_at = None if is_active else 0
        self.record(DirectoryChange("User", user_id, resource, deactivated_at))

    def record(self, change: DirectoryChange) -> None:
        engine = self.server.engine
        before = engine.store.revisions.of_directory()
        line = directory_line(change, received_at=round(time.time() * 1000))
        self.server.append(line)
        wait_until(lambda: engine.store.revisions.of_directory() != before, description="the directory")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with open_server(tmp_path_factory.mktemp("data"), segment_seal_s=0.01) as server:
        opened = Directory(
            server,
            names=server.key("read", shows_names=True),
            read=server.key("read"),
            scoped=server.key("read", deployments=[1]),
            tenant=server.key("read", tenants=["acme"]),
            admin=server.key("admin"),
        )
        opened.put_user("u1", department="Sales", is_active=False)
        opened.put_user("u2", department="Support")
        opened.record(DirectoryChange("Group", "g", {"id": "g", "displayName": "Analysts"}, members_added=("u1",)))
        for viewer in ("u1", "u2"):
            view = {
                "source": "svc-embed",
                "direction": "event",
                "type": "svc:event:view",
                "surface": "dashboard",
                "timestamp": round(time.time() * 1000),
                "payload": {"surface": "dashboard", "path": "/"},
            }
            context = {"deployment": 1, "session": viewer, "viewer": viewer, "tenant": "acme"}
            assert server.post({"context": context, "events": [view]}, key=server.key()).status_code == 202
        wait_until(lambda: len(opened.get("reports/sessions").json()) == 2, description="two sessions")
        yield opened


def test_by_adds_columns_and_a_filter_adds_none(directory: Directory) -> None:
    plain = directory.get("reports/views").json()
    assert [(row["view_count"], row.keys() & {"department", "group"}) for row in plain] == [(2, set())]
    by_department = directory.get("reports/views?by=department").json()
    assert [(row["department"], row["view_count"]) for row in by_department] == [("Sales", 1), ("Support", 1)]
    assert [list(row) for row in by_department] == [
        ["period_start", "deployment", "surface", "department", "view_count", "session_count", "viewer_count"]
    ] * 2
    by_group = directory.get("reports/views.csv?by=group,department").text.splitlines()
    assert by_group[0].split(",")[3:5] == ["department", "group"]
    assert directory.get("reports/views?department=Sales").json() == [plain[0] | dict.fromkeys(counts(plain[0]), 1)]
    assert directory.get("reports/views?group=Analysts&department=Support").json() == []
    for report in FIVE:
        assert directory.get(f"reports/{report}?by=department&columns=department").status_code == 200
    refused = directory.get("reports/views?columns=department")
    assert problem(refused) == "bad_parameter"
    assert refused.json()["detail"].startswith('columns: column "department" does not exist.')


def counts(row: dict[str, object]) -> list[str]:
    return [name for name in row if name.endswith("_count")]


def test_sessions_keep_one_row_on_each_page(directory: Directory) -> None:
    first = directory.get("reports/sessions?by=group&limit=1")
    cursor = first.headers["x-next-cursor"]
    second = directory.get(f"reports/sessions?by=group&limit=1&cursor={cursor}")
    assert [(row["viewer"], row["group"]) for row in first.json() + second.json()] == [("u1", "Analysts"), ("u2", None)]
    # A cursor belongs to its dimensions.
    assert problem(directory.get(f"reports/sessions?limit=1&cursor={cursor}")) == "bad_parameter"


def test_other_reports_refuse_the_parameters(directory: Directory) -> None:
    for path in ("reports/errors", "reports/totals.csv", "reports/leavers", "events.csv"):
        for parameter in ("by=department", "department=Sales", "group=Analysts"):
            refused = directory.get(f"{path}?{parameter}")
            assert (problem(refused), refused.status_code) == ("bad_parameter", 400)
            assert refused.json()["detail"].startswith(f"{parameter.partition('=')[0]}: ")
            assert ", ".join(FIVE) in refused.json()["detail"]


def test_names_require_the_grant_in_every_format(directory: Directory) -> None:
    for format in REPORT_FORMATS:
        path = f"reports/leavers.{format}"
        contents = {key: directory.get(path, key).content for key in (directory.names, directory.admin, directory.read)}
        # Parquet stores a short text as it is, and Arrow too.
        assert [NAME.encode() in content for content in contents.values()] == [True, True, False], format
    [row] = directory.get("reports/leavers", directory.names).json()
    assert (row["viewer"], row["display_name"], row["department"], row["view_count"]) == ("u1", NAME, "Sales", 1)
    [hidden] = directory.get("reports/leavers").json()
    assert hidden == row | {"display_name": None}
    section = "dashboards/exports/sections/viewers"
    assert NAME in directory.get(section, directory.names).text
    for path in ("events.ndjson", "summary.zip", "inspect?wait=0", section):
        assert NAME.encode() not in directory.get(path).content
    with ZipFile(io.BytesIO(directory.get("summary.zip").content)) as archive:
        assert NAME.encode() not in archive.read("leavers.csv")
    with ZipFile(io.BytesIO(directory.get("summary.zip", directory.names).content)) as archive:
        assert NAME.encode() in archive.read("leavers.csv")


def test_a_dashboard_is_limited_to_a_department_where_its_reports_can_be(directory: Directory) -> None:
    path = "dashboards/exports/sections/viewers"
    section = directory.get(f"{path}?department=Sales").json()["charts"]
    assert {tile["unavailable"] for tile in section.values()} == {"not available by department or group"}
    assert {(*tile["rows"], tile["row_count"]) for tile in section.values()} == {(None,)}
    overview = directory.get("dashboards/overview/sections/use?department=Sales").json()["charts"]
    available = {tile_id for tile_id, tile in overview.items() if tile["unavailable"] is None}
    assert available
    assert available != overview.keys()
    unfiltered = directory.get("dashboards/overview/sections/use").json()["charts"]
    assert {tile["unavailable"] for tile in unfiltered.values()} == {None}
    assert any(overview[tile_id] != unfiltered[tile_id] for tile_id in available)


def test_the_filters_of_a_dashboard_have_departments_only_with_a_directory(
    directory: Directory, tmp_path: Path
) -> None:
    with open_server(tmp_path / "data") as empty:
        pages = {
            name: page_of(server, key)
            for name, server, key in (
                ("readable", directory.server, directory.read),
                ("of a tenant", directory.server, directory.tenant),
                ("empty", empty, empty.key("read")),
            )
        }
    assert {name: 'name="department"' in page for name, page in pages.items()} == {
        "readable": True,
        "of a tenant": False,
        "empty": False,
    }


def page_of(server: Server, token: str) -> str:
    """Return the page of a dashboard for a reader who has logged in with a key."""
    key = server.engine.keys.find(token)
    assert key is not None
    cookie = f"embedsink_login={server.state['credentials'].sessions.start(key)}"
    return server.get("/dashboards/overview", headers={"cookie": cookie}).text


def test_the_snapshot_requires_names(directory: Directory) -> None:
    refused = directory.get("analytics.duckdb")
    assert (problem(refused), refused.status_code) == ("out_of_scope", 403)
    wait_until(
        lambda: directory.get("analytics.duckdb", directory.names).status_code == 200, description="the snapshot"
    )


def test_the_snapshot_requires_names_also_after_the_last_deletion(tmp_path: Path) -> None:
    with open_server(tmp_path / "data", segment_seal_s=0.01, snapshot_interval_s=0.01) as server:
        names, read = server.key("read", shows_names=True), server.key("read")

        def snapshot(key: str) -> int:
            return server.get("/api/v1/analytics.duckdb", key=key).status_code

        wait_until(lambda: snapshot(read) == 200, description="the snapshot")
        only = Directory(server, names=names, read=read, scoped=read, tenant=read, admin=read)
        only.put_user("ann", department="Sales")
        assert snapshot(read) == 403
        only.record(DirectoryChange("User", "ann", None))
        assert (snapshot(read), snapshot(names)) == (403, 200)


def test_a_key_with_tenants_sees_nothing_of_the_directory(directory: Directory) -> None:
    [row] = directory.get("reports/views?by=department,group", directory.tenant).json()
    assert (row["department"], row["group"], row["view_count"]) == (None, None, 2)
    assert directory.get("reports/views?department=Sales", directory.tenant).json() == []
    assert directory.get("reports/views?department=Unknown", directory.tenant).json() == []
    assert directory.get("reports/leavers", directory.tenant).json() == []
    assert "etag" not in directory.get("reports/views?by=department", directory.tenant).headers


def test_a_summary_has_the_dimensions_or_only_the_reports_of_a_department(directory: Directory) -> None:
    with ZipFile(io.BytesIO(directory.get("summary.zip?by=department").content)) as archive:
        assert len(archive.namelist()) > len(FIVE) + 1
        rows = list(csv.DictReader(archive.read("views.csv").decode().splitlines()))
        assert [row["department"] for row in rows] == ["Sales", "Support"]
        assert json.loads(archive.read("manifest.json"))["scope"]["by"] == ["department"]
    with ZipFile(io.BytesIO(directory.get("summary.zip?department=Sales").content)) as archive:
        assert sorted(archive.namelist()) == sorted([*(f"{name}.csv" for name in FIVE), "manifest.json"])


def test_the_directory_changes_the_tags_of_responses_that_depend_on_it(directory: Directory) -> None:
    dependent = ("reports/views?by=department", "reports/views?group=Analysts", "reports/leavers")
    for key in (directory.scoped, directory.read):
        before = {path: directory.get(path, key) for path in (*dependent, "reports/views")}
        for path, response in before.items():
            assert directory.get(path, key, response.headers["etag"]).status_code == 304
        directory.put_user("u2", department=f"Legal {len(key)}")
        directory.put_user("u2", department="Legal")
        for path in dependent:
            changed = directory.get(path, key, before[path].headers["etag"])
            assert changed.status_code == 200, path
        assert [row["department"] for row in directory.get(dependent[0], key).json()] == ["Legal", "Sales"]
        directory.put_user("u2", department="Support")
        if key == directory.scoped:
            # The directory belongs to no deployment, so other responses don't show that it changed.
            assert directory.get("reports/views", key, before["reports/views"].headers["etag"]).status_code == 304
