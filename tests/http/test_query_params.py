"""Query parameters: unknown, invalid and repeated ones are errors."""

import re

import httpx2
import pytest
from starlette.routing import Route

import embedsink.cli.quarantine
import embedsink.http.api.quarantine
from embedsink.http.query_params import PARAMETERS_MAX, QUERY_BYTES_MAX
from embedsink.reports.recent_events import ROWS_MAX
from tests.support.app import EVENTS, Server, problem

PATHS = ["/api/v1/reports/views", "/api/v1/reports/views.csv", "/api/v1/quarantine"]


def detail(response: httpx2.Response) -> str:
    assert (response.status_code, problem(response)) == (400, "bad_parameter")
    detail_text: str = response.json()["detail"]
    return detail_text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sinse=7d", 'parameter "sinse" does not exist. Did you mean "since"?'),
        ("zzz=1", 'parameter "zzz" does not exist. Valid names: since, '),
        ("since=7d&since=1d", "since: is given more than once. Give it once."),
        ("tenant=a&tenant=a", "tenant: is given more than once"),
        ("since=2026-11-02&until=2026-11-01", 'since: "2026-11-02" is later than until, "2026-11-01". Swap them.'),
        ("tenant=a%00b", 'tenant: "a\\u0000b" contains a NUL or a lone surrogate. Remove it.'),
    ],
)
def test_an_invalid_query_answers_400_and_names_the_parameter(
    server: Server, path: str, query: str, message: str
) -> None:
    assert message in detail(server.get(f"{path}?{query}", key=server.key("read")))


@pytest.mark.parametrize("path", ["/api/v1/reports/views", "/dashboards/", "/login", "/healthz", "/nothing", EVENTS])
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("e&" * PARAMETERS_MAX, "url: has 65 parameters; the limit is 64. Leave some out."),
        ("e" * (QUERY_BYTES_MAX + 1), "url: its query has 8,193 bytes; the limit is 8,192. Shorten it."),
    ],
)
def test_a_query_beyond_its_limits_is_refused_on_every_path(
    server: Server, path: str, query: str, message: str
) -> None:
    assert detail(server.get(f"{path}?{query}", key=server.key("admin"))) == message
    assert detail(server.get(f"{path}?{query}")) == message


def test_a_query_at_its_limits_is_accepted(server: Server) -> None:
    key, path = server.key("read"), "/api/v1/reports/views"
    deployments = "&".join(f"deployment={number}" for number in range(PARAMETERS_MAX))
    assert server.get(f"{path}?{deployments}", key=key).status_code == 200
    assert server.get(f"{path}?tenant={'x' * (QUERY_BYTES_MAX - len('tenant='))}", key=key).status_code == 200


def test_every_api_path_refuses_unknown_parameters(server: Server) -> None:
    """The routes of the application are enumerated, so that new ones are tested automatically. Probes are excluded."""
    path_values = {
        "name": "views",
        "suffix": "csv",
        "deploymentId": "1",
        "syncJobId": "job",
        "section": "use",
        "erasureId": "e",
    }
    admin, routes = server.key("admin"), [route for route in server.app.routes if isinstance(route, Route)]
    requests = [
        (
            method,
            re.sub(
                r"\{(\w+)[^}]*\}",
                lambda part: path_values[part[1]],
                route.path.replace("s/{name}/sec", "s/overview/sec"),
            ),
        )
        for route in routes
        for method in (route.methods or set()) - {"HEAD", "OPTIONS"}
        if route.path.startswith("/api/v1/") and route.path != EVENTS
    ]
    assert {("GET", "/api/v1/reports"), ("POST", "/api/v1/quarantine/replay")} <= set(requests)
    assert server.get("/healthz?sinse=1").status_code == 200
    for method, path in requests:
        message = detail(server.request(method, f"{path}?sinse=1", key=admin))
        assert message.startswith('parameter "sinse" does not exist. '), path


def test_an_invalid_parameter_is_an_error_and_never_a_304(server: Server) -> None:
    key = server.key("read")
    for invalid in ("columns=zzz", "limit=0", "cursor=zzz", "guard=zzz", "since=zzz", "zzz=1", "timezone=zzz"):
        response = server.get(f"/api/v1/reports/ai_query?{invalid}", key=key, headers={"if-none-match": "*"})
        assert detail(response).startswith((invalid.partition("=")[0], 'parameter "zzz"')), invalid
    for right in ("columns=status", "limit=1", "", "columns=status&limit=1&guard=off"):
        response = server.get(f"/api/v1/reports/ai_query?{right}", key=key, headers={"if-none-match": "*"})
        assert response.status_code == 304, right


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "number",
    ["1_2", "%EF%BC%91%EF%BC%92", "%2B12", "12.0", "", "9007199254740992", "-9223372036854775809", "9" * 100],
)
def test_a_deployment_is_ascii_digits_within_the_limits(server: Server, path: str, number: str) -> None:
    message = detail(server.get(f"{path}?deployment={number}", key=server.key("read")))
    assert message.startswith("deployment: ")
    assert message.endswith(
        "is not an integer from -9,007,199,254,740,991 to 9,007,199,254,740,991. Write it in plain digits."
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "query",
    [
        "deployment=9007199254740991&deployment=-9007199254740991",
        "since=2026-11-01&until=2026-11-01",
        "tenant=&until=1d",
    ],
)
def test_valid_parameters_are_accepted(server: Server, path: str, query: str) -> None:
    assert server.get(f"{path}?{query}", key=server.key("read")).status_code == 200


@pytest.mark.parametrize(
    ("path", "least", "most"),
    [
        ("/api/v1/reports/views?limit", 1, 100_000),
        ("/api/v1/quarantine?limit", 1, 1_000),
        ("/api/v1/deployments?limit", 1, 1_000),
        ("/api/v1/inspect?session=s&wait", 0, 30),
        ("/api/v1/events/live?recent", 1, ROWS_MAX),
    ],
)
def test_a_number_must_be_within_its_bounds(server: Server, path: str, least: int, most: int) -> None:
    key, name = server.key("read"), re.split(r"[?&]", path)[-1]
    for number in (str(least - 1), str(most + 1), f"0{most}", "%EF%BC%91", "", "9" * 5_000):
        message = detail(server.get(f"{path}={number}", key=key))
        assert message.startswith(f"{name}: ")
        assert message.endswith(f" is not an integer from {least} to {most:,}.")


def test_the_command_has_the_same_limit_of_rejections_as_the_server() -> None:
    assert embedsink.cli.quarantine.LIMIT_MAX == embedsink.http.api.quarantine.LIMIT_MAX
