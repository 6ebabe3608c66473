"""The demo's server: `embedsink serve`, but on this machine dashboards open without a login.

python -m embedsink.demo.opened DATA HOST PORT < read key
"""

import sys
from pathlib import Path

from embedsink.errors import EmbedsinkError
from embedsink.folder import DataFolder
from embedsink.logs import log_as_json
from embedsink.serving import Listening, serve
from embedsink.settings import read_settings


def main(data: str, host: str, port: str) -> int:
    """Serve until SIGTERM; the exit code."""
    key = sys.stdin.read().strip()
    log_as_json()
    try:
        return serve(DataFolder(Path(data)), read_settings(), Listening(host, int(port)), opened_with=key or None)
    except EmbedsinkError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
