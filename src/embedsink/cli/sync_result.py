"""`embedsink sync-result`: record the result of a dbt sync on a server."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from embedsink.auth.parsing import parse_deployment
from embedsink.cli.options import KeyOption, WrongUse, connect, examples, parser
from embedsink.cli.output import fail, print_message, strip_control
from embedsink.errors import preview

EXAMPLES = examples(
    "EMBEDSINK_KEY=es_sync_… embedsink sync-result result.json --deployment 12 --url https://events.example.com",
    "curl -s …/result | embedsink sync-result - --deployment 12 --url https://events.example.com",
)
# A restart of the server takes less time.
RETRY_TIMEOUT_S = 60.0
RETRY_PAUSE_S_MAX = 10.0
_ADVICE = "Pass the result as the platform returned it."


def sync_result(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The result as JSON, or - for stdin.")],
    deployment: Annotated[
        int, typer.Option(metavar="N", help="The synced deployment.", parser=parser("--deployment", parse_deployment))
    ],
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The server.")],
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="The id of the job. Default: the syncJobId of the file.")
    ] = None,
    key: KeyOption = None,
) -> None:
    """Record the result of a completed dbt sync on a server, with a sync or an admin key for its deployment.

    A pipeline may repeat the command: recording the same result again changes nothing. Exit code 1 if the result is
    invalid, if the job has another result, or if the server does not answer for a minute.
    """
    if job == "":
        raise WrongUse("--job: is empty, perhaps an unset variable. Pass the id of the job, or omit it.")
    from embedsink.client.http_client import retry

    client = connect(url, key)
    body = _read(file)
    job_id = job or _job_id(body, file)
    path = ("deployments", str(deployment), "dbt-sync", job_id, "result")
    put = partial(client.put, *path, members=("syncJobId",), body=body)
    retry(put, timeout_s=RETRY_TIMEOUT_S, pause_s_max=RETRY_PAUSE_S_MAX)
    print_message(f"{strip_control(job_id)}: recorded for deployment {deployment}.")


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise WrongUse(f"FILE: {file}: {error.strerror}. Pass the file of the result, or -.") from None


def _job_id(body: bytes, file: str) -> str:
    try:
        result: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        fail(f"{file}: is not JSON ({error}). {_ADVICE}")
    job_id = result.get("syncJobId") if isinstance(result, dict) else None
    if job_id is not None and not isinstance(job_id, str):
        fail(f"{file}: syncJobId: {preview(job_id)} is not text. {_ADVICE}")
    if not job_id:
        fail(f"{file}: has no syncJobId. {_ADVICE}")
    return job_id
