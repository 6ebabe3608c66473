"""The command line as its users meet it: real processes, their exit codes, and a stdout that holds the result alone."""

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
from contextlib import chdir
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from embedsink import __version__
from embedsink.auth.key import KeyKind
from embedsink.auth.key_store import KeyStore
from embedsink.auth.token import looks_like_key
from embedsink.cli.app import app, main
from embedsink.data_folder import DataFolder
from embedsink.loader.loader import Loader
from tests.programs import require
from tests.servers import RunningServer, free_port, running_server, wait_until

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
    ["sync-result"],
    ["backup"],
    ["restore"],
    ["snapshot"],
    ["rebuild"],
    ["doctor"],
]
# They work in a folder of their own, or on a server alone.
FOLDERLESS = [["demo"], ["sync-result"], ["inspect"]]
HEAVY = {"duckdb", "pandas", "pydantic", "starlette", "uvicorn", "orjson", "rich.console"}

VIEW: dict[str, Any] = {
    "source": "svc-embed",
    "direction": "event",
    "type": "svc:event:view",
    "payload": {"surface": "dashboard", "path": "/", "title": "\x1b[31mred"},
    "timestamp": 1_763_596_800_000,
    "surface": "dashboard",
}

Done = subprocess.CompletedProcess[str]
Call = Callable[..., Done]


def embedsink(*words: object, **env: str) -> Done:
    return subprocess.run(
        [sys.executable, "-m", "embedsink", *map(str, words)],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("EMBEDSINK_")} | env,
        timeout=60,
        check=False,
    )


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The same as `embedsink` in this process, where starting one for each of many cases would take long."""

    def call(*words: object, **env: str) -> Done:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["embedsink", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return Done(sys.argv, int(end.value.code or 0), printed.out, printed.err)

    return call


def assert_failed(done: Done, sentence: str, *, code: int = 1) -> None:
    """One sentence on stderr, nothing on stdout, no traceback."""
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    if code == 1:
        assert len(done.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ten views, one action and one rejection, and no server on it."""
    folder = tmp_path_factory.mktemp("cli")
    refresh: dict[str, Any] = {"direction": "action", "type": "svc:action:refresh", "payload": {}, "surface": None}
    lines = [{"context": {"deployment": 1}, "events": [VIEW] * 10}, VIEW | refresh, VIEW | {"surface": "moon"}]
    (folder / "in.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = embedsink("import", folder / "in.ndjson", "--data", folder / "data")
    assert (done.returncode, done.stdout) == (1, "")  # One was rejected.
    assert "accepted 11, rejected 1." in done.stderr
    assert "line 3: bad_field: surface" in done.stderr
    return folder / "data"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("cli") / "served") as server:
        yield server


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_the_command_as_it_is_typed(command: list[str], called: Call) -> None:
    done = called(*command, "--help")
    assert done.returncode == 0
    assert f"embedsink {' '.join(command)}" in done.stdout.partition("Examples:")[2]


def test_every_command_is_in_these_tests() -> None:
    nouns = {group.name: group.typer_instance or app for group in app.registered_groups}
    found = [[_name_of(command)] for command in app.registered_commands]
    found += [[str(noun), _name_of(command)] for noun, verbs in nouns.items() for command in verbs.registered_commands]
    assert sorted(found) == sorted(COMMANDS)


def _name_of(command: Any) -> str:
    return str(command.name or command.callback.__name__)


def test_no_summary_of_a_command_is_cut() -> None:
    assert "..." not in embedsink("--help").stdout.partition("Commands:")[2]


def test_help_and_version_import_nothing_heavy() -> None:
    script = "import sys, json, embedsink.cli.app; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.check_output([sys.executable, "-c", script]))
    assert not HEAVY & set(modules)
    assert embedsink("--version").stdout == f"embedsink {__version__}\n"


@pytest.mark.parametrize("words", [["report", "views"], ["doctor"]], ids=" ".join)
def test_no_command_loads_pandas(data: Path, words: list[str]) -> None:
    # DuckDB would, at the first parameter; a server asks it with parameters all the time.
    done = embedsink(*words, "--data", data, PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0, done.stderr
    assert "duckdb" in done.stderr
    # The doctor computes checksums with numpy.
    assert ("numpy" in done.stderr) is (words == ["doctor"])
    assert "pandas.core" not in done.stderr


@pytest.mark.parametrize(("word", "said"), [("svc", []), ("acme", ['data-service-name="acme"'])])
def test_the_element_of_a_key_says_the_vendors_word(tmp_path: Path, word: str, said: list[str]) -> None:
    words = ["keys", "create", "--kind", "ingest", "--origin", "https://app.example", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, "-m", "embedsink", *words],
        env=os.environ | {"EMBEDSINK_SERVICE_NAME": word},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.findall(r'data-service-name="\w+"', done.stderr) == said


def test_keys_need_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys, json; from embedsink.cli.app import app; "
        "app(sys.argv[1:], standalone_mode=False); print(json.dumps(sorted(sys.modules)))"
    )
    words = ["keys", "create", "--kind", "read", "--data", str(tmp_path / "data")]
    printed = subprocess.check_output([sys.executable, "-c", script, *words], stderr=subprocess.DEVNULL)
    # typer itself reads the words with pydantic.
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
        ["quarantine", "replay", "--url", "http://engine.example.com"],
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
def test_wrong_use_is_exit_code_2(data: Path, words: list[str], called: Call) -> None:
    done = called(*words, EMBEDSINK_DATA=str(data))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in FOLDERLESS], ids=" ".join)
