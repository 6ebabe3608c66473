"""The result of a completed dbt sync (spec 2.1 to 2.3). It is not an envelope, but is journaled like one."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

# The field of `result` with the number of cubes. The vendor's field name contains the service name, which is a setting;
# the journal and the store always use this name.
CUBE_COUNT_FIELD = "svcCount"


@dataclass(frozen=True, slots=True)
class Sync:
    """A valid result of a completed dbt sync. Its deployment and its job id together identify it.

    Args:
        received_at: the time of the server's clock, in epoch milliseconds.
        completed_at: the time in `completedAt`, in epoch microseconds.
        digest: the SHA-256 of the result and its extra fields, in hex.
        result: the fields of the spec, with the number of cubes in `CUBE_COUNT_FIELD`.
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
    """Return the SHA-256 of a JSON object, in hex. White space and the order of members don't change the digest."""
    return sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
