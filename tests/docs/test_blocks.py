"""Every block of the documentation has a test: it is run, or it is named here with its other test."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from bench.__main__ import app as bench_app

from embedsink.cli.app import app
from tests.docs.blocks import blocks, inline
from tests.support.paths import ROOT

RUN = {"sh", "python", "sql", "html", "js"}  # run by the other test files of this folder
HELD_ELSEWHERE = {
    "json": "docs/test_wire, docs/test_shell and dashboards/test_files send, parse or load them",
    "ndjson": "docs/test_wire sends them",
    "http": "messages of docs/wire.md: http/api/test_dbt_syncs, test_deployments, test_live; http/test_problems, scim",
    "yaml": "test_shell checks it with promtool",
    "ts": "browser/test_package compiles them",
    "toml": "auth/test_identity reads it",
    "nginx": "browser/test_proxy runs nginx with them",
    "ini": "running it needs systemd; its command is checked here",
    "": "a header of a policy: browser/test_pages loads a page with it",
}
# Redirections, and the end of a background command or a command substitution.
REDIRECTION = re.compile(r"\s\d?[<>](&\d|\s*\S+)|[&)]\s*$")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command and its subcommands by their words, the deepest first."""
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))
    yield path, command


COMMANDS = list(commands(typer.main.get_command(app)))


def shell_lines(text: str) -> Iterator[str]:
    """Return the commands of a block, with continued lines joined and without comments."""
    for line in text.replace("\\\n", " ").replace("docker exec embedsink ", "").splitlines():
        if not line.startswith("docker "):
            yield from re.split(r"&&|\|\||;|\||\$\(", line.partition(" #")[0])


def typed() -> list[tuple[str, str]]:
    """Return every `embedsink …` in the documentation or in the help of a command, each with its source."""
    commands = [(block.page, line) for block in blocks("sh", "ini") for line in shell_lines(block.text)]
    commands += inline("embedsink ")
    commands += [("--help", line) for _, command in COMMANDS for line in (command.epilog or "").splitlines()]
    pattern = re.compile(r"(?:^|[ /=])embedsink ((?:[a-z-]|--).*)")
    return [(page, match[1]) for page, line in commands if (match := pattern.search(line))]


def mistake_in(line: str) -> str | None:
    """Return the unknown command or option of a command line."""
    words = shlex.split(REDIRECTION.sub("", line))
    for path, command in COMMANDS:
        if tuple(words[: len(path)]) == path:
            parser = command.make_parser(typer.Context(command))
            try:
                _, extra, _ = parser.parse_args(words[len(path) :])
            except Exception as error:  # noqa: BLE001  typer has no public name for this class of click
                # Within a sentence, `embedsink import --url` is the name of an option.
                return None if str(error) == f"Option '{words[-1]}' requires an argument." else str(error)
            return f"no argument {extra[0]}" if extra else None
    return "no such command"


def test_every_language_is_run_or_tested_elsewhere() -> None:
    assert {block.language for block in blocks()} == RUN | set(HELD_ELSEWHERE)


def test_every_documented_command_exists_with_its_options() -> None:
    lines = typed()
    assert len(lines) > 60
    mistakes = [f"{page}: embedsink {line}: {mistake}" for page, line in lines if (mistake := mistake_in(line))]
    assert mistakes == []


@pytest.mark.parametrize(
    "line", ["reprot views", "report views --sicne 7d", "keys make", "export -x", "export FILE", "report -o --all 1 2"]
)
def test_an_unknown_command_is_detected(line: str) -> None:
    assert mistake_in(line)


def test_every_documented_script_exists() -> None:
    texts = [block.text for block in blocks("sh", "python")] + [code for _, code in inline("scripts/")]
    names = {name for text in texts for name in re.findall(r"\bscripts/([\w-]+)", text)}
    assert names >= {"test", "check", "bench", "demo"}
    assert [name for name in names if not (ROOT / "scripts" / name).is_file()] == []


def test_every_documented_benchmark_exists() -> None:
    known = typer.main.get_command(bench_app).commands  # type: ignore[attr-defined]
    named = {words.split()[1] for _, words in inline("scripts/bench ")}
    assert named
    assert named <= set(known)
