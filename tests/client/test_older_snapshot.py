"""A snapshot of an older version of embedsink: commands name the missing reports, and the other reports work."""

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
from tests.cli.test_cli import RunCommand, assert_failed, run_command
from tests.support.envelopes import event_or_action, view

__all__ = ["run_command"]

LACKING = ("sync_impact", "tenants")
MESSAGE = (
    "snapshot: lacks the reports sync_impact, tenants. An older version of embedsink published it: start the server "
    "once, or run `embedsink snapshot`."
)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "embedsink", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder whose snapshot lacks syncs, tenants, and columns of the quarantine and of `views`."""
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


def test_a_missing_report_is_reported_with_advice(data: Path, run_command: RunCommand) -> None:
    message = (
        "snapshot: lacks tenants. An older version of embedsink published it: start the server once, or run "
        "`embedsink snapshot`."
    )
    for words in (
        ["tenants"],
        ["tenants", "--format", "csv"],
        ["tenants", "--describe"],
        ["tenants", "--columns", "tenant"],
    ):
        assert_failed(run_command("report", *words, "--data", data), message)


def test_the_list_warns_of_missing_reports(data: Path, run_command: RunCommand) -> None:
    result = run_command("report", "--format", "json", "--data", data)
    assert result.returncode == 0
    assert [report["name"] for report in json.loads(result.stdout)] == [n for n in report_names() if n not in LACKING]
    assert MESSAGE in result.stderr


def test_a_report_works_without_its_missing_column(data: Path, run_command: RunCommand) -> None:
    result = run_command("report", "views", "--format", "json", "--data", data)
    [row] = json.loads(result.stdout)
    assert row["view_count"] == 2
    assert "viewer_count" not in row
    result = run_command("report", "views", "--columns", "viewer_count", "--data", data)
    assert_failed(result, 'column "viewer_count" does not exist', code=2)


def test_all_writes_the_reports_that_exist(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    result = run_command("report", "--all", "-o", tmp_path / "all.zip", "--data", data)
    assert (result.returncode, MESSAGE in result.stderr) == (0, True)
    with ZipFile(tmp_path / "all.zip") as archive:
        assert set(archive.namelist()) == {"manifest.json"} | {f"{n}.csv" for n in report_names() if n not in LACKING}


def test_doctor_reports_missing_tables_and_runs_the_other_checks(data: Path, run_command: RunCommand) -> None:
    result = run_command("doctor", "--data", data)
    assert result.returncode == 1
    assert "lacks the reports sync_impact, tenants" in " ".join(result.stdout.split())
    assert "Traceback" not in result.stderr
    checks = [line.split()[0] for line in result.stdout.splitlines() if line.strip()]
    assert {"snapshot", "sync_is_complete", "ingest_seq_is_unique", "dashboards", "journal", "keys"} <= set(checks)


def test_a_dashboard_is_rendered_without_charts_of_missing_reports(
    data: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    for name in ("overview", "reliability", "content"):
        result = run_command("render", name, "-o", tmp_path / f"{name}.svg", "--data", data)
        assert (result.returncode, (tmp_path / f"{name}.svg").exists()) == (0, True), result.stderr
    result = run_command("render", "overview", "-o", tmp_path / "overview.svg", "--data", data)
    assert "overview: omits " in result.stderr
    assert "which the snapshot lacks. An older version of embedsink published it" in result.stderr
    result = run_command("render", "tenants", "-o", tmp_path / "tenants.svg", "--data", data)
    assert "Traceback" not in result.stderr


def test_a_dashboard_is_rendered_from_a_snapshot_whose_version_is_wrong(
    data: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    with duckdb.connect(str(DataFolder(data).snapshot)) as snapshot:
        snapshot.execute(f"comment on table migration is '{current_comment(tmp_path)}'")
    try:
        result = run_command("render", "reliability", "-o", tmp_path / "reliability.svg", "--data", data)
        assert (result.returncode, (tmp_path / "reliability.svg").exists()) == (0, True), result.stderr
        assert "reliability: omits " in result.stderr
    finally:
        with duckdb.connect(str(DataFolder(data).snapshot)) as snapshot:
            snapshot.execute("comment on table migration is 'older'")


def current_comment(tmp_path: Path) -> str:
    """Return the version comment of a current snapshot."""
    sent = tmp_path / "sent.ndjson"
    sent.write_text(json.dumps(view()))
    assert run("import", sent, "--data", tmp_path / "data").returncode == 0
    with duckdb.connect(str(DataFolder(tmp_path / "data").snapshot), read_only=True) as snapshot:
        row = snapshot.execute("select comment from duckdb_tables() where table_name = 'migration'").fetchone()
        assert row is not None
        return str(row[0])


def test_the_quarantine_is_listed_without_its_missing_columns(data: Path, run_command: RunCommand) -> None:
    result = run_command("quarantine", "list", "--data", data)
    assert (result.returncode, "bad_field" in result.stdout) == (0, True), result.stderr


def test_a_notebook_warns_of_missing_reports_and_reads_the_others(data: Path) -> None:
    opened = embedsink.open(data)
    with pytest.warns(UserWarning, match=r"^snapshot: lacks the reports sync_impact, tenants\. An older version"):
        listed = opened.reports()
    assert "views" in set(listed["name"])
    assert not {*LACKING} & {*listed["name"]}
    assert opened.report("views")["view_count"].tolist() == [2]
    assert len(opened.events()) == 2
    for read in (opened.report, opened.columns):
        with pytest.raises(Misconfigured, match=r"^snapshot: lacks tenants\. An older version of embedsink"):
            read("tenants")


def test_a_new_snapshot_has_all_reports(data: Path, run_command: RunCommand) -> None:
    assert run_command("snapshot", "--data", data).returncode == 0
    result = run_command("report", "--data", data)
    assert (result.returncode, "lacks" in result.stderr) == (0, False)
    assert len(embedsink.open(data).reports()) == len(report_names())
