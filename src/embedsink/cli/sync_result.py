"""`embedsink sync-result`: record the result of a dbt sync on a server."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from embedsink.auth.parsing import parse_deployment
from embedsink.cli.options import KeyOption, UsageError, connect, examples, option_parser
from embedsink.cli.output import escape_control, fail, print_message
from embedsink.errors import preview

EXAMPLES = examples(
    "EMBEDSINK_KEY=es_sync_… embedsink sync-result result.json --deployment 12 --url https://events.example.com",
    "curl -s …/result | embedsink sync-result - --deployment 12 --url https://events.example.com",
)
# Longer than a restart of the server takes.
RETRY_TIMEOUT_S = 60.0
RETRY_PAUSE_S_MAX = 10.0
_ADVICE = "Pass the result as the platform returned it."


def sync_result(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The result as JSON, or - for stdin.")],
    deployment: Annotated[
        int,
        typer.Option(
            metavar="N", help="The synced deployment.", parser=option_parser("--deployment", parse_deployment)
        ),
    ],
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The server.")],
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="The id of the job. Default: the syncJobId of the file.")
    ] = None,
    key: KeyOption = None,
) -> None:
    """Record the result of a completed dbt sync on a server, with a sync or an admin key for its deployment.

    A pipeline may repeat the command: recording the same result again changes nothing. The exit code is 1 if the
    result is invalid, if a different result is already recorded for the job, or if the server does not answer for a
    minute.
    """
    if job == "":
        raise UsageError("--job: is empty, perhaps an unset variable. Pass the id of the job, or omit it.")
    from embedsink.client.http_client import retry

    client = connect(url, key)
    body = _read_file_or_stdin(file)
    job_id = job if job is not None else _job_id_in(body, file)
    path = ("deployments", str(deployment), "dbt-sync", job_id, "result")
    put_result = partial(client.put, *path, required_members=("syncJobId",), body=body)
    retry(put_result, timeout_s=RETRY_TIMEOUT_S, pause_s_max=RETRY_PAUSE_S_MAX)
    print_message(f"{escape_control(job_id)}: recorded for deployment {deployment}.")


def _read_file_or_stdin(file: str) -> bytes:
    """Return the content of a file, or of stdin if the file is `-`. Raise a usage error if reading fails."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"FILE: {file}: {error.strerror}. Pass the file of the result, or -.") from None


def _job_id_in(body: bytes, file: str) -> str:
    """Return the syncJobId of a sync result.

    If the body is not JSON or has no valid syncJobId, print an error message that names the file, and exit.
    """
    try:
        result: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        fail(f"{file}: is not JSON ({error}). {_ADVICE}")
    job_id = result.get("syncJobId") if isinstance(result, dict) else None
    if job_id in (None, ""):
        fail(f"{file}: has no syncJobId. {_ADVICE}")
    if not isinstance(job_id, str):
        fail(f"{file}: syncJobId: {preview(job_id)} is not text. {_ADVICE}")
    return job_id