def test_an_empty_name_is_no_data_folder(command: list[str], tmp_path: Path, called: Call) -> None:
    needed = {"create": ["--kind", "read"], "export": ["-o", "out.csv"], "import": [__file__]}
    needed |= {"render": ["overview", "-o", "out.svg"], "backup": ["target"], "restore": ["target"]}
    words = [*command, *needed.get(command[-1], ["x"] if command[-1] in ("revoke", "show") else [])]
    with chdir(tmp_path):
        for done in (called(*words, "--data", ""), called(*words, EMBEDSINK_DATA="")):
            assert_failed(done, "is empty", code=2)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_variable_does_not_matter_beside_the_option(data: Path, called: Call) -> None:
    assert called("report", "views", "--data", data, EMBEDSINK_DATA="").returncode == 0


def test_the_process_ends_with_the_code_of_its_command(data: Path) -> None:
    assert_failed(embedsink("report", "views", "--surface", "moon", "--data", data), "surface:", code=2)
    assert_failed(embedsink("keys", "create"), "--kind", code=2)


def test_a_key_is_alone_on_stdout_and_known_to_the_file(tmp_path: Path) -> None:
    done = embedsink(
        *("keys", "create", "--kind", "ingest", "--deployment", 3, "--deployment", 4),
        *("--origin", "https://App.example.com/", "--expires", "90d", "--label", "the app", "--data", tmp_path / "new"),
    )
    assert done.returncode == 0
    token = done.stdout.removesuffix("\n")
    assert looks_like_key(token)
    assert token not in done.stderr
    [key] = KeyStore(DataFolder(tmp_path / "new").keys).keys()
    assert (key.deployments, key.origins, key.label) == (
        frozenset({3, 4}),
        frozenset({"https://app.example.com"}),
        "the app",
    )
    assert key.expires_at == pytest.approx(key.created_at + 90 * 86_400)

    listed = embedsink("keys", "list", EMBEDSINK_DATA=str(tmp_path / "new"))
    assert token not in listed.stdout
    assert [word in listed.stdout for word in (key.key_id, "live", "3, 4", "the app")] == [True] * 4

    revoked = embedsink("keys", "revoke", key.key_id, "--data", tmp_path / "new")
    assert (revoked.returncode, revoked.stdout, revoked.stderr) == (0, "", f"{key.key_id}: is revoked.\n")
    assert "revoked" in embedsink("keys", "list", "--data", tmp_path / "new").stdout


def test_an_unknown_key_is_a_failure(data: Path) -> None:
    assert_failed(embedsink("keys", "revoke", "k_000000000000", "--data", data), 'key "k_000000000000" does not exist')


def test_a_key_found_in_public_is_revoked_from_stdin(tmp_path: Path) -> None:
    token = embedsink("keys", "create", "--kind", "read", "--data", tmp_path).stdout
    done = subprocess.run(
        [sys.executable, "-m", "embedsink", "keys", "revoke", "-", "--data", tmp_path],
        input=token,
        capture_output=True,
        text=True,
        check=True,
    )
    [key] = KeyStore(DataFolder(tmp_path).keys).keys()
    assert key.revoked_at is not None
    assert (done.stdout, done.stderr) == ("", f"{key.key_id}: is revoked.\n")


@pytest.mark.parametrize("kind", ["ingest", "read", "sync", "admin"])
def test_a_key_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path, called: Call, kind: str) -> None:
    token = called("keys", "create", "--kind", kind, "--data", tmp_path).stdout.strip()
    for written in (token, f"'{token}", token[:-1]):
        done = called("keys", "revoke", written, "--data", tmp_path)
        assert_failed(done, "shows in `ps` and in the shell's history", code=2)
        assert token[9:-1] not in done.stderr
    [key] = KeyStore(DataFolder(tmp_path).keys).keys()
    assert key.revoked_at is None


def test_revoking_from_an_empty_stdin_is_wrong_use(
    tmp_path: Path, called: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert_failed(called("keys", "revoke", "-", "--data", tmp_path), "stdin: is empty", code=2)


def test_reports_are_listed_and_shown(data: Path, called: Call) -> None:
    assert "views" in called("report", "--data", data).stdout
    described = json.loads(called("report", "--data", data, "--format", "json").stdout)
    assert {"name", "title", "question", "grain", "columns"} == described[0].keys()
    table = called("report", "views", "--data", data).stdout.splitlines()
    assert table[0].split() == [
        *("period_start", "deployment", "surface"),
        *("view_count", "session_count", "viewer_count"),
    ]
    assert table[2].split() == ["2025-11-20T00:00:00Z", "1", "dashboard", "10", "0", "0"]
    rows = json.loads(called("report", "views", "--data", data, "--format", "json").stdout)
    assert [row["view_count"] for row in rows] == [10]
    csv = called("report", "views", "--data", data, "--format", "csv").stdout
    assert csv.splitlines()[1] == "2025-11-20T00:00:00Z,1,dashboard,10,0,0"


def test_a_report_goes_to_a_file_by_its_suffix(data: Path, tmp_path: Path, called: Call) -> None:
    import duckdb

    for suffix in ("arrow", "csv", "json", "parquet"):
        done = called("report", "views", "--data", data, "-o", tmp_path / f"views.{suffix}")
        assert (done.returncode, done.stdout) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "views.arrow",
        "views.csv",
        "views.json",
        "views.parquet",
    ]
    assert json.loads((tmp_path / "views.json").read_bytes())[0]["view_count"] == 10
    with duckdb.connect() as connection:
        assert connection.execute(f"select view_count from '{tmp_path}/views.parquet'").fetchall() == [(10,)]


