"""The pinned packages: complete, the same in all files, and free of where they came from."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ["constraints-runtime.txt", "constraints-build.txt"]
FILES = ["constraints.txt", *PARTS]
PIN = re.compile(
    r"""^(?P<name>[a-z0-9-]+)==(?P<version>\S+)
        (?:\ ;\ [^\\]+)?            # for which Pythons and platforms
        \ \\\n(?P<hashes>(?:\ +--hash=.+\n)+)""",
    re.MULTILINE | re.VERBOSE,
)
SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def pins(file: str) -> dict[tuple[str, str], set[str]]:
    """The hashes of each (name, version)."""
    found = PIN.finditer((ROOT / file).read_text())
    return {(pin["name"], pin["version"]): set(SHA256.findall(pin["hashes"])) for pin in found}


def required_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in requirements}


@pytest.mark.parametrize("file", FILES)
def test_every_pin_has_hashes(file: str) -> None:
    lines = (ROOT / file).read_text().splitlines()
    named = {line.split("==")[0] for line in lines if line and line[0] not in " #"}
    assert named == {name for name, _ in pins(file)}
    assert all(pins(file).values())


@pytest.mark.parametrize("file", FILES)
def test_no_index_and_no_path_is_named(file: str) -> None:
    text = (ROOT / file).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


@pytest.mark.parametrize("file", PARTS)
def test_what_is_shipped_is_made_of_exactly_the_packages_that_were_tested(file: str) -> None:
    everything = pins("constraints.txt")
    for pin, hashes in pins(file).items():
        assert everything[pin] == hashes


def test_every_dependency_is_pinned() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    runtime = {name for name, _ in pins("constraints-runtime.txt")}
    assert required_names(project["dependencies"]) <= runtime
    everything = {name for name, _ in pins("constraints.txt")}
    for extra in ("dev", "notebook"):
        assert required_names(project["optional-dependencies"][extra]) <= everything
    build = {name for name, _ in pins("constraints-build.txt")}
    assert required_names([*pyproject["dependency-groups"]["build"], *pyproject["build-system"]["requires"]]) <= build


def test_a_server_needs_nothing_of_the_notebook() -> None:
    runtime = {name for name, _ in pins("constraints-runtime.txt")}
    assert runtime.isdisjoint({"altair", "ipykernel", "jupyter-client", "narwhals", "jsonschema", "ipython"})


def test_the_duckdb_that_ships_is_1_5_5() -> None:
    assert ("duckdb", "1.5.5") in pins("constraints-runtime.txt")
