"""The worker process: it parses large bodies, so that they don't block the event loop of the server.

    python -m embedsink.ingest.worker RULES BODY_BYTES_MAX

The standard input is a socket. The worker receives one job at a time, and sends its result. Each message consists of
two lengths, a JSON head and bytes: the body of a job, or the journal lines of a result. The worker ends when the socket
is closed, so it does not outlive a killed server.
"""

import contextlib
import json
import signal
import socket
import struct
import sys
import traceback
from dataclasses import asdict
from functools import lru_cache
from typing import Any, BinaryIO

import orjson

from embedsink.concurrency.priority import lower_priority
from embedsink.errors import Refused
from embedsink.ingest.pipeline import ParseJob, ParseResult, parse_and_encode
from embedsink.key_scope import KeyScope
from embedsink.privacy.redaction import Privacy
from embedsink.protocol.delivery import Rules
from embedsink.reasons import Reason

# The lengths of the head and of the bytes after it.
LENGTHS = struct.Struct("!II")


def encode_job(job: ParseJob) -> tuple[bytes, bytes]:
    """Return the message of a job in two parts: the lengths with the head, and the body."""
    head = orjson.dumps(
        {
            "encoding": job.encoding,
            "is_ndjson": job.is_ndjson,
            "received_at": job.received_at,
            "key_id": job.key_id,
            "scope": job.scope.variables(),
            "privacy": job.privacy.encoded,
            "is_opted_out": job.is_opted_out,
        }
    )
    return LENGTHS.pack(len(head), len(job.body)) + head, job.body


def decode_result(head: bytes, lines: bytes) -> ParseResult | str:
    """Return the result of a job. If a bug ended the job, return the traceback as text."""
    members = orjson.loads(head)
    if "traceback" in members:
        return str(members["traceback"])
    accepted_bytes = members.pop("accepted_bytes")
    refusal = None
    if members["refusal"] is not None:
        reason_name, detail = members["refusal"]
        refusal = Refused(Reason[reason_name], detail)
    members["refusal"] = refusal
    return ParseResult(accepted_lines=lines[:accepted_bytes], rejection_lines=lines[accepted_bytes:], **members)


def rules_argument(rules: Rules) -> str:
    """Return the rules as an argument for the command line of the worker."""
    return json.dumps(asdict(rules))


def serve(connection: socket.socket, rules: Rules, *, body_bytes_max: int) -> None:
    """Answer jobs until the server closes the connection."""
    # If the server is killed, the connection can end at any moment, even within a message.
    with contextlib.suppress(ConnectionError, EOFError), connection, connection.makefile("rb") as stream:
        while True:
            head_bytes, body_bytes = LENGTHS.unpack(_read_exactly(stream, LENGTHS.size))
            job = _decode_job(_read_exactly(stream, head_bytes), _read_exactly(stream, body_bytes))
            head, lines = _run_job(job, rules, body_bytes_max)
            connection.sendall(LENGTHS.pack(len(head), len(lines)) + head)
            connection.sendall(lines)


def _run_job(job: ParseJob, rules: Rules, body_bytes_max: int) -> tuple[bytes, bytes]:
    """Run a job. Return the head and the journal lines of the result; after a bug, a head with the traceback."""
    try:
        return _encode_result(parse_and_encode(job, rules, body_bytes_max=body_bytes_max))
    except Exception:  # noqa: BLE001  the server logs the traceback and answers
        return orjson.dumps({"traceback": traceback.format_exc()}), b""


def _read_exactly(stream: BinaryIO, byte_count: int) -> bytes:
    """Return the next bytes of a stream. Raise EOFError if the stream ends too early."""
    content = stream.read(byte_count)
    if len(content) < byte_count:
        raise EOFError
    return content


def _decode_job(head: bytes, body: bytes) -> ParseJob:
    """Return the job from a message of `encode_job`."""
    members: dict[str, Any] = orjson.loads(head)
    scope: dict[str, Any] = members.pop("scope")
    for name in ("deployments", "tenants"):
        scope[name] = None if scope[name] is None else frozenset(scope[name])
    privacy = _decode_privacy(members.pop("privacy"))
    return ParseJob(body, scope=KeyScope(**scope), privacy=privacy, **members)


# The privacy rules are the same in all jobs of a server.
_decode_privacy = lru_cache(maxsize=1)(Privacy.decode)


def _encode_result(result: ParseResult) -> tuple[bytes, bytes]:
    """Return the JSON head of a result, and its journal lines: first of accepted envelopes, then of rejections."""
    refusal = None if result.refusal is None else (result.refusal.reason.name, str(result.refusal))
    head = {
        "accepted_count": result.accepted_count,
        "accepted_bytes": len(result.accepted_lines),  # where the lines of rejections begin
        "rejected_count": result.rejected_count,
        "reasons": result.reasons,
        "listed_rejections": result.listed_rejections,
        "body_token": result.body_token,
        "deployment": result.deployment,
        "tenant": result.tenant,
        "refusal": refusal,
        "body_bytes": result.body_bytes,
    }
    # Text from a client may contain lone surrogates, which orjson refuses.
    return json.dumps(head).encode(), result.accepted_lines + result.rejection_lines


def main() -> None:
    """Run the worker. Signals to the process group are ignored: the server ends the worker by closing the socket."""
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    lower_priority()
    _, rules, body_bytes_max = sys.argv
    connection = socket.socket(fileno=sys.stdin.fileno())  # The server passes a socket as the standard input.
    serve(connection, Rules(**json.loads(rules)), body_bytes_max=int(body_bytes_max))


if __name__ == "__main__":
    main()
