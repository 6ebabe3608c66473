"""The weekly dbt syncs of the demo's data pipeline (spec 2.1). The newest fixes errors and causes a rarer one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from embedsink.client.http_client import HttpClient
from embedsink.demo.fixtures import DEPLOYMENTS
from embedsink.demo.trends import Calendar

# The two deployments with the most traffic.
_SYNCED = DEPLOYMENTS[:2]
_WEEKS_AGO = (1, 0)
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
    client, synced_at = HttpClient(url, key), Calendar(now_ms).synced_at
    for weeks in _WEEKS_AGO:
        for index, deployment in enumerate(_SYNCED):
            result = _result(synced_at - timedelta(weeks=weeks), index)
            path = ("deployments", str(deployment.number), "dbt-sync", result["syncJobId"], "result")
            client.put(*path, members=("syncJobId",), body=orjson.dumps(result))


def _result(completed_at: datetime, index: int) -> dict[str, Any]:
    """Return a sync result; the syncs of one morning end one after another."""
    completed_at += timedelta(minutes=7 * index)
    return {
        "syncJobId": f"sync_{completed_at:%Y%m%d_%H%M}",
        "generatedFiles": [{"path": f"model/cubes/{name}.yml"} for name in _MODELS],
        "manifestStats": {"models": 41 + 6 * index, "sources": 12, "macros": 19},
        "svcCount": len(_MODELS),
        "completedAt": completed_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "durationMs": 93_400 + 11_250 * index,
    }
