"""The served modules are small, and they are the output of scripts/build-browser."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from embedsink.browser.modules import MODULES, VERSIONS, browser_files, vendor_files
from tests.browser.stage import INLINE_SCRIPT
from tests.support.paths import ROOT

COMPILER_OPTIONS = {
    "strict": True,
    "noEmit": True,
    "target": "es2022",
    "module": "nodenext",
    "moduleResolution": "nodenext",
    "lib": ["es2022", "dom"],
    "types": [],
}
BYTES_MAX = {"forwarder": 3_000, "actions": 1_000}
EXPORTED = {"forwarder": {"forward"}, "actions": {"send", "embedUrl"}}


def test_the_served_files_are_a_build_of_their_sources(package: Path) -> None:
    served = package / "served"
    built = {path.relative_to(served).as_posix(): path.read_bytes() for path in served.rglob("*.*")}
    files = [*browser_files().values(), *vendor_files().values()]
    assert {file.name: file.content for file in files} == built, "run scripts/build-browser"


@pytest.mark.parametrize("module", MODULES)
def test_served_modules_remain_available_for_pages_that_pin_them(module: str) -> None:
    file = browser_files()[f"{module}.js"]
    assert (VERSIONS / file.versioned_name).read_bytes() == file.content, "run scripts/build-browser"


@pytest.mark.parametrize("module", MODULES)
def test_a_served_module_is_small(module: str) -> None:
    assert len(browser_files()[f"{module}.js"].compressed) <= BYTES_MAX[module]


@pytest.mark.parametrize("module", MODULES)
def test_the_documented_hash_is_that_of_the_served_module(module: str) -> None:
    file = browser_files()[f"{module}.js"]
    page = (ROOT / "docs" / "browser.md").read_text(encoding="utf-8")
    assert f"`{file.versioned_name}`" in page, "run scripts/build-browser, which prints the hashes"
    assert f"`{file.integrity}`" in page


@pytest.mark.parametrize("module", MODULES)
def test_the_documented_size_is_that_of_the_served_module(module: str) -> None:
    size = len(browser_files()[f"{module}.js"].compressed)
    sizes = re.findall(
        rf"`{module}\.js`[^\n]*?(?<!≤) (\d[\d,]*) bytes", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    assert sizes
    # Compression libraries differ by a few bytes.
    assert all(abs(int(number.replace(",", "")) - size) <= 20 for number in sizes)


@pytest.mark.parametrize("module", MODULES)
def test_each_module_exports_only_its_functions_and_declares_their_types(module: str) -> None:
    [exported] = re.findall(r"export\{([^}]*)\};", browser_files()[f"{module}.js"].content.decode())
    types = browser_files()[f"{module}.d.ts"].content.decode()
    assert set(re.findall(r"\w+ as (\w+)", exported)) == EXPORTED[module]
    assert set(re.findall(r"^export declare const (\w+)", types, re.MULTILINE)) == EXPORTED[module]


def test_the_documented_code_compiles_with_the_types(package: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "browser.md").read_text(encoding="utf-8")
    snippets = re.findall(r"^```js\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(snippets) >= 3
    for number, snippet in enumerate(snippets):
        (tmp_path / f"snippet{number}.mts").write_text(f"{snippet}\nexport {{}};\n", encoding="utf-8")
    for module in MODULES:
        types = browser_files()[f"{module}.d.ts"].content
        (tmp_path / f"{module}.d.ts").write_bytes(types)
    options = COMPILER_OPTIONS | {
        "paths": {f"https://events.example.com/{module}.js": [f"./{module}.d.ts"] for module in MODULES}
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options}), encoding="utf-8")
    compiled = subprocess.run([package / "node_modules/.bin/tsc", "-p", tmp_path], capture_output=True, text=True)
    assert (compiled.returncode, compiled.stdout) == (0, "")


def test_a_new_key_for_a_page_is_printed_with_the_documented_elements(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "embedsink", "keys", "create", "--kind", "ingest", "--data", str(tmp_path)]
    page = ["--origin", "https://app.example.com"]
    result = subprocess.run([*command, *page], capture_output=True, text=True, check=True)
    assert '<script type="module" src="https://YOUR-SERVER/forwarder.js" data-key="THE-KEY-ON-STDOUT" ' in result.stderr
    assert INLINE_SCRIPT.startswith("<script>embedsink=[]")
    assert INLINE_SCRIPT in result.stderr.splitlines()
    assert re.fullmatch(r"es_ingest_\w+\n", result.stdout)
    assert result.stdout.strip() not in result.stderr, "stderr may end up in a log"
    elsewhere = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "script" not in elsewhere.stderr


@pytest.mark.parametrize("is_stderr_terminal", [True, False])
def test_in_a_terminal_the_element_contains_the_new_key(tmp_path: Path, is_stderr_terminal: bool) -> None:
    command = [sys.executable, "-m", "embedsink", "keys", "create", "--kind", "ingest", "--data", str(tmp_path)]
    terminal, inside = pty.openpty()
    result = subprocess.run(
        [*command, "--origin", "https://app.example.com"],
        stdout=inside,
        stderr=inside if is_stderr_terminal else subprocess.PIPE,
        text=True,
        check=True,
    )
    os.close(inside)
    *_, key = lines = os.read(terminal, 4_000).decode().split()
    os.close(terminal)
    assert re.fullmatch(r"es_ingest_\w+", key)
    assert (f'data-key="{key}"' in lines) == is_stderr_terminal
    assert is_stderr_terminal or key not in result.stderr  # A redirected stderr may be a log.
