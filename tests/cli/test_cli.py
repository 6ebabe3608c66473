"""The command line: processes, exit codes, and a stdout with the result only."""

import gzip
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import duckdb
import pytest

from embedsink import __version__
from embedsink.audit.changes import record_settings
from embedsink.auth.identity import Identity
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.auth.tokens import looks_like_key
from embedsink.cli import report_output
from embedsink.cli.app import app, main
from embedsink.data_folder import DataFolder
from embedsink.loader.loader import Loader
from embedsink.privacy.redaction import Privacy
from embedsink.privacy.rules import FIELDS, PrivacyRules, Rule
from embedsink.reports.format import Format
from tests.support.given import write_segment
from tests.support.programs import require
from tests.support.servers import RunningServer, free_port, running_server, wait_until
from tests.support.stores import make_folder

COMMANDS = [
    ["serve"],
    ["demo"],
    ["keys", "create"],
    ["keys", "list"],
    ["keys", "revoke"],
    ["report"],
    ["render"],
    ["inspect"],
    ["export"],
    ["import"],
    ["quarantine", "list"],
    ["quarantine", "show"],
    ["quarantine", "replay"],
    ["quarantine", "purge"],
    ["privacy", "show"],
    ["privacy", "hash"],
    ["privacy", "rotate-secret"],
    ["erase"],
    ["sync-result"],
    ["backup"],
    ["restore"],
    ["audit"],
    ["snapshot"],
    ["rebuild"],
    ["doctor"],
]
# These use a temporary folder, or a server.
FOLDERLESS = [["demo"], ["sync-result"], ["inspect"]]
HEAVY = {"scim2_models", "duckdb", "pandas", "pydantic", "starlette", "uvicorn", "orjson", "rich.console"}

VIEW: dict[str, Any] = {
    "source": "svc-embed",
    "direction": "event",
    "type": "svc:event:view",
    "payload": {"surface": "dashboard", "path": "/", "title": "\x1b[31mred"},
    "timestamp": 1_763_596_800_000,
    "surface": "dashboard",
}

Result = subprocess.CompletedProcess[str]
RunCommand = Callable[..., Result]


def embedsink(*words: object, **env: str) -> Result:
    return subprocess.run(
        [sys.executable, "-m", "embedsink", *map(str, words)],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("EMBEDSINK_")} | env,
        timeout=60,
        check=False,
    )


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Return a function that runs a command in this process, which is faster than `embedsink`."""

    def call(*words: object, **env: str) -> Result:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["embedsink", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return Result(sys.argv, int(end.value.code or 0), printed.out, printed.err)

    return call


@contextmanager
def _locked(store: Path) -> Iterator[None]:
    """Open a store in another process. DuckDB then locks the file."""
    code = "import sys, duckdb; connection = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


def assert_failed(result: Result, message: str, *, code: int = 1) -> None:
    """Assert a failure with one message on stderr, nothing on stdout, and no traceback."""
    assert (result.returncode, result.stdout) == (code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    if code == 1:
        assert len(result.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a data folder with ten views, one action and one rejection, without a server."""
    folder = tmp_path_factory.mktemp("cli")
    refresh: dict[str, Any] = {"direction": "action", "type": "svc:action:refresh", "payload": {}, "surface": None}
    lines = [{"context": {"deployment": 1}, "events": [VIEW] * 10}, VIEW | refresh, VIEW | {"surface": "moon"}]
    (folder / "in.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = embedsink("import", folder / "in.ndjson", "--data", folder / "data")
    assert (result.returncode, result.stdout) == (1, "")  # One envelope was rejected.
    assert "accepted 11, rejected 1." in result.stderr
    assert "line 3: bad_field: surface" in result.stderr
    return folder / "data"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("cli") / "served") as server:
        yield server


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(command: list[str], run_command: RunCommand) -> None:
    result = run_command(*command, "--help")
    assert result.returncode == 0
    assert f"embedsink {' '.join(command)}" in result.stdout.partition("Examples:")[2]


def test_all_commands_are_tested() -> None:
    nouns = {group.name: group.typer_instance or app for group in app.registered_groups}
    commands = [[_name_of(command)] for command in app.registered_commands]
    commands += [
        [str(noun), _name_of(command)] for noun, verbs in nouns.items() for command in verbs.registered_commands
    ]
    assert sorted(commands) == sorted(COMMANDS)


def _name_of(command: Any) -> str:
    return str(command.name or command.callback.__name__)


def test_no_summary_of_a_command_is_truncated() -> None:
    assert "..." not in embedsink("--help").stdout.partition("Commands:")[2]


def test_help_and_version_import_nothing_slow() -> None:
    script = "import sys, json, embedsink.cli.app; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.check_output([sys.executable, "-c", script]))
    assert not HEAVY & set(modules)
    assert embedsink("--version").stdout == f"embedsink {__version__}\n"


@pytest.mark.parametrize("words", [["report", "views"], ["doctor"]], ids=" ".join)
def test_no_command_loads_pandas(data: Path, words: list[str]) -> None:
    # DuckDB imports pandas at the first query with a parameter.
    result = embedsink(*words, "--data", data, PYTHONPROFILEIMPORTTIME="1")
    assert result.returncode == 0, result.stderr
    assert "duckdb" in result.stderr
    # The doctor computes checksums with numpy.
    assert ("numpy" in result.stderr) is (words == ["doctor"])
    assert "pandas.core" not in result.stderr


