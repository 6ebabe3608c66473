"""A snapshot that an older embedsink published: what it lacks is named, and all else works."""

import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import duckdb
import pytest

import embedsink
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured
from embedsink.reports.catalog import report_names
from tests.envelope.sending import event_or_action, view
from tests.test_cli import Call, assert_failed, called

__all__ = ["called"]

LACKING = ("sync_impact", "tenants")
TOLD = (
    "snapshot: lacks the reports sync_impact, tenants. An older embedsink published it: start the server once, or run "
    "`embedsink snapshot`."
)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "embedsink", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose snapshot has no syncs, no tenants, and fewer columns in the quarantine and in `views`."""
    data = tmp_path_factory.mktemp("older") / "data"
    sent = data.parent / "sent.ndjson"
    sent.write_text("\n".join(map(json.dumps, [view(), view(), event_or_action("event:download", {"format": "doc"})])))
    assert run("import", sent, "--data", data).returncode == 1
    with duckdb.connect(str(DataFolder(data).snapshot)) as snapshot:
        for name in (
            *LACKING,
            "sync_window_metrics",
            "sync_in_scope",
            "sync_result",
            "ingested_newest",
            "event_before",
        ):
            snapshot.execute(f'drop view "{name}"')
        for name in ("sync", "sync_file"):
            snapshot.execute(f"drop table {name}")
        for name, column in (("views", "viewer_count"), ("quarantine_in_scope", "replayed_at")):
            found = snapshot.execute("select sql, comment from duckdb_views() where view_name = $1", [name]).fetchone()
            assert found is not None
            sql, comment = found[0].partition(" AS ")[2].rstrip(";\n "), found[1].replace("'", "''")
            snapshot.execute(f"create or replace view {name} as select * exclude ({column}) from ({sql})")
            snapshot.execute(f"comment on view {name} is '{comment}'")
        snapshot.execute("comment on table migration is 'older'")
    return data


def test_a_report_that_it_lacks_says_so_and_what_to_do(data: Path, called: Call) -> None:
    told = (
        "snapshot: lacks tenants. An older embedsink published it: start the server once, or run `embedsink snapshot`."
    )
    for words in (
        ["tenants"],
        ["tenants", "--format", "csv"],
        ["tenants", "--describe"],
        ["tenants", "--columns", "tenant"],
    ):
        assert_failed(called("report", *words, "--data", data), told)


def test_the_list_has_the_others_and_names_what_is_missing(data: Path, called: Call) -> None:
    done = called("report", "--format", "json", "--data", data)
    assert done.returncode == 0
    assert [report["name"] for report in json.loads(done.stdout)] == [n for n in report_names() if n not in LACKING]
    assert TOLD in done.stderr


def test_other_reports_work_with_the_columns_that_they_have(data: Path, called: Call) -> None:
    done = called("report", "views", "--format", "json", "--data", data)
    [row] = json.loads(done.stdout)
    assert row["view_count"] == 2
    assert "viewer_count" not in row
    done = called("report", "views", "--columns", "viewer_count", "--data", data)
    assert_failed(done, 'column "viewer_count" does not exist', code=2)


def test_all_reports_are_written_as_far_as_they_are_there(data: Path, tmp_path: Path, called: Call) -> None:
    done = called("report", "--all", "-o", tmp_path / "all.zip", "--data", data)
    assert (done.returncode, TOLD in done.stderr) == (0, True)
    with ZipFile(tmp_path / "all.zip") as archive:
        assert set(archive.namelist()) == {"manifest.json"} | {f"{n}.csv" for n in report_names() if n not in LACKING}


def test_doctor_names_what_is_missing_and_goes_on(data: Path, called: Call) -> None:
    done = called("doctor", "--data", data)
    assert done.returncode == 1
    assert "lacks the reports sync_impact, tenants" in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr
    checks = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert {"snapshot", "sync_is_complete", "ingest_seq_is_unique", "dashboards", "journal", "keys"} <= set(checks)


def test_a_dashboard_is_drawn_without_what_is_missing(data: Path, tmp_path: Path, called: Call) -> None:
    for name in ("overview", "reliability", "content"):
        done = called("render", name, "-o", tmp_path / f"{name}.svg", "--data", data)
        assert (done.returncode, (tmp_path / f"{name}.svg").exists()) == (0, True), done.stderr
    done = called("render", "overview", "-o", tmp_path / "overview.svg", "--data", data)
    assert "overview: leaves out " in done.stderr
    assert "which the snapshot lacks. An older embedsink published it" in done.stderr
    done = called("render", "tenants", "-o", tmp_path / "tenants.svg", "--data", data)
    assert "Traceback" not in done.stderr


def test_a_dashboard_is_drawn_from_a_snapshot_that_says_it_is_of_today(
    data: Path, tmp_path: Path, called: Call
) -> None:
    with duckdb.connect(str(DataFolder(data).snapshot)) as snapshot:
        snapshot.execute(f"comment on table migration is '{current_comment(tmp_path)}'")
    try:
        done = called("render", "reliability", "-o", tmp_path / "reliability.svg", "--data", data)
        assert (done.returncode, (tmp_path / "reliability.svg").exists()) == (0, True), done.stderr
        assert "reliability: leaves out " in done.stderr
    finally:
        with duckdb.connect(str(DataFolder(data).snapshot)) as snapshot:
            snapshot.execute("comment on table migration is 'older'")


def current_comment(tmp_path: Path) -> str:
    """What a snapshot of this embedsink says about its views."""
    sent = tmp_path / "sent.ndjson"
    sent.write_text(json.dumps(view()))
    assert run("import", sent, "--data", tmp_path / "data").returncode == 0
    with duckdb.connect(str(DataFolder(tmp_path / "data").snapshot), read_only=True) as snapshot:
        found = snapshot.execute("select comment from duckdb_tables() where table_name = 'migration'").fetchone()
        assert found is not None
        return str(found[0])


def test_the_quarantine_is_listed_without_the_columns_that_it_lacks(data: Path, called: Call) -> None:
    done = called("quarantine", "list", "--data", data)
    assert (done.returncode, "bad_field" in done.stdout) == (0, True), done.stderr


def test_a_notebook_is_told_what_is_missing_and_has_the_rest(data: Path) -> None:
    opened = embedsink.open(data)
    with pytest.warns(UserWarning, match=r"^snapshot: lacks the reports sync_impact, tenants\. An older embedsink"):
        listed = opened.reports()
    assert "views" in set(listed["name"])
    assert not {*LACKING} & {*listed["name"]}
    assert opened.report("views")["view_count"].tolist() == [2]
    assert len(opened.events()) == 2
    for ask in (opened.report, opened.columns):
        with pytest.raises(Misconfigured, match=r"^snapshot: lacks tenants\. An older embedsink published it"):
            ask("tenants")


def test_what_is_published_anew_has_everything(data: Path, called: Call) -> None:
    assert called("snapshot", "--data", data).returncode == 0
    done = called("report", "--data", data)
    assert (done.returncode, "lacks" in done.stderr) == (0, False)
    assert len(embedsink.open(data).reports()) == len(report_names())
