"""The npm package in packages/browser, built once for each run of the tests in a folder outside the checkout."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.programs import require

SOURCE = ROOT / "packages" / "browser"
INSTALL = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]


def built_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package with its compilers, its `dist`, and the served modules in `served`.

    The first caller builds it. The processes of pytest-xdist share it.
    """
    require("npm")
    base = tmp_path_factory.getbasetemp()
    run = base.parent if base.name.startswith("popen-") else base
    package, built = run / "browser-package", run / "browser-package.built"
    with (run / "browser-package.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("node_modules", "dist"), dirs_exist_ok=True)
            installed = subprocess.run(INSTALL, cwd=package, capture_output=True, text=True)
            if installed.returncode != 0:
                pytest.skip(f"npm ci failed: {installed.stderr[-500:]}")
            build(package)
            built.touch()
    return package


def build(package: Path) -> None:
    """Compile a copy of the package that has its compilers."""
    served = package / "served"
    served.mkdir(exist_ok=True)
    command = ["npm", "run", "build", "--", str(served)]
    result = subprocess.run(command, cwd=package, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
