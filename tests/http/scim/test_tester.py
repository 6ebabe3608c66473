"""scim2-tester finds no violation of RFC 7643 and RFC 7644 in a real server."""

from pathlib import Path

import httpx2
import pytest
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

from tests.support.servers import running_server

pytestmark = pytest.mark.server


def test_all_compliance_checks_pass(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        headers = {"Authorization": f"Bearer {server.key('scim')}"}
        with httpx2.Client(base_url=f"{server.url}/api/scim/v2", headers=headers) as http:
            client = SyncSCIMClient(http)
            client.discover()
            results = check_server(client)
    by_status = {status: [result for result in results if result.status is status] for status in Status}
    print({str(status): len(found) for status, found in by_status.items()})
    passed = (Status.SUCCESS, Status.COMPLIANT, Status.ACCEPTABLE, Status.SKIPPED)
    failed = [(result.title, result.reason) for result in results if result.status not in passed]
    assert failed == [], "\n".join(f"{t}: {r}" for t, r in failed)
    assert len(by_status[Status.SUCCESS]) > 100