def test_the_scope_is_applied(data: Path, called: Call) -> None:
    done = called("report", "views", "--data", data, "--deployment", 2)
    assert (done.returncode, done.stdout) == (0, "")
    assert "has no rows for this" in done.stderr
    assert " UTC, the last snapshot. Leave out --deployment to see what there is." in done.stderr
    several = called("report", "views", "--data", data, "--until", "2025-11-01", "--surface", "app")
    assert "Leave out --until or --surface to see" in several.stderr
    assert "10" in called("report", "views", "--data", data, "--deployment", 1, "--since", "2025-11-20").stdout
    assert called("report", "views", "--data", data, "--until", "2025-11-20").stdout == ""


def test_columns_rows_and_days_are_as_asked(data: Path, called: Call) -> None:
    asked = ("report", "views", "--data", data, "--format", "csv", "--columns", "view_count,period_start")
    done = called(*asked, "--timezone", "Asia/Tokyo", "--limit", 1)
    assert done.stdout.splitlines() == ["view_count,period_start", "10,2025-11-19T15:00:00Z"]
    assert called(*asked, "--timezone", "Asia/Tokyo", "--since", "2025-11-20").stdout.count("\n") == 2
    assert called(*asked, "--timezone", "Asia/Tokyo", "--since", "2025-11-20T09:00:01").stdout.count("\n") == 1
    assert called(*asked, "--bom").stdout.startswith("\ufeffview_count")


def test_all_reports_go_to_one_file_or_folder(data: Path, tmp_path: Path, called: Call) -> None:
    for output in ("summary.zip", "summary"):
        done = called("report", "--all", "--since", "2025-11-01", "--data", data, "-o", tmp_path / output)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
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


def test_all_reports_in_a_folder_that_is_there_replace_what_has_their_names_and_say_so(
    data: Path, tmp_path: Path, called: Call
) -> None:
    folder = tmp_path / "summary"
    folder.mkdir()
    for name in ("views.csv", "notes.txt"):
        (folder / name).write_text("mine")
    done = called("report", "--all", "--data", data, "-o", folder)
    assert (done.returncode, done.stderr) == (0, f"{folder}: 1 file was there before, and replaced.\n")
    assert (folder / "views.csv").read_text().startswith("period_start,")
    assert (folder / "notes.txt").read_text() == "mine"
    count = len(list(folder.iterdir())) - 1
    done = called("report", "--all", "--data", data, "-o", folder)
    assert done.stderr == f"{folder}: {count} files were there before, and replaced.\n"
    assert len(list(folder.iterdir())) == count + 1, "and no draft is left"


def test_all_reports_replace_nothing_where_one_cannot_be(data: Path, tmp_path: Path, called: Call) -> None:
    folder = tmp_path / "summary"
    (folder / "views.csv").mkdir(parents=True)
    assert_failed(
        called("report", "--all", "--data", data, "-o", folder), "views.csv: is a folder. Choose another place."
    )
    assert [path.name for path in folder.iterdir()] == ["views.csv"]


def test_a_folder_for_all_reports_is_no_file_by_its_name(data: Path, tmp_path: Path, called: Call) -> None:
    file, folder = tmp_path / "sum.csv", tmp_path / "reports.2026.10"
    assert_failed(called("report", "--all", "--data", data, "-o", file), f"-o {tmp_path}/sum.zip.", code=2)
    assert not file.exists()
    assert called("report", "--all", "--data", data, "-o", folder).returncode == 0
    assert (folder / "views.csv").exists()
    file.mkdir()
    assert called("report", "--all", "--data", data, "-o", file).returncode == 0


def test_a_report_says_what_its_rows_and_columns_are(data: Path, called: Call) -> None:
    listed = called("report", "--data", data)
    assert listed.stderr == "What a row and each column of one is: `embedsink report NAME --describe`.\n"
    shown = called("report", "ai_queries", "--describe", "--data", data).stdout
    question, grain, _, header, _, *rows = shown.splitlines()
    assert question.startswith("ai_queries: ")
    assert grain == "One row per period, deployment, surface and agent."
    assert header.split() == ["name", "type", "unit", "description"]
    assert ["answer_rate", "number", "share"] in [row.split()[:3] for row in rows]
    described = json.loads(called("report", "views", "--describe", "--format", "json", "--data", data).stdout)
    assert described["row"]["properties"].keys() == {column["name"] for column in described["columns"]}


def test_which_reports_there_are_is_told_with_grain_and_columns_before_there_is_any_data(
    tmp_path: Path, called: Call
) -> None:
    listed = called("report", "--data", tmp_path / "none")
    assert listed.returncode == 0
    header, _, *rows = listed.stdout.splitlines()
    assert header.split() == ["name", "question", "grain", "columns"]
    [views] = [row for row in rows if row.startswith(" views ")]
    assert "One row per period, deployment and surface." in views
    assert views.endswith("period_start, deployment, surface, view_count, session_count, viewer_count")
    described = called("report", "views", "--describe", "--data", tmp_path / "none")
    assert (described.returncode, "view_count" in described.stdout) == (0, True)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_name_something_are_shown_as_they_are_typed(tmp_path: Path, called: Call) -> None:
    download = VIEW | {"type": "svc:event:download"}
    download["payload"] = {"format": "csv", "target": "widget", "rowCount": 12_345}
    (tmp_path / "in.ndjson").write_text(json.dumps({"context": {"deployment": 54_321}, "events": [download]}))
    assert called("import", tmp_path / "in.ndjson", "--data", tmp_path / "data").returncode == 0
    asked = ("report", "download_audit", "--data", tmp_path / "data", "--columns")
    shown = called(*asked, "deployment,exported_row_count,arrival").stdout.splitlines()[-1].split()
    assert shown == ["54321", "12,345", str(2**32 + 1)]