@pytest.mark.parametrize(("name", "attributes"), [("svc", []), ("acme", ['data-service-name="acme"'])])
def test_the_script_tag_of_a_key_has_the_service_name(tmp_path: Path, name: str, attributes: list[str]) -> None:
    words = ["keys", "create", "--kind", "ingest", "--origin", "https://app.example", "--data", str(tmp_path / "data")]
    result = subprocess.run(
        [sys.executable, "-m", "embedsink", *words],
        env=os.environ | {"EMBEDSINK_SERVICE_NAME": name},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.findall(r'data-service-name="\w+"', result.stderr) == attributes


@pytest.mark.parametrize(
    ("words", "purpose"),
    [
        (["admin"], "administer the server"),
        (["admin", "--deployment", "12"], "administer the server for deployment 12"),
        (["ingest", "--deployment", "13", "--deployment", "12"], "send events for deployments 12, 13"),
        (["scim"], "provision the directory"),
        (["read", "--tenant", "globex", "--tenant", "acme"], "read reports for tenants acme, globex"),
        (["read", "--deployment", "12", "--tenant", "acme"], "read reports for deployment 12 and tenant acme"),
        (["read", "--names"], "read reports with names"),
        (["read", "--names", "--deployment", "12"], "read reports with names for deployment 12"),
    ],
)
def test_a_new_key_is_described_by_its_purpose(
    tmp_path: Path, run_command: RunCommand, words: list[str], purpose: str
) -> None:
    result = run_command("keys", "create", "--kind", *words, "--data", tmp_path / "data")
    assert f": a key to {purpose}. Store it safely" in result.stderr


def test_only_read_keys_have_the_option_for_names(tmp_path: Path, run_command: RunCommand) -> None:
    result = run_command("keys", "create", "--kind", "admin", "--names", "--data", tmp_path / "data")
    assert result.returncode == 2
    assert "--names: applies to read keys only. Admin keys always show names. Omit it." in result.stderr


def test_key_commands_import_nothing_slow(tmp_path: Path) -> None:
    script = (
        "import sys, json; from embedsink.cli.app import app; "
        "app(sys.argv[1:], standalone_mode=False); print(json.dumps(sorted(sys.modules)))"
    )
    words = ["keys", "create", "--kind", "read", "--data", str(tmp_path / "data")]
    printed = subprocess.check_output([sys.executable, "-c", script, *words], stderr=subprocess.DEVNULL)
    # typer imports pydantic.
    assert not (HEAVY - {"pydantic"}) & set(json.loads(printed.splitlines()[1]))


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["sing"],
        ["keys", "create"],
        ["keys", "create", "--kind", "master"],
        ["keys", "create", "--kind", "read", "--expires", "soon"],
        ["keys", "create", "--kind", "ingest", "--origin", "app.example.com"],
        ["keys", "create", "--kind", "sync", "--origin", "https://app.example.com"],
        ["keys", "create", "--kind", "scim", "--deployment", "12"],
        ["serve", "--port", "70000"],
        ["serve", "--certificate", __file__],
        ["export", "-o", "events.xlsx"],
        ["export", "-o", "events"],
        ["export"],
        ["import", "no/such/file"],
        ["report", "views", "-o", "views.xlsx"],
        ["report", "views", "--surface", "moon"],
        ["report", "views", "--timezone", "Europe/Berlim"],
        ["report", "views", "--columns", "surfac"],
        ["report", "views", "--limit", "0"],
        ["report", "--all"],
        ["report", "views", "--all", "-o", "summary.zip"],
        ["report", "--all", "-o", "summary.zip", "--format", "json"],
        ["report", "--all", "-o", "summary.zip", "--limit", "5"],
        ["report", "--all", "-o", "sum.csv"],
        ["report", "--all", "-o", "sum.tar.gz"],
        ["report", "--all", "--describe", "-o", "summary.zip"],
        ["report", "--describe"],
        ["report", "views", "--describe", "--since", "7d"],
        ["report", "views", "--describe", "-o", "views.json"],
        ["report", "views", "--describe", "--format", "csv"],
        ["report", "view", "--describe"],
        ["report", "views", "--format", "xlsx"],
        ["report", "views", "--format", "ndjson"],
        ["report", "-o", "list.json"],
        ["report", "--format", "json", "-o", "list"],
        ["report", "--since", "foo"],
        ["report", "--deployment", "1"],
        ["report", "--limit", "5"],
        ["report", "--interval", "week"],
        ["report", "--no-guard"],
        ["report", "views", "-o", "views.table"],
        ["report", "views", "--format", "table", "-o", "views.txt"],
        ["report", "views", "--since", "yesteryear"],
        ["report", "--format", "csv"],
        ["report", "nope"],
        ["report", "views", "--deployment", "1_2"],
        ["report", "views", "--since", "2026-11-02", "--until", "2026-11-01"],
        ["report", "views", "--url", "foo"],
        ["report", "views", "--url", ""],
        ["report", "views", "--url", "http://127.0.0.1:1"],
        ["import", __file__, "--url", "http://127.0.0.1:1"],
        ["quarantine", "list", "--url", "http://127.0.0.1:1", "--key", "es_read_short"],
        ["quarantine", "replay", "--url", "http://events.example.com"],
        ["keys", "create", "--kind", "ingest", "--deployment", "99999999999999999999"],
        ["keys", "create", "--kind", "ingest", "--label", "two\nlines"],
        ["backup"],
        ["backup", "target", "--keep", "0"],
        ["backup", "target", "--keep", "3", "--list"],
        ["restore"],
        ["restore", "target", "--data", __file__],
        ["serve", "--host", "0.0.0.0"],
        ["serve", "--data", __file__],
    ],
    ids=" ".join,
)
def test_wrong_use_is_exit_code_2(data: Path, words: list[str], run_command: RunCommand) -> None:
    result = run_command(*words, EMBEDSINK_DATA=str(data))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in FOLDERLESS], ids=" ".join)
def test_an_empty_data_folder_name_is_wrong_use(command: list[str], tmp_path: Path, run_command: RunCommand) -> None:
    needed = {"create": ["--kind", "read"], "export": ["-o", "out.csv"], "import": [__file__]}
    needed |= {"render": ["overview", "-o", "out.svg"], "backup": ["target"], "restore": ["target"]}
    needed |= {"hash": ["viewer", "ann"], "revoke": ["x"], "erase": ["--viewer", "ann"]}
    words = [*command, *(["x"] if command == ["quarantine", "show"] else needed.get(command[-1], []))]
    with chdir(tmp_path):
        for done in (run_command(*words, "--data", ""), run_command(*words, EMBEDSINK_DATA="")):
            assert_failed(done, "is empty", code=2)
    assert list(tmp_path.iterdir()) == []


def test_the_option_overrides_an_empty_variable(data: Path, run_command: RunCommand) -> None:
    assert run_command("report", "views", "--data", data, EMBEDSINK_DATA="").returncode == 0


def test_a_process_exits_with_the_code_of_its_command(data: Path) -> None:
    assert_failed(embedsink("report", "views", "--surface", "moon", "--data", data), "--surface: ", code=2)
    assert_failed(embedsink("keys", "create"), "--kind", code=2)


def test_a_created_key_is_printed_on_stdout_and_stored_as_a_digest(tmp_path: Path, run_command: RunCommand) -> None:
    result = run_command(
        *("keys", "create", "--kind", "ingest", "--deployment", 3, "--deployment", 4),
        *("--origin", "https://App.example.com/", "--expires", "90d", "--label", "the app", "--data", tmp_path / "new"),
    )
    assert result.returncode == 0
    token = result.stdout.removesuffix("\n")
    assert looks_like_key(token)
    assert token not in result.stderr
    [key] = KeyStore(DataFolder(tmp_path / "new").keys).keys()
    assert (key.scope.deployments, key.origins, key.label) == (
        frozenset({3, 4}),
        frozenset({"https://app.example.com"}),
        "the app",
    )
    assert key.expires_at == pytest.approx(key.created_at + 90 * 86_400)

    listed = run_command("keys", "list", EMBEDSINK_DATA=str(tmp_path / "new"))
    assert token not in listed.stdout
    assert [word in listed.stdout for word in (key.key_id, "live", "3, 4", "the app")] == [True] * 4

    revoked = run_command("keys", "revoke", key.key_id, "--data", tmp_path / "new")
    assert (revoked.returncode, revoked.stdout, revoked.stderr) == (0, "", f"{key.key_id}: revoked.\n")
    assert "revoked" in run_command("keys", "list", "--data", tmp_path / "new").stdout


def test_an_unknown_key_is_a_failure(data: Path, run_command: RunCommand) -> None:
    assert_failed(
        run_command("keys", "revoke", "k_000000000000", "--data", data), 'key "k_000000000000" does not exist'
    )


def test_a_leaked_key_can_be_revoked_from_stdin(tmp_path: Path, run_command: RunCommand) -> None:
    token = run_command("keys", "create", "--kind", "read", "--data", tmp_path).stdout
    result = subprocess.run(
        [sys.executable, "-m", "embedsink", "keys", "revoke", "-", "--data", tmp_path],
        input=token,
        capture_output=True,
        text=True,
        check=True,
    )
    [key] = KeyStore(DataFolder(tmp_path).keys).keys()
    assert key.revoked_at is not None
    assert (result.stdout, result.stderr) == ("", f"{key.key_id}: revoked.\n")


@pytest.mark.parametrize("kind", ["ingest", "read", "sync", "scim", "admin"])
def test_a_key_on_the_command_line_is_refused_and_not_printed(
    tmp_path: Path, run_command: RunCommand, kind: str
) -> None:
    token = run_command("keys", "create", "--kind", kind, "--data", tmp_path).stdout.strip()
    for written in (token, f"'{token}", token[:-1]):
        result = run_command("keys", "revoke", written, "--data", tmp_path)
        assert_failed(result, "KEY_ID: is a key", code=2)
        assert token[9:-1] not in result.stderr
    [key] = KeyStore(DataFolder(tmp_path).keys).keys()
    assert key.revoked_at is None


