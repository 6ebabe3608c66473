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
        first_completed_at = newest_synced_at - timedelta(weeks=weeks_before_newest)
        for earlier_sync_count, deployment in enumerate(_SYNCED_DEPLOYMENTS):
            result = _sync_result(first_completed_at, earlier_sync_count)
            path = ("deployments", str(deployment.number), "dbt-sync", result["syncJobId"], "result")
            # A response without the member `syncJobId` is not from embedsink, and raises an error.
            client.put(*path, required_members=("syncJobId",), body=orjson.dumps(result))


def _sync_result(first_completed_at: datetime, earlier_sync_count: int) -> dict[str, Any]:
    """Return the sync result of a deployment. The syncs of a morning end seven minutes apart.

    Args:
        first_completed_at: the time at which the first sync of the morning ended.
        earlier_sync_count: the earlier syncs of the morning; they also vary the invented counts and durations.
    """
    completed_at = first_completed_at + timedelta(minutes=7 * earlier_sync_count)
    return {
        "syncJobId": f"sync_{completed_at:%Y%m%d_%H%M}",
        "generatedFiles": [{"path": f"model/cubes/{name}.yml"} for name in _MODELS],
        "manifestStats": {"models": 41 + 6 * earlier_sync_count, "sources": 12, "macros": 19},
        "svcCount": len(_MODELS),
        "completedAt": completed_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "durationMs": 93_400 + 11_250 * earlier_sync_count,
    }
