"""The result of a completed dbt sync (spec 2.1 to 2.3), as it is kept: not an envelope, but journaled like one."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

# How the journal and the store write the field whose name carries the service's: a setting may change that later.
COUNT_FIELD = "svcCount"


@dataclass(frozen=True, slots=True)
class Sync:
    """One valid result.

    Args:
        deployment: the deployment that was synced.
        job_id: its job; with the deployment it names the result.
        received_at: the server's clock, epoch milliseconds.
        completed_at: the instant of `completedAt`, epoch microseconds.
        digest: the SHA-256 of everything that was sent, in hex.
        result: the fields of the spec, the count of cubes under `COUNT_FIELD`.
        extra: what was sent beyond them.
    """

    deployment: int
    job_id: str
    received_at: int
    completed_at: int
    digest: str
    result: dict[str, Any]
    extra: dict[str, Any] | None = None


def digest_of(body: dict[str, Any]) -> str:
    """The same for two bodies that are equal as JSON: spaces and the order of members make no difference."""
    return sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
