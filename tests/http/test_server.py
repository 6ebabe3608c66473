"""A start that can't succeed ends with one sentence and exit code 1, before anything is opened."""

import asyncio
import errno
import resource
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedsink.auth.identity import Login
from embedsink.errors import Misconfigured
from embedsink.http import server
from embedsink.http.server import ListenOptions, connections_max
from embedsink.settings import Settings
from tests.cli.test_cli import assert_failed, embedsink
from tests.support.envelopes import view
from tests.support.servers import free_port, running_server, wait_until

# A certificate for these tests, valid for localhost and for a hundred years.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBfzCCASWgAwIBAgIUMobXnfnOkgfW91N96sE40f3pk8EwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTEyMDQxNloYDzIxMjYxMDI4
MTIwNDE2WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARXK/sPNVFt5NJRnTXWqeoUEfWKdWDzLCYRKmHqZ98YW03vYc433JC9
6tdtSQ27KKZgIF3rN1v1VVLVnaBFclkKo1MwUTAdBgNVHQ4EFgQU/VoDRc9m6iEd
38R6t6QqluHXa/IwHwYDVR0jBBgwFoAU/VoDRc9m6iEd38R6t6QqluHXa/IwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAroxOWoeqBSVFWU+FjsXY
11zFkS6dim5OVuwxrTBS+UcCICOL0b5K2DC08X7tOmLBo85sWijU7Hf3pc3qO1/G
Uzk4
-----END CERTIFICATE-----
"""
PRIVATE_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgXOZHhOr5TJg4Yc1r
IbdPhs93X7xnBpOgxGArVCy4LOWhRANCAARXK/sPNVFt5NJRnTXWqeoUEfWKdWDz
LCYRKmHqZ98YW03vYc433JC96tdtSQ27KKZgIF3rN1v1VVLVnaBFclkK
-----END PRIVATE KEY-----
"""
OTHER_PRIVATE_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgSRATOK5qiLc36HbU
8FzuifhgUGs5jqolOTRBukSc1F2hRANCAAQFscdS2KO8bV35POuiQB7AFQt3BxX7
MwZzZlOsbnnYnKUWylRM/CFTOkdlqwbYnalMxEMQ/N5KrLC1FMjHLSkj
-----END PRIVATE KEY-----
"""
ENCRYPTED_PRIVATE_KEY = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAj5NS221CgmcQICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEOSbuNgUFQr4AtcTIqzD0xEEgZC1
atxMKwLOe90chzkHq27AJQDddthHHBxBV1uKuoF3w/YEcc5lqV8Xzo+14uOpmB1j
s93MztDpahja2aRyN6luN5xO74oNcDdx7gk120doF0ZZHnoFo4s8kSgKpB4Rn7ok
Fw7KFwB1iBFtsBh15W1snpJcaTGXgoOzIZoXXepKmueYzMRI0Ctx1LqaVPoKDlA=
-----END ENCRYPTED PRIVATE KEY-----
"""


