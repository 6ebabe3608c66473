"""Security headers of responses and pages."""

import pytest

from embedsink.http.security_headers import policy_headers
from tests.support.app import Server


@pytest.mark.parametrize(
    ("path", "caching"),
    [
        ("/api/v1/deployments", "private, no-store"),
        ("/api/v1/quarantine", "private, no-store"),
        ("/api/v1/inspect?session=s", "private, no-store"),
        ("/api/v1/reports", "private, no-cache"),
        ("/api/v1/reports/views", "private, no-cache"),
        ("/api/v1/reports/views/schema", "private, no-cache"),
        ("/api/v1/summary.zip", "private, no-cache"),
        ("/api/v1/dashboards/overview/sections/use", "private, no-cache"),
        ("/docs", "private, no-cache"),
        ("/pages/base.css", "no-cache"),
    ],
)
def test_responses_for_one_reader_are_private_and_not_sniffed(server: Server, path: str, caching: str) -> None:
    response = server.get(path, key=server.key("read"))
    assert response.status_code == 200
    assert response.headers["cache-control"] == caching
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_page_allows_only_its_policy() -> None:
    strict_directives = {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    for allowed in ({}, {"form-action": "'self'"}, {"img-src": "'self'", "frame-ancestors": "https://a.example"}):
        headers = policy_headers(allowed, referrer="no-referrer")
        rules = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
        assert rules == strict_directives | allowed
        assert headers["Referrer-Policy"] == "no-referrer"
