"""The wheel is complete: the Dockerfile's steps run in a fresh environment, outside the checkout."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT
from tests.support.servers import fetch

INSTALLED_IN_IMAGE = "/opt/embedsink"
START_SECONDS_MAX = 20
IGNORED = {".ipynb_checkpoints", "__pycache__"}

pytestmark = pytest.mark.slow


class Step(NamedTuple):
    """An instruction of the Dockerfile: its keyword and the rest of the line."""

    keyword: str
    rest: str


def read_stages() -> list[list[Step]]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    stages: list[list[Step]] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        step = Step(*line.split(maxsplit=1))
        if step.keyword == "FROM":
            stages.append([])
        stages[-1].append(step)
    return stages


def exec_form(keyword: str) -> list[str]:
    """Return the arguments of the image's CMD or HEALTHCHECK."""
    rest = next(step.rest for step in read_stages()[-1] if step.keyword == keyword)
    words: list[str] = json.loads(rest[rest.index("[") :])
    return words


def copy(rest: str, into: Path) -> None:
    *sources, target = rest.split()
    for source in sources:
        if (ROOT / source).is_dir():
            ignore = shutil.ignore_patterns(*IGNORED)
            shutil.copytree(ROOT / source, into / target, ignore=ignore)
        else:
            shutil.copy(ROOT / source, into / target)


def run(command: str, build: Path) -> None:
    # Here, "python" is the interpreter of these tests; in Docker, it is that of the base image.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # The bytecode of all packages takes 20 s, and no test needs it.
    environment = os.environ | {"PATH": path, "PIP_NO_COMPILE": "1"}
    result = subprocess.run(["sh", "-c", command], cwd=build, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an environment by the COPY and RUN steps of the Dockerfile's first stage."""
    build = tmp_path_factory.mktemp("build")
    environment = tmp_path_factory.mktemp("installed") / "embedsink"
    for keyword, rest in read_stages()[0]:
        if keyword == "COPY":
            copy(rest, into=build)
        elif keyword == "RUN":
            command = rest.replace(INSTALLED_IN_IMAGE, str(environment))
            run(command, build=build)
    return environment


@pytest.fixture
def outside(tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder outside the checkout, with the installed environment first in PATH, as in the image."""
    monkeypatch.setenv("PATH", f"{installed / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def server(outside: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the image's CMD on a loopback port, with a temporary data folder."""
    here = {"/data": str(outside / "data"), "0.0.0.0": "127.0.0.1", "8321": str(port)}
    with subprocess.Popen([here.get(word, word) for word in exec_form("CMD")]) as running:
        yield running
        running.kill()


def is_healthy(port: int) -> bool:
    """Return whether the image's HEALTHCHECK passes."""
    check = [word.replace("8321", str(port)) for word in exec_form("HEALTHCHECK")]
    # The check must ignore proxy variables.
    proxied = os.environ | {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": ""}
    return subprocess.run(check, capture_output=True, env=proxied).returncode == 0


def files_below(folder: Path) -> dict[str, bytes]:
    below = {file.relative_to(folder): file for file in folder.rglob("*") if file.is_file()}
    return {str(name): file.read_bytes() for name, file in below.items() if not IGNORED.intersection(name.parts)}


def test_dockerignore_includes_every_copied_file() -> None:
    included = (ROOT / ".dockerignore").read_text().splitlines()
    for keyword, rest in read_stages()[0]:
        if keyword == "COPY":
            assert {f"!{source}" for source in rest.split()[:-1]} <= set(included)


def test_both_stages_use_the_same_tag_and_digest() -> None:
    bases = {stage[0].rest.removesuffix(" AS build") for stage in read_stages()}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", bases.pop())


def test_the_installed_command_shows_its_help(outside: Path) -> None:
    result = subprocess.run(["embedsink", "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "serve" in result.stdout


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("sql", "sql"),
        ("dashboards/definitions", "dashboards"),
        ("browser", "src/embedsink/browser"),
        ("demo/pages", "src/embedsink/demo/pages"),
        ("http/pages/templates", "src/embedsink/http/pages/templates"),
        ("http/pages/static", "src/embedsink/http/pages/static"),
    ],
)
def test_installed_data_files_equal_those_of_the_checkout(outside: Path, folder: str, source: str) -> None:
    where = ["python", "-c", "import embedsink; print(embedsink.__path__[0])"]
    package = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    assert not package.is_relative_to(ROOT)
    assert files_below(package / folder) == files_below(ROOT / source) != {}


def test_the_image_has_no_development_tools(installed: Path) -> None:
    programs = {program.name for program in (installed / "bin").iterdir()}
    assert "embedsink" in programs
    assert programs.isdisjoint({"pip", "pytest", "ruff", "mypy", "uv", "hatchling"})


def test_the_installed_server_answers_and_stops_on_sigterm(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not is_healthy(port):
        assert server.poll() is None, f"the server ended with exit code {server.returncode}"
        assert time.monotonic() < deadline, f"not healthy after {START_SECONDS_MAX} s"
    # Behind a proxy, the pages show HTTPS addresses.
    assert f"https://127.0.0.1:{port}/api/v1/events".encode() in fetch(f"http://127.0.0.1:{port}/docs/sending").body
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=15) == 0
    assert not is_healthy(port)