@pytest.mark.parametrize(
    ("wanted", "descriptors", "expected"), [(16, 20_000, 16), (4_096, 20_000, 4_096), (4_096, 450, 98), (16, 97, 1)]
)
def test_connections_are_limited_by_the_setting_and_by_the_system(
    monkeypatch: pytest.MonkeyPatch, wanted: int, descriptors: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert connections_max(Settings(connections_max=wanted)) == expected


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def pem(folder: Path, private_key: str, certificate: str = CERTIFICATE) -> tuple[str, ...]:
    """Write a certificate and a private key. Return the options of `serve` for them."""
    (folder / "cert.pem").write_text(certificate)
    (folder / "key.pem").write_text(private_key)
    return "--certificate", str(folder / "cert.pem"), "--private-key", str(folder / "key.pem")


def assert_does_not_start(data: Path, *options: str, message: str) -> None:
    assert_failed(embedsink("serve", "--data", data, *options), message)
    assert not (data / "store.duckdb").exists()
    assert not list(data.glob("journal/*"))


def test_a_port_in_use_prints_one_sentence(tmp_path: Path, used_port: int) -> None:
    message = f"--port {used_port}: is in use. Choose another port, or stop the program that uses it."
    message += f" For example: --port {used_port + 1}."
    assert_does_not_start(tmp_path / "data", "--port", str(used_port), message=message)


def test_the_suggested_port_after_65535_is_65534() -> None:
    taken = OSError(errno.EADDRINUSE, "Address already in use")
    assert ListenOptions(port=65_535)._bind_error(taken).endswith(" For example: --port 65534.")


@pytest.mark.parametrize("host", ["nowhere.invalid", "203.0.113.9", "a" * 70 + ".example.com"])
def test_a_host_of_another_machine_prints_one_sentence(tmp_path: Path, host: str) -> None:
    assert_does_not_start(tmp_path / "data", "--host", host, "--behind-proxy", message=f"--host {host} --port 8321: ")


def test_a_damaged_key_file_prints_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{")
    assert_does_not_start(tmp_path, message="keys.json: is not JSON (")


@pytest.mark.parametrize(
    ("private_key", "certificate", "message"),
    [
        ("no PEM", "no PEM", "not a matching pair in PEM. Give a certificate and its private key"),
        (OTHER_PRIVATE_KEY, CERTIFICATE, "not a matching pair in PEM."),
        (ENCRYPTED_PRIVATE_KEY, CERTIFICATE, "key.pem: is encrypted. Decrypt it"),
    ],
)
def test_an_invalid_certificate_prints_one_sentence(
    tmp_path: Path, private_key: str, certificate: str, message: str
) -> None:
    assert_does_not_start(tmp_path / "data", *pem(tmp_path, private_key, certificate), message=message)


def test_localhost_is_bound_at_all_its_addresses() -> None:
    with ListenOptions("localhost", free_port()).bound_sockets() as sockets:
        addresses = {listening_socket.getsockname()[0] for listening_socket in sockets}
    assert "127.0.0.1" in addresses
    assert addresses <= {"127.0.0.1", "::1"}


def two_addresses(first: tuple[str, int], second: tuple[str, int]) -> Any:
    """Return a replacement for getaddrinfo that resolves every name to both addresses."""
    return lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (first, second)]


def test_a_bound_address_is_released_when_another_fails(monkeypatch: pytest.MonkeyPatch, used_port: int) -> None:
    port = free_port()
    monkeypatch.setattr(socket, "getaddrinfo", two_addresses(("127.0.0.1", port), ("127.0.0.1", used_port)))
    with pytest.raises(Misconfigured, match="is in use"), ListenOptions("two", port).bound_sockets():
        pass
    monkeypatch.undo()
    with ListenOptions(port=port).bound_sockets() as sockets:
        assert len(sockets) == 1


def test_an_unavailable_address_is_skipped_if_another_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(socket, "getaddrinfo", two_addresses(("203.0.113.9", port), ("127.0.0.1", port)))
    with ListenOptions("two", port).bound_sockets() as sockets:
        assert [listening_socket.getsockname() for listening_socket in sockets] == [("127.0.0.1", port)]


@pytest.mark.server
def test_a_valid_certificate_serves_https(tmp_path: Path) -> None:
    port = free_port()
    words = [sys.executable, "-m", "embedsink", "serve", "--data", str(tmp_path / "data"), "--port", str(port)]
    trusting = ssl.create_default_context(cadata=CERTIFICATE)
    trusting.check_hostname = False
    with subprocess.Popen([*words, *pem(tmp_path, PRIVATE_KEY)], stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: answers(port), description="the server listens")
            with urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", context=trusting) as response:
                assert response.status == 200
            server.terminate()
            assert server.wait(20) == 0
        finally:
            server.kill()


@pytest.mark.server
def test_the_command_exits_with_0_after_loading_and_reporting_events(tmp_path: Path) -> None:
    # The servers of most tests are forked, so they end without Python's finalization. A wrapped server is a command.
    with running_server(tmp_path / "data", wrapper=["env"]) as running:
        assert running.post(view(), key=running.key("ingest")).status == 202
        reader = running.key("read")
        assert running.get("/api/v1/inspect?since=1h&wait=10", key=reader).json()["isComplete"]
        assert running.get("/api/v1/reports/views.parquet", key=reader).status == 200
        assert running.stop() == 0


def test_a_tls_handshake_that_never_begins_is_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_TIMEOUT_S", 0.2)
    _, certificate, _, private_key = pem(tmp_path, PRIVATE_KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private_key)

    async def say_nothing() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = await loop.create_server(asyncio.Protocol, sock=listener, ssl=context, backlog=1)
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            try:
                assert await asyncio.wait_for(reader.read(), 5) == b""
            finally:
                writer.close()
                server.close()

    with asyncio.Runner(loop_factory=server.new_loop) as runner:
        runner.run(say_nothing())


def answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_does_not_load_numpy() -> None:
    look = "import sys, embedsink.http.server; print('numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "False\n", "numpy takes 12 MiB, and only repairs and large stores need it"


@pytest.mark.parametrize(
    ("options", "server_url", "message"),
    [
        ({}, "https://events.example.com", "Give --behind-proxy"),
        ({"behind_proxy": True}, "http://127.0.0.1:8321", "login.server_url has HTTP"),
        ({"certificate": Path("c.pem")}, "http://127.0.0.1:8321", "login.server_url has HTTP"),
        ({}, "http://127.0.0.1:8321", None),
        ({"behind_proxy": True}, "https://events.example.com", None),
        ({"certificate": Path("c.pem")}, "https://events.example.com", None),
    ],
)
def test_logins_need_a_server_url_with_the_scheme_of_the_server(
    options: dict[str, Any], server_url: str, message: str | None
) -> None:
    login = Login(issuer="https://login.example.com", client_id="c", server_url=server_url, readers=["r"])
    listen = ListenOptions(**options)
    if message is None:
        listen.check_server_url(login)
    else:
        with pytest.raises(Misconfigured, match=message):
            listen.check_server_url(login)
    listen.check_server_url(None)
