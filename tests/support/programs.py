"""Programs that a test needs and Python does not provide."""

import shutil

import pytest


def require(program: str) -> None:
    """Skip the test if the program is missing."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
