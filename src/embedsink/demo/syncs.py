"""What a pipeline tells the demo's server: the results of dbt syncs (spec 2.1). The newest ones mended something."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from embedsink.client.http_client import HttpClient
from embedsink.demo.fixtures import DEPLOYMENTS
from embedsink.demo.trends import Course

# The two with the most traffic, once a week.
_SYNCED = DEPLOYMENTS[:2]
_WEEKS_AGO = (1, 0)
_FILES = ("orders", "subscriptions", "tickets", "shipments", "stock", "leads")


def record_syncs(url: str, key: str, now_ms: int) -> int:
    """Record the dbt syncs of the traffic's days, the earliest first; how many.

    Args:
        url: of the server.
        key: a sync key.
        now_ms: epoch milliseconds.

    Raises:
        EmbedsinkError: the server refused one.
        OSError: no answer.
    """
    mended_at = Course(now_ms).mended_at
    results = [
        (one, _result(mended_at - timedelta(weeks=ago), number))
        for ago in _WEEKS_AGO
        for number, one in enumerate(_SYNCED)
    ]
    for deployment, result in results:
        path = ("deployments", str(deployment.number), "dbt-sync", result["syncJobId"], "result")
        HttpClient(url, key).put(*path, members=("syncJobId",), body=orjson.dumps(result))
    return len(results)


def _result(completed_at: datetime, number: int) -> dict[str, Any]:
    """The syncs of one morning end after each other."""
    completed_at += timedelta(minutes=7 * number)
    return {
        "syncJobId": f"sync_{completed_at:%Y%m%d_%H%M}",
        "generatedFiles": [{"path": f"model/cubes/{name}.yml"} for name in _FILES],
        "manifestStats": {"models": 41 + 6 * number, "sources": 12, "macros": 19},
        "svcCount": len(_FILES),
        "completedAt": completed_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "durationMs": 93_400 + 11_250 * number,
    }
