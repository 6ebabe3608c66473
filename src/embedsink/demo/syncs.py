"""The weekly dbt syncs of the demo's data pipeline (spec 2.1). The newest fixes errors and causes a rarer one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from embedsink.client.http_client import HttpClient
from embedsink.demo.fixtures import DEPLOYMENTS
from embedsink.demo.trends import Calendar

# The two deployments with the most traffic.
_SYNCED_DEPLOYMENTS = DEPLOYMENTS[:2]
_WEEKS_BEFORE_NEWEST = (1, 0)
_MODELS = ("orders", "subscriptions", "tickets", "shipments", "stock", "leads")


def record_syncs(url: str, key: str, now_ms: int) -> None:
    """Record the dbt syncs of the demo's days, the earliest first.

    Args:
        url: the server.
        key: a sync key.
        now_ms: epoch milliseconds.

    Raises:
        EmbedsinkError: the server refused a sync, or did not respond.
    """
    client = HttpClient(url, key)
    newest_synced_at = Calendar(now_ms).synced_at
    for weeks_before_newest in _WEEKS_BEFORE_NEWEST:
        for index, deployment in enumerate(_SYNCED_DEPLOYMENTS):
            result = _sync_result(newest_synced_at - timedelta(weeks=weeks_before_newest), index)
            path = ("deployments", str(deployment.number), "dbt-sync", result["syncJobId"], "result")
            # `members` are the fields that the response must have.
            client.put(*path, members=("syncJobId",), body=orjson.dumps(result))


def _sync_result(first_completed_at: datetime, index: int) -> dict[str, Any]:
    """Return the sync result of a deployment.

    Args:
        first_completed_at: the time at which the first sync of the morning ended.
        index: the number of earlier syncs of the morning, which varies the invented counts and durations.
    """
    completed_at = first_completed_at + timedelta(minutes=7 * index)
    return {
        "syncJobId": f"sync_{completed_at:%Y%m%d_%H%M}",
        "generatedFiles": [{"path": f"model/cubes/{name}.yml"} for name in _MODELS],
        "manifestStats": {"models": 41 + 6 * index, "sources": 12, "macros": 19},
        "svcCount": len(_MODELS),
        "completedAt": completed_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "durationMs": 93_400 + 11_250 * index,
    }
