"""Small disks that a test can fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(path: Path, *, mebibytes: int) -> Iterator[Path]:
    """Mount an empty disk of this size at `path`. Without root, skip the test."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
