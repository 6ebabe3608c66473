"""Requests that make a server write each kind of file: journal, store, snapshot, spooled responses, JS bundle."""

import http.client
from urllib.parse import urlencode, urlsplit

from tests.support.envelopes import view
from tests.support.servers import RunningServer, fetch, wait_until

DOWNLOADS = (
    *(f"/api/v1/reports/views.{suffix}" for suffix in ("csv", "json", "parquet", "arrow")),
    "/api/v1/events.parquet",
    "/api/v1/summary.zip",
    "/api/v1/analytics.duckdb",
)


def cause_all_writes(server: RunningServer) -> None:
    """Send events, wait for loading and publishing, download every format, and open a dashboard."""
    key, reader = server.key(), server.key("read")
    assert server.post([view(), {}], key=key).status == 202
    assert server.post(b"{", key=key).status == 400
    assert server.get("/api/v1/inspect?since=1h&wait=10", key=reader).json()["isComplete"]
    wait_until((server.data / "analytics.duckdb").exists, description="a snapshot is published")
    for path in DOWNLOADS:
        assert server.get(path, key=reader).status == 200, path
    page = fetch(f"{server.url}/dashboards/overview", headers={"Cookie": log_in(server, reader)})
    assert page.status == 200
    wait_until(lambda: any((server.data / "pages").glob("vega-*")), description="the JS bundle is stored", timeout_s=60)


def log_in(server: RunningServer, key: str) -> str:
    """Log in, and return the cookie."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": server.url}
    connection.request("POST", "/login", urlencode({"key": key}), form)
    cookie = connection.getresponse().headers["Set-Cookie"]
    connection.close()
    return cookie.partition(";")[0]
