"""The documentation is complete.

An undocumented setting, reason, path, report, command, metric or decision fails a test.

It is also correct: every link has a target, and the server accepts the body in README. The other tests of this
folder run the commands.
"""

import ast
import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from embedsink.browser.modules import browser_files
from embedsink.cli.app import app
from embedsink.data_folder import DataFolder
from embedsink.engine import Engine, now_ms
from embedsink.http.metrics import metrics_text
from embedsink.http.resources import describe_api
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.reports.catalog import report_names
from embedsink.settings import Settings
from tests.support.paths import ROOT

SOURCE = ROOT / "src/embedsink"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SETTING = re.compile(r"^\| `EMBEDSINK_(?P<name>[A-Z_]+)` \| (?P<default>[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE)
COMMAND = re.compile(r"`embedsink ((?:keys |quarantine )?[a-z][a-z-]*)")
LINK = re.compile(r"\[[^]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)|(?:src)=\"(?!https?:|/)([^\"#]+)\"")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def shown(default: object) -> str:
    """Return a default as docs/configuration.md shows it."""
    if default is None:
        return "none"
    if isinstance(default, int):
        return f"{default:,}"
    return f"{default:g}" if isinstance(default, float) else f"`{default}`"


def commands() -> set[str]:
    """Return every command, without the program's name."""
    waiting: list[tuple[str, Any]] = [("", typer.main.get_command(app))]
    commands_found = set()
    while waiting:
        path, command = waiting.pop()
        children = getattr(command, "commands", {})
        waiting += [(f"{path} {name}".strip(), child) for name, child in children.items()]
        if not children:
            commands_found.add(path)
    return commands_found


def headings(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    lines = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_configuration_lists_every_setting_once_with_its_default_and_meaning() -> None:
    rows = SETTING.finditer(page("docs/configuration.md"))
    listed = [(row["name"], row["default"], row["meaning"]) for row in rows]
    assert sorted(listed) == sorted(
        (name.upper(), shown(field.default), str(field.description)) for name, field in Settings.model_fields.items()
    )


def logged(path: Path) -> Iterator[tuple[str, str]]:
    """Return the log events of a module with their levels, from its calls of `log`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(ast.Name("log"), "log"), args=[ast.IfExp() as level, ast.IfExp() as event]
            ):
                for which in ("body", "orelse"):
                    yield getattr(event, which).value, getattr(level, which).attr.lower()
            case ast.Call(func=ast.Attribute(ast.Name("log"), level), args=[ast.Constant(str(event)), *_]):
                yield event, level
            case ast.Call(func=ast.Attribute(ast.Name("log"), how)) if hasattr(logging.Logger, how):
                raise AssertionError(f"{path.name}:{node.lineno}: name the event and its level where they are logged")


def test_operations_lists_every_event_of_the_log_with_its_level() -> None:
    written = {event for path in SOURCE.glob("**/*.py") for event in logged(path)}
    [section] = re.findall(r"^## Logs$(.*?)^## ", page("docs/operations.md"), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`[^|]+`) \| (\w+) \| \S", section, re.MULTILINE)
    listed = [(event, level) for events, level in rows for event in re.findall(r"`(\w+)`", events)]
    assert sorted(listed) == sorted(written)


@pytest.mark.parametrize("reason", [str(reason) for reason in Reason])
def test_the_wire_contract_names_every_reason(reason: str) -> None:
    assert f"`{reason}`" in page("docs/wire.md")


PATHS = [
    path
    for path in describe_api(Settings()).document["paths"]
    if path != "/" and not path.startswith(("/dashboards", "/docs", "/pages"))
]


@pytest.mark.parametrize("path", PATHS)
def test_a_page_names_the_path_of_every_operation(path: str) -> None:
    with_values = r"[^/`\s]+".join(re.escape(part) for part in re.split(r"\{\w+\}", path))
    documented = re.compile(rf"(?<![\w/]){with_values}(?![\w/])")
    pages = [
        page
        for page in PAGES
        if page.parent.name != "decisions" and page.name not in ("CHANGELOG.md", "CONTRIBUTING.md")
    ]
    assert any(documented.search(page.read_text(encoding="utf-8")) for page in pages)


@pytest.mark.parametrize("report", report_names())
def test_every_report_has_a_section(report: str) -> None:
    assert f"### `{report}`" in page("docs/reports.md")


def test_querying_lists_every_report_once() -> None:
    [section] = re.findall(r"^## Reports$(.*?)^## ", page("docs/querying.md"), re.MULTILINE | re.DOTALL)
    table = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(table) == sorted(report_names())


def test_commands_lists_every_command_once() -> None:
    table = re.findall(r"^\| `embedsink ([a-z][a-z -]*)` \|", page("docs/commands.md"), re.MULTILINE)
    assert sorted(table) == sorted(commands())


@pytest.mark.parametrize("name", [path.name for path in PAGES])
def test_no_page_names_an_unknown_command(name: str) -> None:
    text = next(path for path in PAGES if path.name == name).read_text(encoding="utf-8")
    known = commands()
    spoken = set(COMMAND.findall(text))
    assert spoken <= known | {command.split()[0] for command in known}


def test_operations_explains_every_metric(tmp_path: Path) -> None:
    async def show() -> bytes:
        async with Engine(DataFolder(tmp_path), Settings()) as engine:
            return metrics_text(engine)

    names = re.findall(r"^# HELP (\S+)", asyncio.run(show()).decode(), re.MULTILINE)
    missing = [name for name in names if f"`{name}" not in page("docs/operations.md")]
    assert names
    assert not missing


def test_contributing_lists_every_decision() -> None:
    decisions = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/decisions/*.md")}
    assert decisions == set(re.findall(r"\((docs/decisions/[^)]+\.md)\)", page("CONTRIBUTING.md")))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for target, anchor, image in LINK.findall(path.read_text(encoding="utf-8")):
        file = path if not (target or image) else path.parent / (target or image)
        assert file.exists(), f"{path.name}: {target or image}"
        if anchor:
            assert anchor in headings(file.read_text(encoding="utf-8")), f"{path.name}: #{anchor}"


def test_the_body_in_readme_is_accepted() -> None:
    [argument] = re.findall(r"-d '(.*?)'\n", page("README.md"), re.DOTALL)
    body = argument.replace("'$NOW'", "1795230000000")
    parsed = parse(body.encode(), now_ms())
    assert len(parsed.accepted) == 1
    assert not parsed.rejected


def test_readme_installs_pinned_versions_and_ignores_them_in_git() -> None:
    [environment] = re.findall(r"^python3 -m venv (\S+)", page("README.md"), re.MULTILINE)
    assert f"/{environment}/" in page(".gitignore").splitlines()
    assert re.findall(r"^pip install ([^#\n]*[^#\s])", page("README.md"), re.MULTILINE) == [
        "--require-hashes -r constraints-runtime.txt",
        "--no-deps .",
    ]


@pytest.mark.parametrize("name", ["README.md", "docs/benchmarks.md", "docs/comparison.md"])
def test_pages_name_the_size_of_the_browser_modules(name: str) -> None:
    for module in ("forwarder", "actions"):
        size = len(browser_files()[f"{module}.js"].compressed)
        sizes = re.findall(rf"`{module}\.js`[^\n]*?(?<!≤) (\d[\d,]*) bytes", page(name))
        assert sizes or (name, module) == ("docs/benchmarks.md", "actions")
        # The result of gzip differs by a few bytes between versions of zlib.
        assert all(abs(int(number.replace(",", "")) - size) <= 20 for number in sizes)


def test_pictures_of_the_demo_exist_and_are_small() -> None:
    for picture in ("docs/demo-light.png", "docs/demo-dark.png"):
        assert picture in page("README.md")
        assert 50_000 < (ROOT / picture).stat().st_size <= 200_000, f"{picture}: run scripts/pictures"
