"""The pinned packages: complete, equal in all files, and without an index or a path."""

import re
import tomllib

import pytest

from tests.support.paths import ROOT

PARTS = ["constraints-runtime.txt", "constraints-build.txt"]
FILES = ["constraints.txt", *PARTS]
PIN = re.compile(
    r"""^(?P<name>[a-z0-9-]+)(?:\[[a-z,]+\])?==(?P<version>\S+)
        (?:\ ;\ [^\\]+)?            # markers for Python versions and platforms
        \ \\\n(?P<hashes>(?:\ +--hash=.+\n)+)""",
    re.MULTILINE | re.VERBOSE,
)
SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def pins(file: str) -> dict[tuple[str, str], set[str]]:
    """Return the hashes of each (name, version)."""
    matches = PIN.finditer((ROOT / file).read_text())
    return {(pin["name"], pin["version"]): set(SHA256.findall(pin["hashes"])) for pin in matches}


def required_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in requirements}


@pytest.mark.parametrize("file", FILES)
def test_every_pin_has_hashes(file: str) -> None:
    lines = (ROOT / file).read_text().splitlines()
    named = {line.split("==")[0].partition("[")[0] for line in lines if line and line[0] not in " #"}
    assert named == {name for name, _ in pins(file)}
    assert all(pins(file).values())


@pytest.mark.parametrize("file", FILES)
def test_no_file_has_an_index_or_a_path(file: str) -> None:
    text = (ROOT / file).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


@pytest.mark.parametrize("file", PARTS)
def test_shipped_packages_are_exactly_the_tested_ones(file: str) -> None:
    everything = pins("constraints.txt")
    for pin, hashes in pins(file).items():
        assert everything[pin] == hashes


def test_every_dependency_is_pinned() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    runtime = {name for name, _ in pins("constraints-runtime.txt")}
    assert required_names(project["dependencies"]) <= runtime
    everything = {name for name, _ in pins("constraints.txt")}
    for extra in ("dev", "notebook", "archive"):
        assert required_names(project["optional-dependencies"][extra]) <= everything
    build = {name for name, _ in pins("constraints-build.txt")}
    assert required_names([*pyproject["dependency-groups"]["build"], *pyproject["build-system"]["requires"]]) <= build


def test_the_server_does_not_need_notebook_packages() -> None:
    runtime = {name for name, _ in pins("constraints-runtime.txt")}
    assert runtime.isdisjoint({"altair", "ipykernel", "jupyter-client", "narwhals", "jsonschema", "ipython"})


def test_the_shipped_duckdb_is_1_5_5() -> None:
    assert ("duckdb", "1.5.5") in pins("constraints-runtime.txt")