def test_a_wrong_report_and_a_missing_snapshot_are_one_sentence(data: Path, tmp_path: Path) -> None:
    wrong = embedsink("report", "view", "--data", data)
    assert_failed(wrong, 'report "view" does not exist. Did you mean "views"?', code=2)
    assert_failed(embedsink("report", "views", "--data", tmp_path), "analytics.duckdb: does not exist.")
    assert_failed(
        embedsink("report", "views", "--data", tmp_path / "no"), f"data folder {tmp_path}/no: does not exist."
    )


def test_no_character_of_an_event_commands_the_terminal(data: Path) -> None:
    listed = embedsink("quarantine", "list", "--data", data).stdout
    shown = embedsink("quarantine", "show", listed.splitlines()[2].split()[0], "--data", data)
    assert "\x1b" not in listed + shown.stdout
    assert json.loads(json.loads(shown.stdout)["raw"])["payload"]["title"] == "\x1b[31mred"


def test_on_a_terminal_control_characters_are_shown_and_in_a_pipe_they_are_as_sent(tmp_path: Path) -> None:
    drilldown = VIEW | {"type": "svc:event:drilldown", "payload": {"member": "a\x1b[31m\x9bred ü"}}
    (tmp_path / "in.ndjson").write_text(json.dumps(drilldown))
    embedsink("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    words = ("report", "drilldowns", "--format", "csv", "--data", tmp_path / "data")
    assert "a\x1b[31m\x9bred ü" in embedsink(*words).stdout
    shown = on_a_terminal(*words)
    assert "a\\u001b[31m\\u009bred ü" in shown
    assert "\x1b" not in shown
    assert shown.splitlines()[0].startswith("deployment,surface,member,")
    assert "\\r" not in shown


def test_a_wide_report_on_a_terminal_shows_whole_columns_and_names_those_without_room(tmp_path: Path) -> None:
    data, deliveries = tmp_path / "data", [{"context": {"session": f"s_{n:032}"}, "events": [VIEW]} for n in (1, 2)]
    (tmp_path / "in.ndjson").write_text("\n".join(map(json.dumps, deliveries)))
    embedsink("import", tmp_path / "in.ndjson", "--data", data)
    header, line, *rows, hint = plain(on_a_terminal("report", "sessions", "--data", data, COLUMNS="100")).splitlines()
    names = list(json.loads(embedsink("report", "sessions", "--format", "json", "--data", data).stdout)[0])
    kept = header.split()
    assert kept == names[: len(kept)]
    assert 3 <= len(kept) < len(names)
    assert max(map(len, [header, line, *rows])) <= 100
    assert "2025-11-20T00:00:00Z" in rows[0]
    left_out = ", ".join(names[len(kept) :])
    assert hint == f"There is no room for {left_out}. Choose with --columns, or see all of it: --format json."


def test_one_row_that_is_too_wide_for_the_terminal_stands_as_a_list(data: Path) -> None:
    told = plain(on_a_terminal("report", "totals", "--data", data, COLUMNS="100")).splitlines()
    [row] = json.loads(embedsink("report", "totals", "--format", "json", "--data", data).stdout)
    assert [line.split() for line in told] == [
        [name, f"{value:,}"] if value is not None else [name] for name, value in row.items()
    ]


def test_a_hostile_text_floods_no_terminal_and_makes_no_line_of_its_own(tmp_path: Path) -> None:
    drilldown = VIEW | {"type": "svc:event:drilldown"}
    members = [f"{number}\r\nSet-Cookie: x=1\n" + "界" * 20_000 for number in (1, 2)]
    lines = [json.dumps(drilldown | {"payload": {"member": member}}) for member in members]
    (tmp_path / "in.ndjson").write_text("\n".join(lines))
    embedsink("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    for columns in ("member", "member,drilldown_count", "deployment,drilldown_count,member"):
        words = ("report", "drilldowns", "--columns", columns, "--data", tmp_path / "data")
        told = on_a_terminal(*words, COLUMNS="80")
        assert len(told) < 2_000
        assert r"1\r\nSet-Cookie:" in told
        assert told.endswith("Long texts are cut. --format json has them whole.\r\n")
    piped = embedsink("report", "drilldowns", "--columns", "member", "--data", tmp_path / "data").stdout
    assert len(piped.splitlines()) == 4
    assert piped.count("界") == 40_000


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_bytes_for_programs_go_to_a_pipe_and_not_to_a_terminal(data: Path, format: str) -> None:
    words = ("report", "views", "--format", format, "--data", data)
    told = on_a_terminal(*words, code=2)
    assert f"--format {format}: is not for a terminal. Add -o FILE." in told
    assert "PAR1" not in told
    piped = subprocess.run([sys.executable, "-m", "embedsink", *map(str, words)], capture_output=True, check=True)
    assert len(piped.stdout) > 100


def plain(printed: str) -> str:
    """The same without bold heads."""
    return re.sub("\x1b\\[[0-9]*m", "", printed)


def on_a_terminal(*words: object, code: int = 0, **variables: str) -> str:
    """What a command prints on a terminal of its own."""
    ours, its = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "embedsink", *map(str, words)],
            stdout=its,
            stderr=its,
            env=os.environ | variables,
            timeout=60,
            check=False,
        )
        assert done.returncode == code
        return os.read(ours, 65_536).decode()
    finally:
        os.close(its)
        os.close(ours)


