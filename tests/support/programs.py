"""Programs that a test needs and Python does not provide."""

import os
import shutil

import pytest


def require(program: str) -> None:
    """If the program is missing, fail in CI and skip the test elsewhere."""
    if shutil.which(program) is None:
        if "CI" in os.environ:
            pytest.fail(f"CI has to have {program}")
        pytest.skip(f"{program} is not installed")