def test_revoking_from_an_empty_stdin_is_wrong_use(
    tmp_path: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert_failed(run_command("keys", "revoke", "-", "--data", tmp_path), "stdin: is empty", code=2)


def test_reports_are_listed_and_printed(data: Path, run_command: RunCommand) -> None:
    assert "views" in run_command("report", "--data", data).stdout
    described = json.loads(run_command("report", "--data", data, "--format", "json").stdout)
    assert {"name", "title", "question", "grain", "columns", "dimensions"} == described[0].keys()
    table = run_command("report", "views", "--data", data).stdout.splitlines()
    assert table[0].split() == [
        *("period_start", "deployment", "surface"),
        *("view_count", "session_count", "viewer_count"),
    ]
    assert table[2].split() == ["2025-11-20T00:00:00Z", "1", "dashboard", "10", "0", "0"]
    rows = json.loads(run_command("report", "views", "--data", data, "--format", "json").stdout)
    assert [row["view_count"] for row in rows] == [10]
    csv = run_command("report", "views", "--data", data, "--format", "csv").stdout
    assert csv.splitlines()[1] == "2025-11-20T00:00:00Z,1,dashboard,10,0,0"


def test_the_suffix_of_the_file_selects_the_format(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    import duckdb

    for suffix in ("arrow", "csv", "json", "parquet"):
        result = run_command("report", "views", "--data", data, "-o", tmp_path / f"views.{suffix}")
        assert (result.returncode, result.stdout) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "views.arrow",
        "views.csv",
        "views.json",
        "views.parquet",
    ]
    assert json.loads((tmp_path / "views.json").read_bytes())[0]["view_count"] == 10
    with duckdb.connect() as connection:
        assert connection.execute(f"select view_count from '{tmp_path}/views.parquet'").fetchall() == [(10,)]


def test_a_report_by_department_and_group(data: Path, run_command: RunCommand) -> None:
    csv = run_command("report", "views", "--by", "department,group", "--data", data, "--format", "csv").stdout
    assert (
        csv.splitlines()[0] == "period_start,deployment,surface,department,group,view_count,session_count,viewer_count"
    )
    assert csv.splitlines()[1] == "2025-11-20T00:00:00Z,1,dashboard,,,10,0,0"
    result = run_command("report", "views", "--department", "Sales", "--group", "Analysts", "--data", data)
    assert (result.returncode, result.stdout) == (0, "")
    assert "Omit --department or --group to match more." in result.stderr
    for words in (["errors", "--by", "group"], ["errors", "--department", "Sales"], ["views", "--by", "team"]):
        result = run_command("report", *words, "--data", data)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith(f"{words[1]}: ")


def test_a_report_respects_the_scope(data: Path, run_command: RunCommand) -> None:
    result = run_command("report", "views", "--data", data, "--deployment", 2)
    assert (result.returncode, result.stdout) == (0, "")
    assert "no rows match as of" in result.stderr
    assert " UTC, the last snapshot. Omit --deployment to match more." in result.stderr
    several = run_command("report", "views", "--data", data, "--until", "2025-11-01", "--surface", "app")
    assert "Omit --until or --surface to match more" in several.stderr
    assert "10" in run_command("report", "views", "--data", data, "--deployment", 1, "--since", "2025-11-20").stdout
    assert run_command("report", "views", "--data", data, "--until", "2025-11-20").stdout == ""


def test_columns_limit_and_timezone_are_applied(data: Path, run_command: RunCommand) -> None:
    words = ("report", "views", "--data", data, "--format", "csv", "--columns", "view_count,period_start")
    result = run_command(*words, "--timezone", "Asia/Tokyo", "--limit", 1)
    assert result.stdout.splitlines() == ["view_count,period_start", "10,2025-11-19T15:00:00Z"]
    assert run_command(*words, "--timezone", "Asia/Tokyo", "--since", "2025-11-20").stdout.count("\n") == 2
    assert run_command(*words, "--timezone", "Asia/Tokyo", "--since", "2025-11-20T09:00:01").stdout.count("\n") == 1
    assert run_command(*words, "--bom").stdout.startswith("\ufeffview_count")


def test_all_reports_are_written_to_a_zip_or_a_folder(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    for output in ("summary.zip", "summary"):
        result = run_command("report", "--all", "--since", "2025-11-01", "--data", data, "-o", tmp_path / output)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    with ZipFile(tmp_path / "summary.zip") as archive:
        names = archive.namelist()
        assert {"views.csv", "ai_query.csv", "manifest.json"} <= set(names)
        assert sorted(names) == sorted(path.name for path in (tmp_path / "summary").iterdir())
        written = [name for name in names if name != "manifest.json"]
        assert [archive.read(name) for name in written] == [
            (tmp_path / "summary" / name).read_bytes() for name in written
        ]
    manifest = json.loads((tmp_path / "summary" / "manifest.json").read_text())
    assert manifest["scope"]["since"] == "2025-11-01T00:00:00Z"


def test_all_reports_replace_files_of_their_names_in_a_folder(
    data: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    folder = tmp_path / "summary"
    folder.mkdir()
    for name in ("views.csv", "notes.txt"):
        (folder / name).write_text("mine")
    result = run_command("report", "--all", "--data", data, "-o", folder)
    assert (result.returncode, result.stderr) == (0, f"{folder}: replaced 1 existing file.\n")
    assert (folder / "views.csv").read_text().startswith("period_start,")
    assert (folder / "notes.txt").read_text() == "mine"
    count = len(list(folder.iterdir())) - 1
    result = run_command("report", "--all", "--data", data, "-o", folder)
    assert result.stderr == f"{folder}: replaced {count} existing files.\n"
    assert len(list(folder.iterdir())) == count + 1, "a temporary file is left"


def test_no_file_is_replaced_when_one_report_can_not_be_written(
    data: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    folder = tmp_path / "summary"
    (folder / "views.csv").mkdir(parents=True)
    assert_failed(
        run_command("report", "--all", "--data", data, "-o", folder), "views.csv: is a folder. Choose another path."
    )
    assert [path.name for path in folder.iterdir()] == ["views.csv"]


def test_all_reports_are_not_written_to_a_new_folder_named_like_a_file(
    data: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    file, folder = tmp_path / "sum.csv", tmp_path / "reports.2026.10"
    assert_failed(run_command("report", "--all", "--data", data, "-o", file), f"-o {tmp_path}/sum.zip.", code=2)
    assert not file.exists()
    assert run_command("report", "--all", "--data", data, "-o", folder).returncode == 0
    assert (folder / "views.csv").exists()
    file.mkdir()
    assert run_command("report", "--all", "--data", data, "-o", file).returncode == 0


def test_a_report_describes_its_rows_and_columns(data: Path, run_command: RunCommand) -> None:
    listed = run_command("report", "--data", data)
    assert listed.stderr == "Describe the columns of one: `embedsink report NAME --describe`.\n"
    shown = run_command("report", "ai_queries", "--describe", "--data", data).stdout
    question, grain, _, header, _, *rows = shown.splitlines()
    assert question.startswith("ai_queries: ")
    assert grain == "One row per period, deployment, surface and agent."
    assert header.split() == ["name", "type", "unit", "description"]
    assert ["answer_rate", "number", "share"] in [row.split()[:3] for row in rows]
    described = json.loads(run_command("report", "views", "--describe", "--format", "json", "--data", data).stdout)
    columns = {column["name"] for column in described["columns"]}
    assert described["row"]["properties"].keys() == columns | {"department", "group"}
    assert set(described["row"]["required"]) == columns
    assert "--by adds these columns:" in shown


def test_reports_are_listed_with_grain_and_columns_before_there_is_data(
    tmp_path: Path, run_command: RunCommand
) -> None:
    listed = run_command("report", "--data", tmp_path / "none")
    assert listed.returncode == 0
    header, _, *rows = listed.stdout.splitlines()
    assert header.split() == ["name", "question", "grain", "columns"]
    [views] = [row for row in rows if row.startswith(" views ")]
    assert "One row per period, deployment and surface." in views
    assert views.endswith("period_start, deployment, surface, view_count, session_count, viewer_count")
    described = run_command("report", "views", "--describe", "--data", tmp_path / "none")
    assert (described.returncode, "view_count" in described.stdout) == (0, True)
    assert list(tmp_path.iterdir()) == []


def test_identifiers_have_no_thousands_separators(tmp_path: Path, run_command: RunCommand) -> None:
    download = VIEW | {"type": "svc:event:download"}
    download["payload"] = {"format": "csv", "target": "widget", "rowCount": 12_345}
    (tmp_path / "in.ndjson").write_text(json.dumps({"context": {"deployment": 54_321}, "events": [download]}))
    assert run_command("import", tmp_path / "in.ndjson", "--data", tmp_path / "data").returncode == 0
    words = ("report", "download_audit", "--data", tmp_path / "data", "--columns")
    shown = run_command(*words, "deployment,exported_row_count,ingest_seq").stdout.splitlines()[-1].split()
    assert shown == ["54321", "12,345", str(2**32 + 1)]


def test_a_wrong_report_or_a_missing_snapshot_prints_one_line(
    data: Path, tmp_path: Path, run_command: RunCommand
) -> None:
    wrong = run_command("report", "view", "--data", data)
    assert_failed(wrong, 'report "view" does not exist. Did you mean "views"?', code=2)
    assert_failed(run_command("report", "views", "--data", tmp_path), "analytics.duckdb: does not exist.")
    assert_failed(
        run_command("report", "views", "--data", tmp_path / "no"), f"data folder {tmp_path}/no: does not exist."
    )


def test_rejections_are_printed_without_control_characters(data: Path, run_command: RunCommand) -> None:
    listed = run_command("quarantine", "list", "--data", data).stdout
    shown = run_command("quarantine", "show", listed.splitlines()[2].split()[0], "--data", data)
    assert "\x1b" not in listed + shown.stdout
    assert json.loads(json.loads(shown.stdout)["raw"])["payload"]["title"] == "\x1b[31mred"


def test_reports_are_printed_as_json_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    # JSON itself escapes \x1b, but not \x9b, which starts an escape sequence too.
    report = {"name": "views", "question": "\x9b31mred", "grain": "ü", "columns": []}
    report_output.print_description(report, Format.JSON)
    report_output.print_reports([report], Format.JSON)
    printed = capsys.readouterr().out
    assert printed.count("\\u009b31mred") == 2
    assert "\x9b" not in printed
    assert printed.count("ü") == 2


def test_a_character_may_be_in_two_chunks_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report_output._print_on_terminal([b"\xc3", b"\xa4\r", b"\n"], Format.CSV)
    assert capsys.readouterr().out == "ä\n"


def test_csv_has_control_characters_escaped_on_a_terminal_only(tmp_path: Path, run_command: RunCommand) -> None:
    drilldown = VIEW | {"type": "svc:event:drilldown", "payload": {"member": "a\x1b[31m\x9bred ü"}}
    (tmp_path / "in.ndjson").write_text(json.dumps(drilldown))
    run_command("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    words = ("report", "drilldowns", "--format", "csv", "--data", tmp_path / "data")
    assert "a\x1b[31m\x9bred ü" in run_command(*words).stdout
    shown = on_a_terminal(*words)
    assert "a\\u001b[31m\\u009bred ü" in shown
    assert "\x1b" not in shown
    assert shown.splitlines()[0].startswith("deployment,surface,member,")
    assert "\\r" not in shown


def test_a_wide_report_on_a_terminal_shows_the_columns_that_fit(tmp_path: Path, run_command: RunCommand) -> None:
    data, deliveries = tmp_path / "data", [{"context": {"session": f"s_{n:032}"}, "events": [VIEW]} for n in (1, 2)]
    (tmp_path / "in.ndjson").write_text("\n".join(map(json.dumps, deliveries)))
    run_command("import", tmp_path / "in.ndjson", "--data", data)
    header, line, *rows, hint = plain(on_a_terminal("report", "sessions", "--data", data, COLUMNS="100")).splitlines()
    names = list(json.loads(run_command("report", "sessions", "--format", "json", "--data", data).stdout)[0])
    shown = header.split()
    assert shown == names[: len(shown)]
    assert 3 <= len(shown) < len(names)
    assert max(map(len, [header, line, *rows])) <= 100
    assert "2025-11-20T00:00:00Z" in rows[0]
    left_out = ", ".join(names[len(shown) :])
    assert hint == f"Columns that do not fit: {left_out}. Select columns with --columns, or use --format json."


def test_a_single_row_that_is_too_wide_for_the_terminal_is_printed_as_a_list(
    data: Path, run_command: RunCommand
) -> None:
    printed = plain(on_a_terminal("report", "totals", "--data", data, COLUMNS="100")).splitlines()
    [row] = json.loads(run_command("report", "totals", "--format", "json", "--data", data).stdout)
    assert printed[0].split() == ["column", "value"]
    assert [line.split() for line in printed[2:]] == [
        [name, f"{value:,}"] if value is not None else [name] for name, value in row.items()
    ]


def test_a_long_text_with_line_breaks_is_printed_on_one_line_and_cut(tmp_path: Path, run_command: RunCommand) -> None:
    drilldown = VIEW | {"type": "svc:event:drilldown"}
    members = [f"{number}\r\nSet-Cookie: x=1\n" + "界" * 20_000 for number in (1, 2)]
    lines = [json.dumps(drilldown | {"payload": {"member": member}}) for member in members]
    (tmp_path / "in.ndjson").write_text("\n".join(lines))
    run_command("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    for columns in ("member", "member,drilldown_count", "deployment,drilldown_count,member"):
        words = ("report", "drilldowns", "--columns", columns, "--data", tmp_path / "data")
        printed = on_a_terminal(*words, COLUMNS="80")
        assert len(printed) < 2_000
        assert r"1\r\nSet-Cookie:" in printed
        assert printed.endswith("Long values are truncated. Use --format json to see them in full.\r\n")
    piped = run_command("report", "drilldowns", "--columns", "member", "--data", tmp_path / "data").stdout
    assert len(piped.splitlines()) == 4
    assert piped.count("界") == 40_000


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_binary_format_is_refused_on_a_terminal_only(data: Path, format: str) -> None:
    words = ("report", "views", "--format", format, "--data", data)
    printed = on_a_terminal(*words, code=2)
    assert f"--format {format}: is binary and can't be printed on a terminal. Add -o FILE." in printed
    assert "PAR1" not in printed
    piped = subprocess.run([sys.executable, "-m", "embedsink", *map(str, words)], capture_output=True, check=True)
    assert len(piped.stdout) > 100


def plain(printed: str) -> str:
    """Return the text without bold."""
    return re.sub("\x1b\\[[0-9]*m", "", printed)


def on_a_terminal(*words: object, code: int = 0, **variables: str) -> str:
    """Return the output of a command on a terminal."""
    terminal, program_end = pty.openpty()
    try:
        result = subprocess.run(
            [sys.executable, "-m", "embedsink", *map(str, words)],
            stdout=program_end,
            stderr=program_end,
            env=os.environ | variables,
            timeout=60,
            check=False,
        )
        assert result.returncode == code
        return os.read(terminal, 65_536).decode()
    finally:
        os.close(program_end)
        os.close(terminal)


def test_a_report_without_rows_suggests_listing_rejections(data: Path, run_command: RunCommand) -> None:
    result = run_command("report", "sync_impact", "--data", data)
    assert (result.returncode, result.stdout) == (0, "")
    assert re.fullmatch(
        r"sync_impact: no rows as of [0-9 :-]+ UTC, the last snapshot\. New events appear in the next snapshot\. "
        rf"Check for rejections: `embedsink quarantine list --data {data}`\.\n",
        result.stderr,
    )


def test_a_list_of_rejections_has_their_number_time_and_next_steps(data: Path, run_command: RunCommand) -> None:
    result = run_command("quarantine", "list", "--data", data)
    first, *further = result.stderr.splitlines()
    assert re.fullmatch(
        r"1 rejection as of [0-9 :-]+ UTC, the last snapshot, newest first\. "
        r"New rejections appear in the next snapshot\.",
        first,
    )
    assert further == [
        f"Show one in full: `embedsink quarantine show ID --data {data}`.",
        f"After a change of settings or an upgrade, replay them: `embedsink quarantine replay --data {data}`.",
    ]
    limited = run_command("quarantine", "list", "--data", data, "--limit", 1)
    assert "Raise --limit to list more." in limited.stderr


def test_an_empty_quarantine_is_reported_with_its_time(tmp_path: Path, run_command: RunCommand) -> None:
    (tmp_path / "in.ndjson").write_text(json.dumps(VIEW))
    run_command("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    at = 1_763_596_800
    os.utime(tmp_path / "data" / "analytics.duckdb", (at, at))
    result = run_command("quarantine", "list", "--data", tmp_path / "data")
    assert (result.returncode, result.stdout) == (0, "")
    assert "The quarantine is empty as of 2025-11-20 00:00:00 UTC, the last snapshot." in result.stderr


def test_rejections_are_listed_shown_and_replayed(data: Path, run_command: RunCommand) -> None:
    [header, _, row] = run_command("quarantine", "list", "--data", data).stdout.splitlines()
    assert header.split()[0] == "quarantine_id"
    assert 'surface: "moon" is not one of' in row
    shown = json.loads(run_command("quarantine", "show", row.split()[0], "--data", data).stdout)
    assert (shown["reason"], json.loads(shown["raw"])["surface"]) == ("bad_field", "moon")
    assert_failed(
        run_command("quarantine", "show", "0000", "--data", data),
        "quarantine 0000: does not exist among the newest 1,000 rejections. "
        f"List them: `embedsink quarantine list --limit 1000 --data {data}`.",
    )
    replayed = run_command("quarantine", "replay", "--data", data)
    assert (replayed.returncode, replayed.stderr) == (0, "replayed 0, still rejected 1.\n")


def test_everything_about_a_person_is_exported(tmp_path: Path, run_command: RunCommand) -> None:
    data, file = tmp_path / "data", tmp_path / "in.ndjson"
    lines = [{"context": {"viewer": viewer}, "events": [VIEW]} for viewer in ("ann", "bob", "ann")]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_command("import", file, "--data", data).returncode == 0
    archive = tmp_path / "ann.zip"
    result = run_command("export", "--viewer", "ann", "-o", archive, "--data", data)
    assert (result.returncode, result.stdout) == (0, "")
    assert "events 2, rejections 0, losses 0, directory 0, as of " in result.stderr
    assert "wait 10 s if a server runs, or run `embedsink snapshot`" in result.stderr
    assert "Warning" not in result.stderr
    unknown = run_command("export", "--viewer", "Ann", "-o", tmp_path / "unknown.zip", "--data", data)
    assert (unknown.returncode, "Warning: nothing names this viewer." in unknown.stderr) == (0, True)
    refused = run_command("export", "--viewer", "ann", "-o", archive, "--url", "http://127.0.0.1:1")
    assert_failed(refused, "an access request needs the data folder", code=2)
    assert archive.stat().st_mode & 0o777 == 0o600
    with ZipFile(archive) as files:
        assert sorted(files.namelist()) == [
            *("directory.json", "events.ndjson", "losses.json", "manifest.json", "rejections.json")
        ]
    [entry] = [
        json.loads(line) for line in run_command("audit", "--format", "ndjson", "--data", data).stdout.splitlines()
    ][-1:]
    assert (entry["action"], entry["target"]) == ("export", "person.zip")
    assert "ann" not in json.dumps(entry["detail"])
    for words in (
        ["--viewer", "ann", "-o", tmp_path / "ann.csv"],
        ["--viewer", "", "-o", archive],
        ["--tenant", "acme", "-o", tmp_path / "all.csv"],
    ):
        assert run_command("export", *words, "--data", data).returncode == 2


def test_an_import_warns_about_events_of_days_with_totals(tmp_path: Path, run_command: RunCommand) -> None:
    data, file = tmp_path / "data", tmp_path / "in.ndjson"
    message = "Events of days that already have daily totals: 2."
    for rounds in range(2):
        # Two events of the totaled day, one of the day after it.
        days = [VIEW, VIEW, VIEW | {"timestamp": VIEW["timestamp"] + 86_400_000}]
        file.write_text("".join(json.dumps(event | {"id": str(uuid4())}) + "\n" for event in days))
        imported = run_command("import", file, "--data", data)
        assert (imported.returncode, message in imported.stderr) == (0, rounds == 1), imported.stderr
        with duckdb.connect(str(data / "store.duckdb")) as connection:
            connection.execute("insert into totaled_day by name select date '2025-11-20' as day, now() as totaled_at")


def test_privacy_rules_hashes_and_secrets(tmp_path: Path, run_command: RunCommand) -> None:
    data = make_folder(tmp_path / "data").path
    shown = run_command("privacy", "show", "--data", data)
    assert re.search(r"^ *viewer +keep +keep$", shown.stdout, re.MULTILINE)
    assert "privacy.toml does not exist, so every field is kept" in shown.stderr
    assert re.search(r"^ *opt_out +ignore$", shown.stdout, re.MULTILINE)
    assert re.search(r"^ *EMBEDSINK_RETENTION_DAYS +0$", shown.stdout, re.MULTILINE)
    (data / "privacy.toml").write_text('preset = "strict"\nopt_out = "anonymize"\n')
    shown = run_command("privacy", "show", "--data", data, EMBEDSINK_RETENTION_DAYS="90")
    assert re.search(r"^ *opt_out +anonymize$", shown.stdout, re.MULTILINE)
    assert re.search(r"^ *EMBEDSINK_RETENTION_DAYS +90$", shown.stdout, re.MULTILINE)
    assert re.search(r"^ *viewer +hash +drop$", shown.stdout, re.MULTILINE)
    assert_failed(run_command("privacy", "hash", "viewer", "ann", "--data", data), "does not exist. The first start")
    assert run_command("privacy", "rotate-secret", "--data", data).returncode == 0
    [first] = run_command("privacy", "hash", "viewer", "ann", "--data", data).stdout.split()
    result = run_command("privacy", "rotate-secret", "--data", data)
    assert "has 2 secrets now. Restart the server to use the new one." in result.stderr
    [second, former] = run_command("privacy", "hash", "viewer", "ann", "--data", data).stdout.split()
    assert (former, len({first, second})) == (first, 2)
    assert "Warning" not in result.stderr
    forgotten = run_command("privacy", "rotate-secret", "--forget-former", "--data", data).stderr
    assert "has one secret now" in forgotten
    assert "Warning: erasures and access requests can't find viewers in events that were hashed before" in forgotten
    [third] = run_command("privacy", "hash", "viewer", "ann", "--data", data).stdout.split()
    assert third not in (first, second)
    wrong = run_command("privacy", "hash", "vewer", "ann", "--data", data)
    assert (wrong.returncode, 'Did you mean "viewer"?' in wrong.stderr) == (2, True)
    actions = [
        json.loads(line) for line in run_command("audit", "--format", "ndjson", "--data", data).stdout.splitlines()
    ]
    assert [one["target"] for one in actions] == ["privacy_secrets.json"] * 3
    (data / "privacy.toml").write_text("[fields]\nviewer = 1\n")
    started = run_command("serve", "--data", data, "--port", str(free_port()))
    assert (started.returncode, "fields.viewer: 1 is not a rule." in started.stderr) == (1, True)


def test_missing_secrets_of_earlier_hashes_are_refused(tmp_path: Path, run_command: RunCommand) -> None:
    folder = make_folder(tmp_path / "data")
    hashing = ["privacy", "hash", "viewer", "ann"]
    message = "is missing, but earlier events are hashed."

    def start_with(rules: PrivacyRules) -> None:  # A server that starts records its rules.
        record_settings(folder, {}, {}, identity=Identity(), privacy=Privacy(rules, [bytes(32)]), actor="server")

    unhashed = {name: Rule.DROP for name, field in FIELDS.items() if field.strict is Rule.HASH}
    start_with(PrivacyRules(preset="strict", fields=unhashed))
    assert_failed(run_command(*hashing, "--data", folder.path), "does not exist. The first start")
    start_with(PrivacyRules(fields={"viewer": Rule.HASH}))
    assert_failed(run_command(*hashing, "--data", folder.path), message)
    start_with(PrivacyRules(preset="strict"))
    exporting = ["export", "--viewer", "ann", "-o", tmp_path / "ann.zip"]
    for words in (["erase", "--viewer", "ann"], hashing, ["privacy", "rotate-secret"], exporting):
        assert_failed(run_command(*words, "--data", folder.path), message)
    assert message in run_command("doctor", "--data", folder.path).stdout
    assert run_command("privacy", "rotate-secret", "--forget-former", "--data", folder.path).returncode == 0
    assert len(run_command(*hashing, "--data", folder.path).stdout.split()) == 1


def test_the_quarantine_is_purged_in_a_folder_and_through_a_server(tmp_path: Path, run_command: RunCommand) -> None:
    with running_server(tmp_path / "data") as server:
        key, admin = server.key(), server.key("admin")
        server.post([VIEW, 1, {}], key=key)
        remote = ("--url", server.url, "--key", admin)
        result = run_command("quarantine", "purge", "--reason", "wrong_source", *remote)
        assert (result.returncode, result.stderr) == (0, "purged 1.\n")
        assert_failed(
            run_command("quarantine", "purge", "--reason", "wrong", *remote), 'reason: "wrong" does not exist.', code=2
        )
    for count in (1, 0):
        result = run_command("quarantine", "purge", "--data", tmp_path / "data")
        assert (result.returncode, result.stderr) == (0, f"purged {count}.\n")
    rows = json.loads(run_command("report", "rejections", "--format", "json", "--data", tmp_path / "data").stdout)
    assert sorted((row["reason"], row["quarantined_count"]) for row in rows) == [
        ("not_an_object", 1),
        ("wrong_source", 1),
    ]
    assert run_command("doctor", "--data", tmp_path / "data").returncode == 0


def test_an_import_succeeds_at_low_priority(tmp_path: Path, run_command: RunCommand) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps(VIEW))
    # Root may raise a priority, unless it drops the capability.
    without_capability = ["setpriv", "--bounding-set=-sys_nice"] if os.geteuid() == 0 else []
    if without_capability:
        require("setpriv")
    command = [sys.executable, "-m", "embedsink", "import", str(file), "--data", str(tmp_path / "data")]
    result = subprocess.run(
        [*without_capability, "nice", "-n", "15", *command], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, "accepted 1" in result.stderr) == (0, True), result.stderr
    [row] = json.loads(run_command("report", "views", "--format", "json", "--data", tmp_path / "data").stdout)
    assert row["view_count"] == 1


def test_an_import_that_could_not_be_loaded_fails(
    tmp_path: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object, **__: object) -> None:
        raise SystemExit

    (tmp_path / "in.ndjson").write_text(json.dumps(VIEW))
    with monkeypatch.context() as patch:
        patch.setattr(Loader, "run_once", end)
        result = run_command("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    assert result.returncode == 1
    assert "loader: stopped because of a bug" in result.stderr
    assert "The journal has all imported events" in result.stderr


@pytest.mark.parametrize("words", [["snapshot"], ["rebuild"], ["quarantine", "replay"]], ids=" ".join)
def test_a_folder_that_can_not_be_locked_is_a_failure(
    tmp_path: Path, run_command: RunCommand, words: list[str]
) -> None:
    (tmp_path / "lock").mkdir()
    assert_failed(run_command(*words, "--data", tmp_path), f"{tmp_path / 'lock'}: Is a directory. Use another folder")


def test_an_export_imports_into_another_folder(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    for suffix in ("ndjson", "csv", "parquet"):
        result = run_command("export", "-o", tmp_path / f"events.{suffix}", "--data", data)
        assert (result.returncode, result.stdout) == (0, "")
    result = run_command("import", tmp_path / "events.ndjson", "--data", tmp_path / "other")
    assert (result.returncode, result.stderr) == (0, "Loading …\naccepted 11, rejected 0.\n")
    views = [
        run_command("report", "views", "--format", "csv", "--data", folder).stdout
        for folder in (data, tmp_path / "other")
    ]
    assert views[0] == views[1]


def test_a_gzip_file_imported_twice_counts_once(tmp_path: Path, run_command: RunCommand) -> None:
    file, at = tmp_path / "in.ndjson.gz", ("--data", tmp_path / "data")
    file.write_bytes(gzip.compress(f"{json.dumps(VIEW)}\n{{oops\n".encode()))
    first = run_command("import", file, *at)
    assert (first.returncode, first.stderr.splitlines()[1]) == (1, "accepted 1, rejected 1.")
    second_import = run_command("import", file, *at)
    assert second_import.returncode == 1
    lines = second_import.stderr.splitlines()
    assert lines[1] == "accepted 1, rejected 1."
    assert lines[2].startswith("  line 2: not_json: ")
    assert lines[3] == "Duplicates, which do not count again: 2 of 2 envelopes."
    file.write_bytes(file.read_bytes()[:-9])
    damaged = run_command("import", file, *at)
    assert (damaged.returncode, "Traceback" in damaged.stderr) == (1, False)
    assert "line 2: the gzip file is damaged or cut off here" in damaged.stderr


def test_an_archive_is_imported_into_a_data_folder_only(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    (tmp_path / "archive").mkdir()
    exported = run_command("export", "--archive", tmp_path / "archive", "--data", data)
    assert exported.returncode == 0, exported.stderr
    count = sum(json.loads(path.read_bytes())["rows"] for path in (tmp_path / "archive").glob("*/manifest.json"))
    assert f"archive: {count:,} rows added in " in exported.stderr
    assert count > 0
    first = run_command("import", tmp_path / "archive", "--data", tmp_path / "new")
    assert (first.returncode, f"accepted {count:,}, rejected 0." in first.stderr) == (0, True), first.stderr
    again = run_command("import", tmp_path / "archive", "--data", tmp_path / "new")
    assert f"Duplicates, which do not count again: {count:,} of {count:,} envelopes." in again.stderr
    remote = run_command("import", tmp_path / "archive", "--url", "http://127.0.0.1:1")
    assert_failed(remote, "Stop the server, and use --data.", code=2)
    assert_failed(run_command("import", tmp_path, "--data", data), "has no manifest.json, so it is not an archive.")
    assert_failed(run_command("import", tmp_path / "no", "--data", data), "does not exist.", code=2)


@pytest.mark.server
def test_an_archive_of_a_period_is_exported_from_a_server(tmp_path: Path, run_command: RunCommand) -> None:
    (tmp_path / "archive").mkdir()
    with running_server(tmp_path / "data", EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        assert server.post([VIEW, VIEW], key=server.key()).status == 202
        remote = ["--archive", tmp_path / "archive", "--url", server.url]
        key = server.key("read", shows_names=True)

        def export(*words: str) -> str:
            return run_command("export", *remote, *words, EMBEDSINK_KEY=key).stderr

        until = "2025-11-21"
        wait_until(lambda: ": 2 rows added in 1 files." in export("--until", until), description="events are archived")
        assert ": 0 rows added in 0 files." in export("--since", until)
        assert ": 0 rows added in 0 files." in export()
    assert len(list((tmp_path / "archive").glob("*/event-*.parquet"))) == 1


def test_wrong_options_of_an_archive_are_refused(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    at = ("--data", data)
    for words, message in (
        (["export", *at], "-o: is missing. Name the output file, or an archive with --archive."),
        (["export", "--archive", tmp_path, "-o", "x.csv", *at], "--archive: is an output of its own."),
        (["export", "-o", "x.csv", "--since", "7d", *at], "--since, --until, --url: apply to --archive only."),
        (["export", "--archive", tmp_path, "--since", "soon", *at], '--since: "soon" is not a time.'),
    ):
        assert_failed(run_command(*words), message, code=2)
    missing = run_command("export", "--archive", tmp_path / "no", *at)
    assert_failed(missing, "does not exist. Create the folder, or mount its disk.")


def test_an_import_counts_conflicting_ids_as_rejected(tmp_path: Path, run_command: RunCommand) -> None:
    file = tmp_path / "in.ndjson"
    first = VIEW | {"id": str(uuid4())}
    others = [first | {"payload": first["payload"] | {"path": path}} for path in ("/other", "/third")]
    file.write_text("".join(json.dumps(envelope) + "\n" for envelope in (first, *others)) + "{oops\n")
    result = run_command("import", file, "--data", tmp_path / "data", EMBEDSINK_LIVE_MAX="0")
    assert result.returncode == 1
    assert result.stderr.splitlines()[1:3] == [
        "accepted 1, rejected 3.",
        "  id_conflict: 2 with the id of an earlier, different envelope.",
    ]
    assert "more." not in result.stderr


def test_an_import_counts_only_duplicates_of_its_file(tmp_path: Path, run_command: RunCommand) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    write_segment(folder.journal, [{"type": "view", "id": 1}] * 2)  # not loaded yet
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps(VIEW) + "\n")
    result = run_command("import", file, "--data", folder.path)
    assert (result.returncode, result.stderr) == (0, "Loading earlier events …\nLoading …\naccepted 1, rejected 0.\n")


def test_an_import_writes_to_the_journal_even_if_the_store_can_not_be_opened(
    tmp_path: Path, run_command: RunCommand
) -> None:
    folder = make_folder(tmp_path / "data")
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps(VIEW) + "\n")
    with _locked(folder.store):
        result = embedsink("import", file, "--data", folder.path)
        second_import = run_command("import", file, "--data", folder.path)
    assert result.returncode == second_import.returncode == 1
    assert "The journal has all imported events; `embedsink serve` loads them." in result.stderr
    logged = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert [line["event"] for line in logged] == ["loader_failed", "quarantine_count_failed"]
    for output in (result.stderr, second_import.stderr):
        assert "Duplicates and id conflicts were not counted, because the loader has not loaded all events." in output
        assert "Loading earlier events" not in output
    third_import = run_command("import", file, "--data", folder.path)
    assert third_import.stderr.splitlines()[-1] == "Duplicates, which do not count again: 1 of 1 envelopes."
    assert run_command("report", "views", "--format", "csv", "--data", folder.path).stdout.endswith(",1,0,0\r\n")


def test_an_import_refuses_a_pipe(tmp_path: Path, run_command: RunCommand) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = run_command("import", pipe, "--data", tmp_path / "data")
    assert_failed(result, f"{pipe}: is a pipe or a device. Write its content to a regular file", code=2)


def test_a_failed_export_leaves_no_file(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    missing, folder = tmp_path / "no" / "events.ndjson", tmp_path / "folder.csv"
    folder.mkdir()
    assert_failed(
        run_command("export", "-o", missing, "--data", data), "No such file or directory. Choose another path."
    )
    assert_failed(run_command("export", "--output", folder, "--data", data), "Is a directory. Choose another path.")
    assert list(tmp_path.rglob("*")) == [folder]


def test_a_rebuilt_folder_passes_the_checks(data: Path, tmp_path: Path, run_command: RunCommand) -> None:
    before = run_command("report", "views", "--format", "csv", "--data", data).stdout
    result = run_command("rebuild", "--data", data)
    assert (result.returncode, result.stdout) == (0, "")
    assert "store.duckdb: moved to" in result.stderr
    assert (data / "damaged" / "store.duckdb").exists()
    assert run_command("report", "views", "--format", "csv", "--data", data).stdout == before
    healthy = run_command("doctor", "--data", data)
    assert healthy.returncode == 0
    assert "ledger_adds_up" in healthy.stdout
    assert "problem" not in healthy.stdout


def test_rebuild_needs_a_snapshot(data: Path, run_command: RunCommand) -> None:
    (data / "analytics.duckdb").unlink()
    assert_failed(run_command("rebuild", "--data", data), "analytics.duckdb: does not exist.")
    assert (data / "store.duckdb").exists()
    sick = run_command("doctor", "--data", data)
    assert (sick.returncode, "problem" in sick.stdout) == (1, True)
    assert run_command("snapshot", "--data", data).returncode == 0
    assert run_command("doctor", "--data", data).returncode == 0


def test_doctor_reports_sizes_a_damaged_snapshot_and_losses(data: Path, run_command: RunCommand) -> None:
    previous, note = data / "analytics.previous.duckdb", data / "damaged" / "lost-1.txt"
    intact_bytes = (data / "analytics.duckdb").read_bytes()
    previous.write_bytes(intact_bytes)
    assert "every checksum matches" in run_command("doctor", "--data", data).stdout
    previous.write_bytes(bytes(byte ^ (index % 999 == 0) for index, byte in enumerate(intact_bytes)))
    note.parent.mkdir(exist_ok=True)
    note.write_text("store: 7 events are lost.")
    try:
        result = run_command("doctor", "--data", data)
    finally:
        previous.unlink()
        note.unlink()
    printed = " ".join(result.stdout.split())
    assert result.returncode == 1
    for words in ("analytics.previous.duckdb: is damaged", "7 events are lost", "previous snapshot", "spill files"):
        assert words in printed, words


def test_doctor_reports_a_damaged_segment(data: Path, run_command: RunCommand) -> None:
    segment = data / "journal" / "000000099999-00000000.ndjson"
    segment.write_bytes(b'{"kind":"event"}\n{"group":{"bytes":17,"crc32":"00000000"}}\n')
    try:
        result = run_command("doctor", "--data", data)
    finally:
        segment.unlink()
    assert result.returncode == 1
    assert f"{segment.name}: its checksum does not match (offset 0)" in result.stdout


def test_doctor_reports_an_invalid_dashboard(data: Path, run_command: RunCommand) -> None:
    dashboards = data / "dashboards"
    dashboards.mkdir()
    try:
        (dashboards / "one.json").write_text("{")
        chart = {"id": "a", "kind": "number", "title": "A", "report": "views", "how": "sum", "column": "views"}
        section = {"id": "s", "title": "S", "charts": [chart]}
        (dashboards / "two.json").write_text(json.dumps({"title": "T", "description": "D", "sections": [section]}))
        result = run_command("doctor", "--data", data)
        drawn = run_command("render", "overview", "--data", data, "-o", data / "out.svg")
    finally:
        shutil.rmtree(dashboards)
    assert result.returncode == 1
    assert "dashboards/one.json: is not JSON" in result.stdout
    assert 'dashboards/two.json: sections[0].charts[0].column: column "views" does not exist' in result.stdout
    # Other dashboards can still be rendered.
    assert (drawn.returncode, drawn.stderr) == (0, "")


@pytest.mark.parametrize(
    "command", [["snapshot"], ["rebuild"], ["doctor"], ["quarantine", "replay"], ["backup", "x"]], ids=" ".join
)
def test_a_command_does_not_create_a_missing_folder(
    command: list[str], tmp_path: Path, run_command: RunCommand
) -> None:
    assert_failed(run_command(*command, "--data", tmp_path / "typo"), "typo: does not exist.")
    assert not (tmp_path / "typo").exists()


def test_a_wrong_setting_prints_one_line(tmp_path: Path) -> None:
    done = embedsink("serve", "--data", tmp_path, EMBEDSINK_EVENTS_MAX="many")
    assert_failed(done, 'EMBEDSINK_EVENTS_MAX: "many" is not an integer that is at least 1. Change or unset it.')


def test_a_misspelled_setting_prints_one_line(tmp_path: Path) -> None:
    done = embedsink(
        "serve", "--data", tmp_path / "data", EMBEDSINK_EVENT_MAX="7", EMBEDSINK_KEY="", EMBEDSINK_DATA="x"
    )
    assert_failed(done, "EMBEDSINK_EVENT_MAX: does not exist. Did you mean EMBEDSINK_EVENTS_MAX?")
    assert not (tmp_path / "data").exists()


def test_serving_other_machines_needs_encryption(tmp_path: Path) -> None:
    done = embedsink("serve", "--host", "0.0.0.0", "--data", tmp_path / "data")
    assert_failed(done, "keys would be sent unencrypted", code=2)
    assert not (tmp_path / "data").exists()


@pytest.mark.server
def test_a_folder_that_a_server_has_open_is_refused(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps(VIEW) + "\n")
    taken = f"is in use by process {server.pid}."
    assert_failed(embedsink("serve", "--data", server.data), taken)
    assert_failed(embedsink("quarantine", "replay", "--data", server.data), taken)
    assert_failed(embedsink("rebuild", "--data", server.data), taken)
    refused = embedsink("import", file, "--data", server.data)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert_failed(refused, f"{taken} Use that server with --url and a key, or stop it.")
    snapshot = embedsink("snapshot", "--data", server.data)
    assert snapshot.returncode == 0
    assert "publishes snapshots automatically, every 10 s." in snapshot.stderr


@pytest.mark.server
def test_import_report_and_replay_work_through_a_server(
    server: RunningServer, tmp_path: Path, run_command: RunCommand
) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps([VIEW] * 5) + "\n{oops\n")
    result = run_command("import", file, "--url", server.url, EMBEDSINK_KEY=server.key("ingest"))
    assert (result.returncode, result.stdout) == (1, "")  # One envelope was rejected.
    assert "accepted 5, rejected 1." in result.stderr
    at, read = ("--url", server.url), server.key("read")
    wait_until(
        lambda: "5" in run_command("report", "views", *at, EMBEDSINK_KEY=read).stdout.split(),
        description="the views are visible",
    )
    assert len(run_command("report", "views", *at, "--format", "csv", EMBEDSINK_KEY=read).stdout.splitlines()) == 2
    for name in ("views.arrow", "views.parquet", "views.json"):
        assert run_command("report", "views", *at, "-o", tmp_path / name, EMBEDSINK_KEY=read).returncode == 0
        assert (tmp_path / name).stat().st_size > 100
    assert run_command("report", "--all", *at, "-o", tmp_path / "all", "--bom", EMBEDSINK_KEY=read).returncode == 0
    assert (tmp_path / "all" / "views.csv").read_bytes().startswith(b"\xef\xbb\xbfperiod_start")
    described = run_command("report", "views", "--describe", *at, EMBEDSINK_KEY=read).stdout
    assert described == run_command("report", "views", "--describe", "--data", server.data).stdout
    wrong = run_command("report", "views", *at, "--timezone", "Berlin", EMBEDSINK_KEY=read)
    assert_failed(wrong, 'Did you mean "Europe/Berlin"?', code=2)
    listed = run_command("quarantine", "list", *at, EMBEDSINK_KEY=read)
    assert "not_json" in listed.stdout
    assert "1 rejection as of now, newest first. New rejections appear about a second after" in listed.stderr
    assert f"`embedsink quarantine show ID --url {server.url}`" in listed.stderr
    replay = run_command("quarantine", "replay", *at, EMBEDSINK_KEY=server.key("admin"))
    assert (replay.returncode, replay.stderr) == (0, "replayed 0, still rejected 1.\n")


@pytest.mark.server
def test_a_key_without_permission_prints_one_line(server: RunningServer, run_command: RunCommand) -> None:
    ingest = server.key("ingest")
    wrong = run_command("report", "views", "--url", server.url, EMBEDSINK_KEY=ingest)
    assert_failed(wrong, "the key has ingest permission, but this request needs read.")
    assert ingest not in wrong.stderr
    assert_failed(run_command("report", "nope", "--url", server.url, EMBEDSINK_KEY=server.key("read")), "nope", code=2)


@pytest.mark.server
def test_unsent_envelopes_are_exit_code_1(server: RunningServer, tmp_path: Path, run_command: RunCommand) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps({"context": {"deployment": 2}, "events": [VIEW]}) + "\n")
    result = run_command("import", file, "--url", server.url, EMBEDSINK_KEY=server.key("ingest", deployments=[1]))
    assert (result.returncode, result.stdout) == (1, "")
    assert "accepted 0, rejected 0; 1 could not be imported." in result.stderr
    assert "line 1: out_of_scope: context.deployment: 2 is outside the key's scope." in result.stderr
    file.write_text(file.read_text() * 12)
    many = run_command("import", file, "--url", server.url, EMBEDSINK_KEY=server.key("ingest", deployments=[1]))
    assert "accepted 0, rejected 0; 12 could not be imported." in many.stderr
    assert many.stderr.splitlines()[-1] == "Envelopes that could not be imported remain only in the file."
    assert "quarantine" not in many.stderr


def test_an_import_with_rejections_suggests_listing_them(tmp_path: Path, run_command: RunCommand) -> None:
    (tmp_path / "in.ndjson").write_text("{oops\n" * 12)
    result = run_command("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    first, *_, more, where = result.stderr.splitlines()[1:]
    assert (first, more) == ("accepted 0, rejected 12.", "  … and 2 more.")
    assert where == f"List the rejections: `embedsink quarantine list --data {tmp_path}/data`."


def test_a_replay_reports_untried_rejections(tmp_path: Path, run_command: RunCommand) -> None:
    data, envelope = ("--data", tmp_path / "data"), VIEW | {"id": "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"}
    (tmp_path / "in.ndjson").write_text(f"{json.dumps(envelope)}\n{json.dumps(envelope | {'timestamp': 5})}\n{{oops\n")
    assert run_command("import", tmp_path / "in.ndjson", *data).returncode == 1
    replayed, untried = run_command("quarantine", "replay", *data).stderr.splitlines()
    assert replayed == "replayed 0, still rejected 1."
    assert untried.startswith(
        "Rejections not replayed: 1. A rejection with the reason `id_conflict` or `out_of_scope` never becomes valid: "
    )


SYNC: dict[str, Any] = {
    "syncJobId": "job 1",
    "generatedFiles": [{"path": "cubes/orders.yml"}],
    "manifestStats": {"models": 3, "sources": 2, "macros": 1},
    "svcCount": 4,
    "completedAt": "2026-11-02T10:00:00Z",
    "durationMs": 5_000,
}


@pytest.fixture
def result_file(tmp_path: Path) -> Path:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(SYNC))
    return file


def test_a_sync_result_can_be_recorded_twice(server: RunningServer, result_file: Path, run_command: RunCommand) -> None:
    key = server.key("sync", deployments=[12])
    words = ("sync-result", result_file, "--deployment", 12, "--url", server.url)
    for _ in range(2):
        result = run_command(*words, EMBEDSINK_KEY=key)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "job 1: recorded for deployment 12.\n")
    path = "/api/v1/deployments/12/dbt-sync/job%201/result"
    assert server.get(path, key=server.key("read")).json() == SYNC


def test_a_sync_result_can_be_read_from_stdin(server: RunningServer) -> None:
    words = [sys.executable, "-m", "embedsink", "sync-result", "-", "--deployment", "13", "--url", server.url]
    environment = os.environ | {"EMBEDSINK_KEY": server.key("admin")}
    result = subprocess.run(words, input=json.dumps(SYNC), capture_output=True, text=True, env=environment, check=False)
    assert (result.returncode, result.stderr) == (0, "job 1: recorded for deployment 13.\n")


def test_a_refused_sync_result_is_reported_with_the_reason(
    server: RunningServer, result_file: Path, run_command: RunCommand, tmp_path: Path
) -> None:
    words = ("sync-result", result_file, "--deployment", "14", "--url", server.url, "--key", server.key("sync"))
    assert run_command(*words).returncode == 0
    result_file.write_text(json.dumps(SYNC | {"svcCount": 5}))
    assert_failed(run_command(*words), 'syncJobId: "job 1" already has a different result in deployment 14.')
    result_file.write_text(json.dumps({"syncJobId": "job 1", "svcCount": "5"}))
    result = run_command(*words)
    assert_failed(result, "durationMs: is missing")
    assert 'svcCount: "5" is not an integer' in result.stderr
    result_file.write_text("{}")
    assert_failed(run_command(*words), "result.json: has no syncJobId.")
    result_file.write_text(json.dumps(SYNC | {"syncJobId": 5}))
    assert_failed(run_command(*words), "result.json: syncJobId: 5 is not text.")
    result_file.write_text("nothing")
    assert_failed(run_command(*words), "result.json: is not JSON")
    assert_failed(run_command(*words, "--job", "job 1"), "body: Expecting value")
    result_file.write_text(json.dumps(SYNC))
    assert_failed(run_command(*words, "--job", "other"), 'syncJobId: "job 1" is not "other", the job in the URL.')
    reader = server.key("read")
    assert_failed(run_command(*words[:-1], reader), "the key has read permission, but this request needs sync.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--deployment", "x"], '--deployment: "x" is not an integer'),
        (["--url", "http://events.example.com"], "unencrypted"),
        (["--key", "nonsense"], "--key: is neither an embedsink key nor an access token"),
        (["--job", ""], "--job: is empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_malformed_option_of_sync_result_is_wrong_use(
    words: list[str], message: str, result_file: Path, run_command: RunCommand
) -> None:
    _, key = KeyStore(result_file.parent / "keys.json").create(KeyKind.SYNC, now=1.0)
    valid = {"--deployment": "12", "--url": "http://127.0.0.1:1", "--key": key}
    options = [part for pair in (valid | dict([words])).items() for part in pair]
    assert_failed(run_command("sync-result", result_file, *options), message, code=2)


def test_sync_result_requires_file_deployment_and_server(result_file: Path, run_command: RunCommand) -> None:
    for words in (["nowhere.json", "--deployment", "1", "--url", "http://127.0.0.1:1"], [result_file], []):
        assert_failed(run_command("sync-result", *words), "", code=2)


def test_a_sync_result_is_retried_while_the_server_is_unreachable(
    result_file: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = KeyStore(result_file.parent / "keys.json").create(KeyKind.SYNC, now=1.0)
    monkeypatch.setattr("embedsink.cli.sync_result.RETRY_TIMEOUT_S", 1.0)
    words = ("--deployment", "1", "--url", f"http://127.0.0.1:{free_port()}", "--key", key)
    assert_failed(run_command("sync-result", result_file, *words), "does not answer")