def test_who_sees_no_rows_at_all_is_told_where_to_look(data: Path, called: Call) -> None:
    done = called("report", "sync_impact", "--data", data)
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(
        r"sync_impact: has no rows as of [0-9 :-]+ UTC, the last snapshot\. What is sent shows in the next one\. "
        rf"See whether it was rejected: `embedsink quarantine list --data {data}`\.\n",
        done.stderr,
    )


def test_a_list_of_rejections_says_how_many_of_when_and_what_can_be_done(data: Path, called: Call) -> None:
    done = called("quarantine", "list", "--data", data)
    first, *further = done.stderr.splitlines()
    assert re.fullmatch(
        r"1 rejected as of [0-9 :-]+ UTC, the last snapshot, the newest first\. "
        r"What is rejected later shows in the next one\.",
        first,
    )
    assert further == [
        f"One of them whole: `embedsink quarantine show ID --data {data}`.",
        f"Once settings or the program have changed, try all again: `embedsink quarantine replay --data {data}`.",
    ]
    cut = called("quarantine", "list", "--data", data, "--limit", 1)
    assert "the newest 1, more with --limit" in cut.stderr


def test_an_empty_quarantine_says_as_of_when(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text(json.dumps(VIEW))
    embedsink("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    at = 1_763_596_800
    os.utime(tmp_path / "data" / "analytics.duckdb", (at, at))
    done = embedsink("quarantine", "list", "--data", tmp_path / "data")
    assert (done.returncode, done.stdout) == (0, "")
    assert "The quarantine is empty as of 2025-11-20 00:00:00 UTC, the last snapshot." in done.stderr


def test_the_quarantine_is_listed_shown_and_replayed(data: Path) -> None:
    [header, _, row] = embedsink("quarantine", "list", "--data", data).stdout.splitlines()
    assert header.split()[0] == "quarantine_id"
    assert 'surface: "moon" is not one of' in row
    shown = json.loads(embedsink("quarantine", "show", row.split()[0], "--data", data).stdout)
    assert (shown["reason"], json.loads(shown["raw"])["surface"]) == ("bad_field", "moon")
    assert_failed(embedsink("quarantine", "show", "0000", "--data", data), "quarantine 0000: does not exist.")
    replayed = embedsink("quarantine", "replay", "--data", data)
    assert (replayed.returncode, replayed.stderr) == (0, "replayed 0, still rejected 1.\n")


def test_the_quarantine_is_purged_of_a_folder_and_through_a_server(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        key, admin = server.key(), server.key("admin")
        server.post([VIEW, 1, {}], key=key)
        there = ("--url", server.url, "--key", admin)
        done = embedsink("quarantine", "purge", "--reason", "wrong_source", *there)
        assert (done.returncode, done.stderr) == (0, "purged 1.\n")
        assert_failed(
            embedsink("quarantine", "purge", "--reason", "wrong", *there), 'reason: "wrong" does not exist.', code=2
        )
    for count in (1, 0):
        done = embedsink("quarantine", "purge", "--data", tmp_path / "data")
        assert (done.returncode, done.stderr) == (0, f"purged {count}.\n")
    rows = json.loads(embedsink("report", "rejections", "--format", "json", "--data", tmp_path / "data").stdout)
    assert sorted((row["reason"], row["quarantined_count"]) for row in rows) == [
        ("not_an_object", 1),
        ("wrong_source", 1),
    ]
    assert embedsink("doctor", "--data", tmp_path / "data").returncode == 0


def test_where_priority_is_low_already_an_import_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps(VIEW))
    # Root may raise any priority, as long as it keeps the right to.
    as_anybody = ["setpriv", "--bounding-set=-sys_nice"] if os.geteuid() == 0 else []
    if as_anybody:
        require("setpriv")
    command = [sys.executable, "-m", "embedsink", "import", str(file), "--data", str(tmp_path / "data")]
    done = subprocess.run([*as_anybody, "nice", "-n", "15", *command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "accepted 1" in done.stderr) == (0, True), done.stderr
    [row] = json.loads(embedsink("report", "views", "--format", "json", "--data", tmp_path / "data").stdout)
    assert row["view_count"] == 1


def test_an_import_that_was_not_loaded_fails_and_says_where_it_is(
    tmp_path: Path, called: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object, **__: object) -> None:
        raise SystemExit

    (tmp_path / "in.ndjson").write_text(json.dumps(VIEW))
    with monkeypatch.context() as patch:
        patch.setattr(Loader, "work_once", end)
        done = called("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    assert done.returncode == 1
    assert "loader: has ended" in done.stderr
    assert "Everything is in the journal" in done.stderr


@pytest.mark.parametrize("words", [["snapshot"], ["rebuild"], ["quarantine", "replay"]], ids=" ".join)
def test_a_folder_that_can_not_be_locked_is_told_and_no_success(tmp_path: Path, called: Call, words: list[str]) -> None:
    (tmp_path / "lock").mkdir()
    assert_failed(called(*words, "--data", tmp_path), f"{tmp_path / 'lock'}: Is a directory. Choose another")


def test_an_export_imports_elsewhere(data: Path, tmp_path: Path) -> None:
    for suffix in ("ndjson", "csv", "parquet"):
        done = embedsink("export", "-o", tmp_path / f"events.{suffix}", "--data", data)
        assert (done.returncode, done.stdout) == (0, "")
    done = embedsink("import", tmp_path / "events.ndjson", "--data", tmp_path / "other")
    assert (done.returncode, done.stderr) == (0, "Loading …\naccepted 11, rejected 0.\n")
    views = [
        embedsink("report", "views", "--format", "csv", "--data", one).stdout for one in (data, tmp_path / "other")
    ]
    assert views[0] == views[1]


def test_a_compressed_file_is_imported_and_again_it_was_there_already(tmp_path: Path, called: Call) -> None:
    file, at = tmp_path / "in.ndjson.gz", ("--data", tmp_path / "data")
    file.write_bytes(gzip.compress(f"{json.dumps(VIEW)}\n{{oops\n".encode()))
    first = called("import", file, *at)
    assert (first.returncode, first.stderr.splitlines()[1]) == (1, "accepted 1, rejected 1.")
    again = called("import", file, *at)
    assert (again.returncode, again.stderr.splitlines()[1]) == (
        1,
        "accepted 1, rejected 1; 2 of them were there already.",
    )
    file.write_bytes(file.read_bytes()[:-9])
    damaged = called("import", file, *at)
    assert (damaged.returncode, "Traceback" in damaged.stderr) == (1, False)
    assert "line 2: the file is compressed by gzip, and damaged or cut off there" in damaged.stderr


def test_an_export_that_fails_leaves_nothing(data: Path, tmp_path: Path) -> None:
    missing, folder = tmp_path / "no" / "events.ndjson", tmp_path / "folder.csv"
    folder.mkdir()
    assert_failed(embedsink("export", "-o", missing, "--data", data), "No such file or directory. Choose another")
    assert_failed(embedsink("export", "--output", folder, "--data", data), "Is a directory. Choose another place.")
    assert list(tmp_path.rglob("*")) == [folder]


def test_a_folder_is_rebuilt_and_found_healthy(data: Path, tmp_path: Path) -> None:
    before = embedsink("report", "views", "--format", "csv", "--data", data).stdout
    done = embedsink("rebuild", "--data", data)
    assert (done.returncode, done.stdout) == (0, "")
    assert "is kept as" in done.stderr
    assert (data / "damaged" / "store.duckdb").exists()
    assert embedsink("report", "views", "--format", "csv", "--data", data).stdout == before
    healthy = embedsink("doctor", "--data", data)
    assert healthy.returncode == 0
    assert "ledger_adds_up" in healthy.stdout
    assert "wrong" not in healthy.stdout


def test_without_a_snapshot_nothing_is_rebuilt_and_then_there_is_one(data: Path) -> None:
    (data / "analytics.duckdb").unlink()
    assert_failed(embedsink("rebuild", "--data", data), "analytics.duckdb: does not exist.")
    assert (data / "store.duckdb").exists()
    sick = embedsink("doctor", "--data", data)
    assert (sick.returncode, "wrong" in sick.stdout) == (1, True)
    assert embedsink("snapshot", "--data", data).returncode == 0
    assert embedsink("doctor", "--data", data).returncode == 0


def test_doctor_tells_sizes_and_names_a_damaged_snapshot_and_what_was_lost(data: Path) -> None:
    previous, note = data / "analytics.previous.duckdb", data / "damaged" / "lost-1.txt"
    sound = (data / "analytics.duckdb").read_bytes()
    previous.write_bytes(sound)
    assert "every checksum holds" in embedsink("doctor", "--data", data).stdout
    previous.write_bytes(bytes(byte ^ (place % 999 == 0) for place, byte in enumerate(sound)))
    note.parent.mkdir(exist_ok=True)
    note.write_text("store: 7 events are lost.")
    try:
        done = embedsink("doctor", "--data", data)
    finally:
        previous.unlink()
        note.unlink()
    told = " ".join(done.stdout.split())
    assert done.returncode == 1
    for words in ("analytics.previous.duckdb: is damaged", "7 events are lost", "previous snapshot", "spill files"):
        assert words in told, words


def test_doctor_names_a_damaged_segment(data: Path) -> None:
    segment = data / "journal" / "000000099999-00000000.ndjson"
    segment.write_bytes(b'{"kind":"event"}\n{"group":{"bytes":17,"crc32":"00000000"}}\n')
    try:
        done = embedsink("doctor", "--data", data)
    finally:
        segment.unlink()
    assert done.returncode == 1
    assert f"{segment.name}: its checksum does not hold after offset 0" in done.stdout


def test_doctor_names_a_wrong_dashboard_and_its_place(data: Path) -> None:
    own = data / "dashboards"
    own.mkdir()
    try:
        (own / "one.json").write_text("{")
        chart = {"id": "a", "kind": "number", "title": "A", "report": "views", "how": "sum", "column": "views"}
        section = {"id": "s", "title": "S", "charts": [chart]}
        (own / "two.json").write_text(json.dumps({"title": "T", "description": "D", "sections": [section]}))
        done = embedsink("doctor", "--data", data)
        drawn = embedsink("render", "overview", "--data", data, "-o", data / "out.svg")
    finally:
        shutil.rmtree(own)
    assert done.returncode == 1
    assert "dashboards/one.json: is not JSON" in done.stdout
    assert 'dashboards/two.json: sections[0].charts[0].column: column "views" does not exist' in done.stdout
    # What is wrong elsewhere is in no other picture's way.
    assert (drawn.returncode, drawn.stderr) == (0, "")


@pytest.mark.parametrize(
    "command", [["snapshot"], ["rebuild"], ["doctor"], ["quarantine", "replay"], ["backup", "x"]], ids=" ".join
)
def test_no_command_makes_a_folder_by_mistake(command: list[str], tmp_path: Path) -> None:
    assert_failed(embedsink(*command, "--data", tmp_path / "typo"), "typo: does not exist.")
    assert not (tmp_path / "typo").exists()


def test_a_wrong_setting_is_one_sentence(tmp_path: Path) -> None:
    done = embedsink("serve", "--data", tmp_path, EMBEDSINK_EVENTS_MAX="many")
    assert_failed(done, 'EMBEDSINK_EVENTS_MAX: "many" is not an integer, at least 1. Change or unset it.')


def test_a_misspelt_setting_is_one_sentence(tmp_path: Path) -> None:
    done = embedsink(
        "serve", "--data", tmp_path / "data", EMBEDSINK_EVENT_MAX="7", EMBEDSINK_KEY="", EMBEDSINK_DATA="x"
    )
    assert_failed(done, "EMBEDSINK_EVENT_MAX: does not exist. Did you mean EMBEDSINK_EVENTS_MAX?")
    assert not (tmp_path / "data").exists()


def test_beyond_this_machine_keys_need_encryption(tmp_path: Path) -> None:
    done = embedsink("serve", "--host", "0.0.0.0", "--data", tmp_path / "data")
    assert_failed(done, "keys would be sent unencrypted", code=2)
    assert not (tmp_path / "data").exists()


@pytest.mark.server
def test_beside_a_server_the_folder_is_its_own(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps(VIEW) + "\n")
    taken = f"is open in process {server.pid}."
    assert_failed(embedsink("serve", "--data", server.data), taken)
    assert_failed(embedsink("quarantine", "replay", "--data", server.data), taken)
    assert_failed(embedsink("rebuild", "--data", server.data), taken)
    refused = embedsink("import", file, "--data", server.data)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert_failed(refused, f"{taken} Ask that server with --url and a key, or stop it.")
    snapshot = embedsink("snapshot", "--data", server.data)
    assert snapshot.returncode == 0
    assert "publishes snapshots by itself, every 10 s." in snapshot.stderr


@pytest.mark.server
def test_through_a_server_it_imports_reports_and_replays(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps([VIEW] * 5) + "\n{oops\n")
    done = embedsink("import", file, "--url", server.url, EMBEDSINK_KEY=server.key("ingest"))
    assert (done.returncode, done.stdout) == (1, "")  # One was rejected.
    assert "accepted 5, rejected 1." in done.stderr
    at, read = ("--url", server.url), server.key("read")
    wait_until(
        lambda: "5" in embedsink("report", "views", *at, EMBEDSINK_KEY=read).stdout.split(), what="the views are seen"
    )
    assert len(embedsink("report", "views", *at, "--format", "csv", EMBEDSINK_KEY=read).stdout.splitlines()) == 2
    for name in ("views.arrow", "views.parquet", "views.json"):
        assert embedsink("report", "views", *at, "-o", tmp_path / name, EMBEDSINK_KEY=read).returncode == 0
        assert (tmp_path / name).stat().st_size > 100
    assert embedsink("report", "--all", *at, "-o", tmp_path / "all", "--bom", EMBEDSINK_KEY=read).returncode == 0
    assert (tmp_path / "all" / "views.csv").read_bytes().startswith(b"\xef\xbb\xbfperiod_start")
    described = embedsink("report", "views", "--describe", *at, EMBEDSINK_KEY=read).stdout
    assert described == embedsink("report", "views", "--describe", "--data", server.data).stdout
    wrong = embedsink("report", "views", *at, "--timezone", "Berlin", EMBEDSINK_KEY=read)
    assert_failed(wrong, 'Did you mean "Europe/Berlin"?', code=2)
    listed = embedsink("quarantine", "list", *at, EMBEDSINK_KEY=read)
    assert "not_json" in listed.stdout
    assert "rejected as of now, the newest first. What is rejected later shows about a second after" in listed.stderr
    assert f"`embedsink quarantine show ID --url {server.url}`" in listed.stderr
    replay = embedsink("quarantine", "replay", *at, EMBEDSINK_KEY=server.key("admin"))
    assert (replay.returncode, replay.stderr) == (0, "replayed 0, still rejected 1.\n")


@pytest.mark.server
def test_a_key_that_may_not_is_one_sentence(server: RunningServer) -> None:
    ingest = server.key("ingest")
    wrong = embedsink("report", "views", "--url", server.url, EMBEDSINK_KEY=ingest)
    assert_failed(wrong, "ingest keys may not send this request")
    assert ingest not in wrong.stderr
    assert_failed(embedsink("report", "nope", "--url", server.url, EMBEDSINK_KEY=server.key("read")), "nope", code=2)


@pytest.mark.server
def test_what_could_not_be_sent_is_exit_code_1(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text(json.dumps({"context": {"deployment": 2}, "events": [VIEW]}) + "\n")
    done = embedsink("import", file, "--url", server.url, EMBEDSINK_KEY=server.key("ingest", deployments=[1]))
    assert (done.returncode, done.stdout) == (1, "")
    assert "accepted 0, rejected 0; 1 could not be sent." in done.stderr
    assert "line 1: out_of_scope: deployment: 2 is outside the key's scope." in done.stderr
    file.write_text(file.read_text() * 12)
    many = embedsink("import", file, "--url", server.url, EMBEDSINK_KEY=server.key("ingest", deployments=[1]))
    assert "accepted 0, rejected 0; 12 could not be sent." in many.stderr
    assert many.stderr.splitlines()[-1] == "What could not be sent is in the file alone."
    assert "quarantine" not in many.stderr


def test_what_a_file_holds_that_is_wrong_is_said_to_be_in_quarantine(tmp_path: Path, called: Call) -> None:
    (tmp_path / "in.ndjson").write_text("{oops\n" * 12)
    done = called("import", tmp_path / "in.ndjson", "--data", tmp_path / "data")
    first, *_, more, where = done.stderr.splitlines()[1:]
    assert (first, more) == ("accepted 0, rejected 12.", "  … and 2 more.")
    assert where == f"`embedsink quarantine list --data {tmp_path}/data` shows what was rejected."


def test_a_replay_says_what_it_does_not_try(tmp_path: Path, called: Call) -> None:
    data, one = ("--data", tmp_path / "data"), VIEW | {"id": "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"}
    (tmp_path / "in.ndjson").write_text(f"{json.dumps(one)}\n{json.dumps(one | {'timestamp': 5})}\n{{oops\n")
    assert called("import", tmp_path / "in.ndjson", *data).returncode == 1
    replayed, untried = called("quarantine", "replay", *data).stderr.splitlines()
    assert replayed == "replayed 0, still rejected 1."
    assert untried.startswith("1 not tried: `id_conflict` and `out_of_scope` stay so. Send them anew")


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


def test_a_sync_result_is_recorded_and_may_be_again(server: RunningServer, result_file: Path) -> None:
    key = server.key("sync", deployments=[12])
    words = ("sync-result", result_file, "--deployment", 12, "--url", server.url)
    for _ in range(2):
        done = embedsink(*words, EMBEDSINK_KEY=key)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "job 1: recorded for deployment 12.\n")
    path = "/api/v1/deployments/12/dbt-sync/job%201/result"
    assert server.get(path, key=server.key("read")).json() == SYNC


def test_a_sync_result_may_come_from_a_pipe(server: RunningServer) -> None:
    words = [sys.executable, "-m", "embedsink", "sync-result", "-", "--deployment", "13", "--url", server.url]
    environment = os.environ | {"EMBEDSINK_KEY": server.key("admin")}
    done = subprocess.run(words, input=json.dumps(SYNC), capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "job 1: recorded for deployment 13.\n")


def test_a_sync_result_that_is_refused_says_why(
    server: RunningServer, result_file: Path, called: Call, tmp_path: Path
) -> None:
    words = ("sync-result", result_file, "--deployment", "14", "--url", server.url, "--key", server.key("sync"))
    assert called(*words).returncode == 0
    result_file.write_text(json.dumps(SYNC | {"svcCount": 5}))
    assert_failed(called(*words), 'syncJobId: "job 1" has another result in deployment 14, which stays.')
    result_file.write_text(json.dumps({"syncJobId": "job 1", "svcCount": "5"}))
    done = called(*words)
    assert_failed(done, "durationMs: is missing")
    assert 'svcCount: "5" is not an integer' in done.stderr
    result_file.write_text("{}")
    assert_failed(called(*words), "result.json: has no syncJobId.")
    result_file.write_text(json.dumps(SYNC | {"syncJobId": 5}))
    assert_failed(called(*words), "result.json: syncJobId: 5 is not text.")
    result_file.write_text("nothing")
    assert_failed(called(*words), "result.json: is not JSON")
    assert_failed(called(*words, "--job", "job 1"), "body: Expecting value")
    result_file.write_text(json.dumps(SYNC))
    assert_failed(called(*words, "--job", "other"), 'syncJobId: "job 1" is not "other", the job of the address.')
    reader = server.key("read")
    assert_failed(called(*words[:-1], reader), "read keys may not send this request. Use a key of the kind sync.")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--deployment", "x"], "deployment:"),
        (["--url", "http://engine.example.com"], "unencrypted"),
        (["--key", "nonsense"], "key: is not an embedsink key"),
        (["--job", ""], "--job: is empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_sync_result_that_is_typed_wrongly_is_wrong_use(
    words: list[str], sentence: str, result_file: Path, called: Call
) -> None:
    _, key = KeyStore(result_file.parent / "keys.json").create(KeyKind.SYNC, now=1.0)
    good = {"--deployment": "12", "--url": "http://127.0.0.1:1", "--key": key}
    options = [part for pair in (good | dict([words])).items() for part in pair]
    assert_failed(called("sync-result", result_file, *options), sentence, code=2)


def test_a_sync_result_needs_its_file_deployment_and_server(result_file: Path, called: Call) -> None:
    for words in (["nowhere.json", "--deployment", "1", "--url", "http://127.0.0.1:1"], [result_file], []):
        assert_failed(called("sync-result", *words), "", code=2)


def test_a_sync_result_waits_for_a_server_that_is_away(
    result_file: Path, called: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = KeyStore(result_file.parent / "keys.json").create(KeyKind.SYNC, now=1.0)
    monkeypatch.setattr("embedsink.cli.sync_result.PATIENCE_S", 1.0)
    words = ("--deployment", "1", "--url", f"http://127.0.0.1:{free_port()}", "--key", key)
    assert_failed(called("sync-result", result_file, *words), "does not answer")
