"""Programs that a test needs and Python does not provide."""

import os
import shutil

import pytest


def require(program: str) -> None:
    """Fail in CI if the program is missing, else skip the test."""
    if shutil.which(program) is None:
        if "CI" in os.environ:
            pytest.fail(f"CI has to have {program}")
        pytest.skip(f"{program} is not installed")
