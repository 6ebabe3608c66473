"""The API description matches the server's behaviour: each route, status and schema."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.applications import Starlette
from starlette.routing import Route

from embedsink.concurrency.limiter import ConcurrencyLimiter
from embedsink.http.cors import INGEST_PATH
from embedsink.http.openapi.builder import OpenApi
from embedsink.http.problems import SCIM_PREFIX
from embedsink.http.resources import describe_api
from embedsink.settings import Settings
from tests.support.app import Server, open_server
from tests.support.envelopes import view
from tests.support.issuer import running_issuer
from tests.support.stores import make_folder

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DESCRIBED = describe_api(Settings()).document


@schemathesis.serializer("application/x-ndjson")
def lines(_: schemathesis.SerializationContext, value: object) -> bytes:
    """Return the text unchanged."""
    return str(value).encode(errors="surrogatepass")


api = schemathesis.openapi.from_dict(DESCRIBED)


@dataclass
class Loaded:
    """A server whose reports have rows, and credentials by name."""

    server: Server
    credentials: dict[str, str]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("data")
    with running_issuer() as issuer:
        make_folder(folder)
        (folder / "identity.toml").write_text(issuer.toml(tenants_claim="tenants"))
        with open_server(folder, segment_seal_s=0.01, live_timeout_s=0.01) as server:
            key = server.key()
            server.post([view(), 1], key=key)
            server.rows("/api/v1/reports/views", key=server.key("read"))
            scope = "embedsink:admin"
            credentials = {
                "key": server.key("admin"),
                "token": issuer.token(scope=scope, tenants="*"),
                "limited token": issuer.token(scope=scope, tenants="acme"),
                "token without a scope": issuer.token(scope="openid", tenants="*"),
                "expired token": issuer.token(scope=scope, tenants="*", exp=1_700_000_000),
            }
            yield Loaded(server, credentials)


def methods_of(app: Starlette) -> set[tuple[str, str]]:
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(routes) == len(app.routes)
    # Starlette answers HEAD wherever it answers GET (RFC 9110, section 9.3.2).
    return {
        (route.path.replace(":any_text}", "}"), method.lower())
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }


def test_each_route_is_described_and_nothing_else(server: Server) -> None:
    described = {(path, method) for path, item in DESCRIBED["paths"].items() for method in item}
    assert described == methods_of(server.app)


def test_the_description_is_public(server: Server) -> None:
    response = server.get("/openapi.json")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json()["openapi"] == "3.1.0"
    assert response.json()["info"]["version"] == "1.0.0"


def test_the_description_is_serialized_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server.get("/openapi.json")
    # Requests without a key must be cheap for the server.
    monkeypatch.delattr(OpenApi, "document")
    second_response = server.get("/openapi.json")
    assert (second_response.status_code, second_response.content) == (200, first.content)


def test_the_description_is_valid_openapi() -> None:
    api.validate()
    ids = [operation["operationId"] for item in DESCRIBED["paths"].values() for operation in item.values()]
    assert len(set(ids)) == len(ids) == len(list(api.get_all_operations()))


WITH_KEY = sorted(
    (path, method)
    for path, item in DESCRIBED["paths"].items()
    for method, operation in item.items()
    if operation["security"] and path != INGEST_PATH
)


def reasons_of(path: str, method: str, status: int) -> list[str]:
    """Return the reasons that the description lists for a status."""
    response = DESCRIBED["paths"][path][method]["responses"].get(str(status))
    if response is None:
        return []
    parts: list[dict[str, Any]] = response["content"]["application/problem+json"]["schema"]["allOf"]
    return [reason for part in parts for reason in part.get("properties", {}).get("reason", {}).get("enum", ())]


def ask(server: Server, path: str, method: str, **options: Any) -> httpx2.Response:
    """Send a request to an operation, with a value for each path parameter."""
    values = {
        "name": "views",
        "suffix": "csv",
        "deploymentId": "7",
        "syncJobId": "j",
        "section": "use",
        "id": "u1",
        "erasureId": "e",
    }
    return server.request(method.upper(), path.format(**values), **options)


@pytest.mark.parametrize(("path", "method"), WITH_KEY)
def test_an_error_for_another_origin_is_described(server: Server, path: str, method: str) -> None:
    key = server.key("admin", origins=["https://here.example"])
    response = ask(server, path, method, key=key, headers={"origin": "https://there.example"})
    assert response.status_code == 403
    if path.startswith(SCIM_PREFIX):  # SCIM errors have no reason.
        assert "application/scim+json" in DESCRIBED["paths"][path][method]["responses"]["403"]["content"]
        assert response.headers["content-type"] == "application/scim+json"
    else:
        assert response.json()["reason"] in reasons_of(path, method, 403)


def test_an_overloaded_server_answers_as_described(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.engine.limiters, "reports", ConcurrencyLimiter(0, waiting_max=0))
    key = server.key("admin")
    # The live stream waits for no report, and does not end.
    paths = {path for path, method in WITH_KEY if method == "get"} - {"/api/v1/events/live"}
    refused = {path: ask(server, path, "get", key=key) for path in paths}
    busy = {path: response.json()["reason"] for path, response in refused.items() if response.status_code == 503}
    assert {"/api/v1/quarantine", "/api/v1/reports/{name}", "/api/v1/summary.zip"} <= busy.keys()
    assert {path for path, reason in busy.items() if reason not in reasons_of(path, "get", 503)} == set()


def test_the_description_contains_the_service_name_and_limits() -> None:
    schemas = describe_api(Settings(service_name="acme", events_max=7)).document["components"]["schemas"]
    assert schemas["ViewEnvelope"]["properties"]["source"]["const"] == "acme-embed"
    assert "acme:event:view" in schemas["Envelope"]["discriminator"]["mapping"]
    assert schemas["Delivery"]["properties"]["events"]["maxItems"] == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "method"), [(path, method) for path, item in DESCRIBED["paths"].items() for method in item]
)
def test_requests_and_responses_conform_to_the_description(path: str, method: str, loaded: Loaded) -> None:
    credentials = cycle(loaded.credentials.values())

    @settings(
        max_examples=4,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    def is_as_described(case: schemathesis.Case[Any]) -> None:
        sent = requests.Request(**case.as_transport_kwargs(base_url="http://test")).prepare()
        # Headers are encoded as bytes, because generated values need not be ASCII.
        headers = {
            name: value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
            for name, value in sent.headers.items()
            if name.lower() != "content-length"
        }
        key = next(credentials)
        answer = loaded.server.request(sent.method or "", sent.url or "", key=key, headers=headers, content=sent.body)
        case.validate_response(answer, checks=CHECKS)

    # `api.parametrize()` would generate thousands of cases in each worker whenever tests are collected.
    plan = HypothesisTestConfig(project=api.config, modes=list(HypothesisTestMode))
    create_test(operation=api[path][method], test_func=is_as_described, config=plan)()
