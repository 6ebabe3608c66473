"""The worker process: reads large bodies for the server, so that their cost stays away from its event loop.

    python -m embedsink.ingest.worker RULES BODY_BYTES_MAX

Jobs come in and outcomes go out over the socket that is its standard input, one at a time. A message is two lengths,
JSON and bytes; of an outcome these are the lines of events, and behind them those of rejections. The worker ends when
the server closes the socket, so a killed server leaves none behind.
"""

import contextlib
import json
import signal
import socket
import struct
import sys
import traceback
from dataclasses import asdict
from typing import Any

import orjson

from embedsink.concurrency.priority import give_way_to_ingest
from embedsink.errors import Refused
from embedsink.ingest.pipeline import ParseJob, ParseResult, parse_and_encode
from embedsink.protocol.delivery import Rules
from embedsink.reasons import Reason

LENGTHS = struct.Struct("!II")


def encode_job(job: ParseJob) -> tuple[bytes, bytes]:
    """The message of a job: its beginning, and the body."""
    deployments = None if job.deployments is None else sorted(job.deployments)
    head = orjson.dumps(
        {
            "encoding": job.encoding,
            "is_ndjson": job.is_ndjson,
            "received_at": job.received_at,
            "key_id": job.key_id,
            "deployments": deployments,
        }
    )
    return LENGTHS.pack(len(head), len(job.body)) + head, job.body


def decode_outcome(head: bytes, lines: bytes) -> ParseResult | str:
    """The outcome of a job; the traceback of a bug."""
    members = orjson.loads(head)
    if "bug" in members:
        return str(members["bug"])
    refusal, end = members.pop("refusal"), members.pop("lines_end")
    return ParseResult(
        lines[:end],
        rejection_lines=lines[end:],
        **members,
        refusal=Refused(Reason[refusal[0]], refusal[1]) if refusal else None,
    )


def rules_argument(rules: Rules) -> str:
    """The rules as an argument of the worker's command line."""
    return json.dumps(asdict(rules))


def serve(connection: socket.socket, rules: Rules, *, body_bytes_max: int) -> None:
    """Answer jobs until the server closes the connection."""
    # The server may abort the connection with a body in it.
    with contextlib.suppress(ConnectionError), connection, connection.makefile("rb") as jobs:
        while lengths := jobs.read(LENGTHS.size):
            head_bytes, body_bytes = LENGTHS.unpack(lengths)
            members: dict[str, Any] = orjson.loads(jobs.read(head_bytes))
            if members["deployments"] is not None:
                members["deployments"] = frozenset(members["deployments"])
            job = ParseJob(jobs.read(body_bytes), **members)
            try:
                head, lines = _encode_outcome(parse_and_encode(job, rules, body_bytes_max=body_bytes_max))
            except Exception:  # noqa: BLE001  the server logs the traceback and answers
                head, lines = orjson.dumps({"bug": traceback.format_exc()}), b""
            connection.sendall(LENGTHS.pack(len(head), len(lines)) + head)
            connection.sendall(lines)


def _encode_outcome(outcome: ParseResult) -> tuple[bytes, bytes]:
    refusal = outcome.refusal and (outcome.refusal.reason.name, str(outcome.refusal))
    head = {
        "accepted_count": outcome.accepted_count,
        "reasons": outcome.reasons,
        "deployment": outcome.deployment,
        "lines_end": len(outcome.lines),
        "listed": outcome.listed,
        "key": outcome.key,
        "byte_count": outcome.byte_count,
        "refusal": refusal,
    }
    # Text of a sender may hold lone surrogates, which orjson does not write.
    return json.dumps(head).encode(), outcome.lines + outcome.rejection_lines


def main() -> None:
    """Run the worker. Signals to the process group are meant for the server, which then closes the socket."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    give_way_to_ingest()
    rules, body_bytes_max = Rules(**json.loads(sys.argv[1])), int(sys.argv[2])
    serve(socket.socket(fileno=sys.stdin.fileno()), rules, body_bytes_max=body_bytes_max)


if __name__ == "__main__":
    main()
