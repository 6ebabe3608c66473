"""The shell blocks of each page run, in their order and in one shell, as an operator types them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks
from tests.docs.conftest import Documented
from tests.support.paths import ROOT
from tests.support.programs import require
from tests.support.servers import free_port

pytestmark = [pytest.mark.server, pytest.mark.slow]

# Blocks that can't be run here: their page, their beginning, and the reason. `test_blocks.py` checks their commands.
NOT_RUN = {
    ("README.md", "scripts/demo"): "the demo runs until Ctrl-C, and these tests are what scripts/test runs",
    ("docs/deployment.md", "docker build"): "no registry can be reached; test_wheel runs the steps of the Dockerfile",
    ("docs/operations.md", "docker run"): "no registry can be reached; its commands are those of other blocks",
    ("CONTRIBUTING.md", "scripts/demo"): "the scripts themselves",
}
# Documented commands, and their replacements here: another port, a condition instead of a pause.
INSTEAD = {
    "python3 -m venv env && . env/bin/activate\n": "",  # test_wheel installs the pinned packages
    "pip install --require-hashes -r constraints-runtime.txt   # the versions that embedsink is tested with\n": "",
    "pip install --no-deps .\n": "",
    "embedsink serve 2> serve.log": "embedsink serve --port $PORT 2> serve.log",
    "sleep 2\n": 'curl -sSo it "$SERVED/api/v1/inspect?since=1h&wait=30" -H "Authorization: Bearer $READ_KEY"\n',
    "embedsink serve 2>&1": "timeout --foreground 4 embedsink serve --port $PORT 2>&1",
    "000000000017-0f3a9c21": "000000000001-0f3a9c21",  # Otherwise, the segments before this one would be missing.
    "/mnt/backup": "mounted",
    "/var/lib/embedsink": "data",
    "rsync -a mounted/blocks offsite:/backup/ && rsync -a mounted/generations offsite:/backup/": (
        "mkdir offsite; cp -r mounted/blocks mounted/generations offsite; embedsink restore offsite --data from-offsite"
    ),
    'curl -N "': '! timeout 4 curl -sN "',  # a stream has no end
}
# The expected stdout of a page's commands.
SHOWN = {
    "README.md": [r'^\{"accepted":1,"rejected":\[\]\}$', r"^period_start,", r",dashboard,1,"],
    "docs/inspector.md": [r'"isComplete":true,"acceptedCount":3', r"^event: recent$", r"^ *event +view +1$"],
    "docs/operations.md": [r"SUCCESS: \d+ rules found"],
}
TOLD_TO_RUN = sorted({block.page for block in blocks("sh")})


def is_run(block: Block) -> bool:
    return not any(block.page == page and block.text.startswith(beginning) for page, beginning in NOT_RUN)


def script_of(page: str, documented: Documented, instead: Mapping[str, str]) -> str:
    """Return the blocks of a page as one script, which ends at the first failing command."""
    texts = [block.text for block in blocks("sh") if block.page == page and is_run(block)]
    script = "\n".join(texts)
    for typed, run in instead.items():
        script = script.replace(typed, run)
    if "$PORT" in script:  # A page that starts a server uses that server.
        script = script.replace("http://127.0.0.1:8321", "$SERVED")
        script = re.sub(r"'(\$SERVED[^']*)'", r'"\1"', script)
    return f"set -eum\n{documented.at(script)}\njobs -p | xargs -r kill\nwait\n"


def prepare(folder: Path, documented: Documented) -> None:
    """Create the files of an operator who follows the pages: a checkout, a data folder and a damaged segment."""
    documented.copy_to(folder)
    (folder / "ops").symlink_to(ROOT / "ops")
    (folder / "elsewhere").mkdir()
    [segment, *_] = sorted((folder / "data" / "journal").glob("*.ndjson"))
    shutil.copy(segment, folder / "data" / "damaged" / "000000000001-0f3a9c21.ndjson")


def run(script: str, folder: Path, documented: Documented) -> "subprocess.CompletedProcess[str]":
    port = free_port()
    environment = os.environ | documented.environment()
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PORT": str(port),
        "SERVED": f"http://127.0.0.1:{port}",
        "EMBEDSINK_SNAPSHOT_INTERVAL_S": "0.1",
        "EMBEDSINK_KEYS_RELOAD_S": "0.05",
    }
    command = ["bash", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("page", [page for page in TOLD_TO_RUN if page != "CONTRIBUTING.md"])
def test_the_shell_commands_of_a_page_run(page: str, documented: Documented, tmp_path: Path) -> None:
    for program in ("bash", "curl", "jq", "npm", "promtool"):
        require(program)
    if page != "README.md":  # README.md creates it.
        prepare(tmp_path, documented)
    result = run(script_of(page, documented, INSTEAD), tmp_path, documented)
    assert result.returncode == 0, result.stdout + result.stderr
    for pattern in SHOWN.get(page, []):
        assert re.search(pattern, result.stdout, re.MULTILINE), f"{pattern}\n{result.stdout}\n{result.stderr}"


def test_a_command_that_fails_fails_its_page(documented: Documented, tmp_path: Path) -> None:
    prepare(tmp_path, documented)
    broken = INSTEAD | {"embedsink render overview": "embedsink render overveiw"}
    assert run(script_of("docs/pictures.md", documented, broken), tmp_path, documented).returncode != 0


def test_every_exception_is_still_needed() -> None:
    texts = [(block.page, block.text) for block in blocks("sh")]
    for page, beginning in NOT_RUN:
        assert [text for other, text in texts if other == page and text.startswith(beginning)], (page, beginning)
    script = "\n".join(block.text for block in blocks("sh") if is_run(block))
    for typed, run in INSTEAD.items():
        assert typed in script, typed
        script = script.replace(typed, run)


def test_the_answer_in_the_inspectors_page_has_the_fields_of_a_real_one(documented: Documented) -> None:
    [shown] = [json.loads(block.text) for block in blocks("json") if block.page == "docs/inspector.md"]
    real = documented.server.get("/api/v1/inspect?session=s_9f2c", key=documented.read_key).json()
    assert list(shown) == list(real)
    assert shown["events"] == real["events"]


def test_prometheus_accepts_the_documented_configuration(tmp_path: Path) -> None:
    require("promtool")
    [block] = blocks("yaml")
    (tmp_path / "prometheus.yml").write_text(block.text)
    shutil.copy(ROOT / "ops" / "prometheus-alerts.yml", tmp_path)
    checked = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    result = subprocess.run(checked, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
