"""Programs that a test needs and Python does not bring."""

import os
import shutil

import pytest


def require(program: str) -> None:
    """Not there: a failure in CI, and a skip elsewhere."""
    if shutil.which(program) is None:
        if "CI" in os.environ:
            pytest.fail(f"CI has to have {program}")
        pytest.skip(f"{program} is not installed")
