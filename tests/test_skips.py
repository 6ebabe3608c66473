"""Tests that can't run: CI lets them fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPED = """
import pytest

@pytest.mark.skipif(True, reason="no root")
def test_marked():
    pass

def test_called():
    pytest.skip("no mount")
"""
SKIPPED_FILE = """
import pytest

pytest.skip("no browser", allow_module_level=True)
"""


@pytest.mark.parametrize(
    ("source", "exit_code", "reasons"), [(SKIPPED, 1, ("no root", "no mount")), (SKIPPED_FILE, 2, ("no browser",))]
)
def test_a_test_that_cannot_run_fails_in_ci(
    source: str, exit_code: int, reasons: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "test_skipped.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", str(tmp_path)]
    environment = os.environ | {"CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # Plugins take seconds to load.
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == exit_code
    for reason in reasons:
        assert f"A test that CI can't run: Skipped: {reason}" in result.stdout
