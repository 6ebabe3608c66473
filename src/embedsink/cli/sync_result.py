"""`embedsink sync-result`: the result of a dbt sync, from a pipeline to a server."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from embedsink.auth.parsing import parse_deployment
from embedsink.cli.options import KeyOption, checked, examples, server_at
from embedsink.cli.output import fail, say, strip_control
from embedsink.errors import preview

EXAMPLES = examples(
    "EMBEDSINK_KEY=es_sync_… embedsink sync-result result.json --deployment 12 --url https://engine.example.com",
    "curl -s …/result | embedsink sync-result - --deployment 12 --url https://engine.example.com",
)
# How long a server that is away or overloaded is waited for: a deployment restarts it.
PATIENCE_S = 60.0
PAUSE_S_MAX = 10.0


def sync_result(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The result as JSON; - is stdin.")],
    deployment: Annotated[
        int, typer.Option(metavar="N", help="The deployment that was synced.", parser=checked(parse_deployment))
    ],
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The server that records it.")],
    job: Annotated[str | None, typer.Option(metavar="ID", help="The job; else the syncJobId of the file.")] = None,
    key: KeyOption = None,
) -> None:
    """Record the result of a completed dbt sync on a server, with a sync or an admin key for its deployment.

    Recording the same result again changes nothing, so a pipeline may repeat the step. Exit code 1 when it was not
    recorded: it breaks the specification, the job has another result, or the server stayed away for a minute.
    """
    if job == "":
        raise typer.BadParameter("--job: is empty, perhaps an unset variable. Name the job, or leave it out.")
    from embedsink.client.http_client import retry

    remote = server_at(url, key)
    body = _read(file)
    job_id = job or _job_of(body, file)
    path = ("deployments", str(deployment), "dbt-sync", job_id, "result")
    # It is recorded once, however often it arrives.
    put = partial(remote.put, *path, members=("syncJobId",), body=body)
    retry(put, patience_s=PATIENCE_S, pause_s_max=PAUSE_S_MAX)
    say(f"{strip_control(job_id)}: recorded for deployment {deployment}.")


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"FILE {file}: {error.strerror}. Name the file that holds the result.") from None


def _job_of(body: bytes, file: str) -> str:
    try:
        result: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        fail(f"{file}: is not JSON ({error}). Write the result as it came from the platform.")
    job_id = result.get("syncJobId") if isinstance(result, dict) else None
    if job_id is not None and not isinstance(job_id, str):
        fail(f"{file}: syncJobId: {preview(job_id)} is not text. Write the result as it came from the platform.")
    if not job_id:
        fail(f"{file}: has no syncJobId. Write the result as it came from the platform.")
    return job_id
