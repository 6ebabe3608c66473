"""Whole copies of a database file: the snapshot that notebooks open, and the store that begins from it."""

import subprocess
import sys
from pathlib import Path

from embedsink import copying
from embedsink.segment import sync_folder

COPY_TIMEOUT_S = 600


def replace_by_copy(target: Path, source: Path) -> float:
    """Replace a database file by a durable copy of another, at one stroke. Who has the old one open keeps it.

    The copy is made by a child process: see `embedsink.copying`.

    Returns:
        The seconds that the disk was busy with it, without those in which the child process started.

    Raises:
        OSError: there was no room, or the disk failed. The target is untouched.
    """
    new = target.with_name(target.name + ".new")
    # Should a killed server's child still write to it, that one goes on in a file without a name.
    new.unlink(missing_ok=True)
    command = [sys.executable, "-I", "-S", copying.__file__, str(source), str(new)]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=COPY_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        new.unlink(missing_ok=True)
        raise OSError(f"copying {source.name} took more than {COPY_TIMEOUT_S} s") from None
    if child.returncode != 0:
        new.unlink(missing_ok=True)
        raise OSError(f"copying {source.name}: {(child.stderr.strip().splitlines() or ['killed'])[-1]}")
    new.rename(target)
    sync_folder(target.parent)
    return float(child.stdout)
