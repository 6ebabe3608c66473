"""The URLs of resources in responses."""

from pathlib import Path

import pytest

from embedsink.http.problems import SCIM_PREFIX
from tests.support.app import Server, open_server
from tests.support.login_provider import login_toml
from tests.support.stores import make_folder

USER_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:User"


def created_location(server: Server, host: str, *, user_name: str = "ann", **options: str) -> str:
    """Create a user with this `Host`. Return the location, which is the same in the header and in the body."""
    response = server.request(
        "POST",
        f"{SCIM_PREFIX}/Users",
        key=server.key("scim"),
        headers={"host": host},
        json={"schemas": [USER_SCHEMA], "userName": user_name},
        **options,
    )
    assert response.status_code == 201, response.text
    location = response.headers["location"]
    assert location == response.json()["meta"]["location"]
    return location.removesuffix(f"{SCIM_PREFIX}/Users/{response.json()['id']}")


def test_a_location_has_the_host_of_the_request_if_it_is_valid(tmp_path: Path) -> None:
    with open_server(tmp_path) as server:
        for number, (host, expected) in enumerate(
            [
                ("events.example.com", "http://events.example.com"),
                ("[::1]:8321", "http://[::1]:8321"),
                ('evil.example"<x>', "http://localhost"),
                ("a/b", "http://localhost"),
                ("", "http://localhost"),
            ]
        ):
            assert created_location(server, host, user_name=f"u{number}") == expected


def test_a_location_has_the_scheme_of_the_client(tmp_path: Path) -> None:
    with open_server(tmp_path, https_only=True) as server:
        assert created_location(server, "events.example.com", base_url="https://test") == "https://events.example.com"


@pytest.mark.parametrize("host", ["events.example.com", "evil.example"])
def test_a_location_has_the_configured_url_of_the_server(tmp_path: Path, host: str) -> None:
    make_folder(tmp_path)
    (tmp_path / "identity.toml").write_text(login_toml("http://127.0.0.1:9", "https://events.example.com"))
    with open_server(tmp_path) as server:
        assert created_location(server, host) == "https://events.example.com"
