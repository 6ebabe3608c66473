"""Every operation of the API description with every kind of credential: who gets which status, and whose data."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx2
import pytest

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.http.api.exports import EVENT_FORMATS
from embedsink.http.openapi.operation import Operation
from embedsink.http.problems import SCIM_PREFIX
from embedsink.http.resources import TAGS
from embedsink.reasons import Reason
from embedsink.reports.audit_entries import EXPORT_FORMATS
from embedsink.reports.format import REPORT_FORMATS
from embedsink.settings import Settings
from tests.http.test_isolation import uncompressed_body
from tests.reports.test_scope import sync_result
from tests.support.envelopes import view
from tests.support.issuer import Issuer, running_issuer
from tests.support.servers import RunningServer, running_server, wait_until
from tests.support.stores import make_folder

pytestmark = pytest.mark.server

OWN, OTHER = 7_100_001, 7_200_002
PLACES = ((OWN, "acme"), (OWN, "globex"), (OTHER, "acme"))
SCOPES: dict[str, dict[str, Any]] = {
    "unlimited": {},
    "own deployment": {"deployments": [OWN]},
    "other deployment": {"deployments": [OTHER]},
    "own tenant": {"tenants": ["acme"]},
    "other tenant": {"tenants": ["globex"]},
}
STATUSES = {str(reason): reason.status for reason in Reason}
DEAD = ("expired", "revoked")
SETTINGS: dict[str, Any] = {
    "EMBEDSINK_RATE_ANONYMOUS_PER_S": "100000",
    "EMBEDSINK_SEGMENT_SEAL_S": "0.05",
    "EMBEDSINK_LIVE_TIMEOUT_S": "0.05",
}
VALUES: dict[str, list[str]] = {
    "/api/v1/reports/{name}": ["tenants", *(f"views.{format}" for format in REPORT_FORMATS)],
    "/api/v1/reports/{name}/schema": ["views"],
    "/api/v1/events.{suffix}": list(EVENT_FORMATS),
    "/api/v1/audit.{suffix}": list(EXPORT_FORMATS),
    "/api/v1/dashboards/{name}": ["overview"],
}
QUERIES = {"/api/v1/inspect": "?since=7d&wait=0", "/api/v1/events/live": "?rows=on&recent=9"}
OPERATIONS = [operation for tag in TAGS for resource in tag.resources for operation in resource.operations(Settings())]
# The results of dbt syncs belong to a deployment, and have no tenant.
NO_TENANT = ("/api/v1/deployments/{deploymentId}/dbt-sync/{syncJobId}/result",)
NEEDS_EVERYTHING = {
    ("get", "/api/v1/analytics.duckdb"),
    ("delete", "/api/v1/quarantine"),
    ("post", "/api/v1/quarantine/replay"),
    ("get", "/api/v1/audit"),
    ("get", "/api/v1/audit.{suffix}"),
}


def title_of(place: tuple[int, str]) -> str:
    return f"canary-{place[0]}-{place[1]}"


@dataclass(frozen=True)
class Credential:
    """A credential: its form, its permission, and its scope or the reason why it is refused."""

    form: str
    kind: str
    scope: str
    headers: dict[str, str]

    def __str__(self) -> str:
        return f"{self.form} {self.kind} {self.scope}"

    @property
    def places(self) -> set[tuple[int, str]]:
        """The places whose events the credential may see."""
        limits = SCOPES[self.scope]
        return {
            (deployment, tenant)
            for deployment, tenant in PLACES
            if deployment in limits.get("deployments", [deployment]) and tenant in limits.get("tenants", [tenant])
        }


def paths_of(operation: Operation) -> list[str]:
    """Return paths of an operation, with values for its parameters."""
    path = operation.path.replace("{deploymentId}", str(OWN)).replace("{syncJobId}", "job").replace("{section}", "use")
    path = path.replace("{id}", "missing").replace("{erasureId}", "missing")
    values = VALUES.get(operation.path, ["overview"])
    names = [name for name in ("{name}", "{suffix}") if name in path]
    query = QUERIES.get(operation.path, "")
    return [path.replace(names[0], value) + query for value in values] if names else [path + query]


def body_of(operation: Operation) -> bytes:
    if operation.path == "/api/v1/events":
        return json.dumps({"context": {"deployment": OWN, "tenant": "acme"}, "events": [view()]}).encode()
    if operation.path == "/api/v1/erasures":
        return b"{}"  # An erasure would close the store for a moment.
    if operation.path == "/api/v1/erasures/dry-run":
        return json.dumps({"viewer": "missing", "deployment": OWN, "tenant": "acme"}).encode()
    return json.dumps(sync_result(OWN, "job") | {"completedAt": "2026-11-20T00:00:00Z"}).encode()


def expected_reason(operation: Operation, credential: Credential) -> str:
    """Return the reason of the error that an operation must answer; empty for a success."""
    if credential.form == "none":
        return "no_credential"
    is_scim = operation.path.startswith(SCIM_PREFIX)
    if credential.form == "session" and (credential.scope in DEAD or operation.method != "get" or is_scim):
        return "no_credential"
    if credential.scope in DEAD or credential.form == "malformed":
        return "bad_credential"
    if credential.kind not in {*operation.key_kinds, KeyKind.ADMIN}:
        return "wrong_kind"
    if (operation.method, operation.path) == ("post", "/api/v1/erasures"):
        return "invalid_body"
    is_for_one_place = operation.method in ("post", "put") or "{deploymentId}" in operation.path
    is_limited = bool(SCOPES[credential.scope])
    if is_scim or (operation.method, operation.path) in NEEDS_EVERYTHING:
        return "out_of_scope" if is_limited else ""
    if "{erasureId}" in operation.path:
        return "not_found"
    if operation.path in NO_TENANT and "tenants" in SCOPES[credential.scope]:
        return "out_of_scope"
    if is_for_one_place and (OWN, "acme") not in credential.places:
        return "out_of_scope"
    return ""


class Matrix:
    """A server with events of all places, and all credentials."""

    def __init__(
        self, server: RunningServer, client: httpx2.Client, issuer: Issuer, revoked_tokens: dict[str, str]
    ) -> None:
        self.server = server
        self.client = client
        self.credentials = [Credential("none", "", "", {}), Credential("malformed", "", "", _bearer("es_admin_x"))]
        self._store = KeyStore(server.data / "keys.json")
        self._add_tokens(issuer, revoked_tokens)
        self._add_keys_and_sessions()

    def send(self) -> None:
        """Send an event, a rejection and a dbt sync for each place, and wait until all is loaded."""
        for place in PLACES:
            context = {"deployment": place[0], "tenant": place[1]}
            events = [view({"title": title_of(place)}), view({"path": 1, "title": title_of(place)})]
            response = self.ask(
                "post", "/api/v1/events", "key ingest unlimited", {"context": context, "events": events}
            )
            assert response.status_code == 202
        for deployment in (OWN, OTHER):
            result = sync_result(deployment, "job") | {"completedAt": "2026-11-20T00:00:00Z"}
            path = f"/api/v1/deployments/{deployment}/dbt-sync/job/result"
            assert self.ask("put", path, "key sync unlimited", result).status_code == 200
        wait_until(self._is_loaded, description="everything is loaded")

    def ask(self, method: str, path: str, name: str, body: Any = None) -> httpx2.Response:
        """Send a request with the credential of a name."""
        [credential] = [credential for credential in self.credentials if str(credential) == name]
        return self.client.request(method, path, json=body, headers=credential.headers)

    def _is_loaded(self) -> bool:
        rows = self.ask("get", "/api/v1/events.ndjson", "key read unlimited").text.splitlines()
        rejected = self.ask("get", "/api/v1/quarantine", "key read unlimited").json()
        return (len(rows), len(rejected)) == (len(PLACES), len(PLACES))

    def _add_tokens(self, issuer: Issuer, revoked_tokens: dict[str, str]) -> None:
        for kind, (scope, limits) in product(KeyKind, SCOPES.items()):
            token = issuer.token(scope=f"embedsink:{kind}", **{"deployments": "*", "tenants": "*"} | limits)
            self.credentials.append(Credential("token", kind, scope, _bearer(token)))
        for kind in KeyKind:
            expired = issuer.token(scope=f"embedsink:{kind}", deployments="*", tenants="*", exp=1_700_000_000)
            self.credentials.append(Credential("token", kind, "expired", _bearer(expired)))
            self.credentials.append(Credential("token", kind, "revoked", _bearer(revoked_tokens[kind])))

    def _add_keys_and_sessions(self) -> None:
        now = time.time()
        keys = {
            (kind, scope): self._store.create(kind, **limits, now=now)
            for kind, (scope, limits) in product(KeyKind, SCOPES.items())
            # Results of dbt syncs have no tenant, and the directory has neither a tenant nor a deployment.
            if not (kind is KeyKind.SYNC and "tenants" in limits) and not (kind is KeyKind.SCIM and limits)
        }
        for kind in KeyKind:
            keys[kind, "revoked"] = self._store.create(kind, now=now)
        for kind in KeyKind:  # They expire when their sessions have begun.
            keys[kind, "expired"] = self._store.create(kind, now=now, expires_at=time.time() + 8)
        wait_until(lambda: self._is_live(keys[KeyKind.ADMIN, "expired"][1]), description="the keys are known")
        for (kind, scope), (_, token) in keys.items():
            self.credentials.append(Credential("key", kind, scope, _bearer(token)))
            if kind in (KeyKind.READ, KeyKind.ADMIN):
                login = httpx2.post(f"{self.server.url}/login", data={"key": token})
                cookie = login.headers["set-cookie"].partition(";")[0]
                self.credentials.append(Credential("session", kind, scope, {"Cookie": cookie}))
        for kind in KeyKind:
            self._store.revoke(keys[kind, "revoked"][0].key_id, now=time.time())
        for scope in DEAD:
            token = keys[KeyKind.ADMIN, scope][1]
            wait_until(lambda token=token: not self._is_live(token), description="the key is dead")  # type: ignore[misc]

    def _is_live(self, token: str) -> bool:
        return self.client.get("/api/v1/reports", headers=_bearer(token)).status_code != 401


def _reason_of(response: httpx2.Response) -> str:
    return str(response.json().get("reason", ""))


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    data = tmp_path_factory.mktemp("matrix") / "data"
    make_folder(data)
    with running_issuer() as issuer:
        issued_at = int(time.time()) - 600  # Before the last fetch of the signing keys, so the key can't be newer.
        claims: dict[str, Any] = {"deployments": "*", "tenants": "*", "iat": issued_at}
        revoked_tokens = {str(kind): issuer.token(scope=f"embedsink:{kind}", **claims) for kind in KeyKind}
        issuer.rotate("second", keep=False)
        fields = {"deployments_claim": "deployments", "tenants_claim": "tenants"}
        (data / "identity.toml").write_text(issuer.toml(**fields))
        with running_server(data, **SETTINGS) as server, httpx2.Client(base_url=server.url, timeout=60) as client:
            matrix = Matrix(server, client, issuer, revoked_tokens)
            matrix.send()
            yield matrix


# Deleting operations come last.
KEYED = sorted(
    ((operation, path) for operation in OPERATIONS if operation.key_kinds for path in paths_of(operation)),
    key=lambda entry: (entry[0].method != "get", entry[0].method == "delete"),
)


@pytest.mark.parametrize(("operation", "path"), KEYED, ids=[f"{operation.method} {path}" for operation, path in KEYED])
def test_each_credential_gets_its_own_status_and_data(matrix: Matrix, operation: Operation, path: str) -> None:
    problems: dict[str, str] = {}
    content = body_of(operation) if operation.method in ("post", "put", "patch") else None
    for credential in matrix.credentials:
        headers = credential.headers | {"Content-Type": "application/json"}
        response = matrix.client.request(operation.method, path, content=content, headers=headers)
        expected = expected_reason(operation, credential)
        is_error = response.status_code >= 400
        reason = _reason_of(response) if is_error else ""
        if path.startswith(SCIM_PREFIX):  # Errors of SCIM have no reason, and an allowed request may be invalid.
            refusals = (STATUSES[expected],) if expected else ()
            allowed = [status for status in range(600) if status not in (401, 403, 500)]
            if response.status_code not in (refusals or allowed):
                problems[str(credential)] = f"{response.status_code} instead of {expected or 'an answer'}"
        elif reason != expected:
            problems[str(credential)] = f"{response.status_code} {reason} instead of {expected or 'success'}"
        visible = credential.places if not is_error else set()
        text = uncompressed_body(response.content)
        leaks = [place for place in PLACES if place not in visible and title_of(place).encode() in text]
        if leaks:
            problems[str(credential)] = f"shows {leaks}"
        is_expected = path.endswith("events.ndjson") and not is_error
        if is_expected and not all(title_of(place).encode() in text for place in visible):
            problems[str(credential)] = "lacks its own events"
    assert problems == {}


@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if not operation.key_kinds],
    ids=lambda operation: f"{operation.method} {operation.path}",
)
def test_an_operation_without_a_key_shows_no_data(matrix: Matrix, operation: Operation) -> None:
    for path, credential in product(paths_of(operation), matrix.credentials):
        response = matrix.client.request(operation.method, path, headers=credential.headers)
        assert response.status_code < 500 or operation.path == "/readyz"
        assert b"canary" not in uncompressed_body(response.content)
