"""The result of a completed dbt sync (spec 2.1 to 2.3). It is not an envelope, but is journaled like one."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

# The vendor's name for the count of cubes contains the service name, which a setting may change. The journal and the
# store use this name.
COUNT_FIELD = "svcCount"


@dataclass(frozen=True, slots=True)
class Sync:
    """A valid result.

    Args:
        deployment: the deployment.
        job_id: the job. Deployment and job together identify the result.
        received_at: the time of the server's clock, in epoch milliseconds.
        completed_at: the time in `completedAt`, in epoch microseconds.
        digest: the SHA-256 of the result and its extra fields, in hex.
        result: the fields of the spec, with the count of cubes under `COUNT_FIELD`.
        extra: the fields that are not in the spec.
    """

    deployment: int
    job_id: str
    received_at: int
    completed_at: int
    digest: str
    result: dict[str, Any]
    extra: dict[str, Any] | None = None


def digest_of(body: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, in hex. White space and the order of members don't change it."""
    return sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
