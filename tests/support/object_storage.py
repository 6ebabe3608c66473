"""A server of object storage (S3) on this machine: rclone, which serves a folder."""

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers import free_port, wait_until

ACCESS_KEY, SECRET_KEY = "an-access-key", "a-secret-key"


@contextmanager
def object_storage(folder: Path) -> Iterator[dict[str, str]]:
    """Serve a folder with buckets. Yield the environment variables of a client. Without rclone, skip the test."""
    program = Path(sys.executable).parent / "rclone"
    if not program.exists():
        pytest.skip("rclone is not installed")
    address = f"127.0.0.1:{free_port()}"
    command = [str(program), "serve", "s3", str(folder), "--addr", address, "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
    # Tests also change the folder. With 0, rclone's timers use all of a processor.
    options = ["--dir-cache-time", "1ms", "--config", str(folder.parent / "rclone.conf")]
    options += ["--cache-dir", str(folder.parent / "cache")]
    with (folder.parent / "rclone.log").open("wb") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(f"http://{address}/"), description="the object storage answers")
        yield {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ENDPOINT_URL": f"http://{address}",
        }
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True
