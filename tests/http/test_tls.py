"""HTTPS: changed certificates, HSTS, and the proxies whose headers count."""

import contextlib
import os
import signal
import ssl
import time
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured
from embedsink.http.app import create_app
from embedsink.settings import Settings
from tests.http.test_server import CERTIFICATE, PRIVATE_KEY, answers, pem
from tests.support.envelopes import view
from tests.support.forked_program import start_program
from tests.support.servers import free_port, running_server, wait_until
from tests.support.stores import make_folder


def other_certificate(name: str, key_type: str) -> tuple[str, str]:
    """Return a new private key and its certificate for this name, in PEM."""
    is_rsa = key_type == "RSA"
    key = rsa.generate_private_key(65_537, 2_048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    now = datetime.now(UTC)
    valid = builder.serial_number(7).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    private_key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private_key.decode(), valid.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


@pytest.mark.server
@pytest.mark.parametrize("key_type", ["RSA", "EC"])
def test_a_changed_certificate_is_loaded_without_a_restart(tmp_path: Path, key_type: str) -> None:
    def served_certificate() -> str:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)

    data, log, port = tmp_path / "data", tmp_path / "log", free_port()
    make_folder(data)
    injected = "from embedsink.http import certificate; certificate.CHECK_INTERVAL_S = 0.05"
    words = ["serve", "--data", str(data), "--port", str(port), *pem(tmp_path, PRIVATE_KEY)]
    program = start_program(words, log=log, environment=os.environ, injected=injected)
    try:
        wait_until(lambda: answers(port), description="the server listens")
        assert served_certificate().split() == CERTIFICATE.split()
        context = ssl._create_unverified_context()
        with contextlib.closing(HTTPSConnection("127.0.0.1", port, context=context)) as connection:
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            private_key, certificate = other_certificate("new.example.com", key_type)
            (tmp_path / "cert.pem").write_text(certificate)
            wait_until(lambda: "certificate_invalid" in log.read_text(), description="the pair does not match")
            time.sleep(0.2)
            assert log.read_text().count("certificate_invalid") == 1
            assert served_certificate().split() == CERTIFICATE.split()
            (tmp_path / "key.pem").write_text(private_key)
            wait_until(lambda: served_certificate().split() == certificate.split(), description="the new one is served")
            connection.request("GET", "/healthz")  # The open connection keeps its certificate.
            assert connection.getresponse().read()
        assert "certificate_loaded" in log.read_text()
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 0
    finally:
        program.kill()


@pytest.mark.server
@pytest.mark.parametrize(
    ("arguments", "max_age_s", "expected"),
    [
        ([], "31536000", None),
        (["--behind-proxy"], "31536000", "max-age=31536000"),
        (["--behind-proxy"], "60", "max-age=60"),
        (["--behind-proxy"], "0", "max-age=0"),
    ],
)
def test_responses_over_https_forbid_plain_http(
    tmp_path: Path, arguments: list[str], max_age_s: str, expected: str | None
) -> None:
    https = {"X-Forwarded-Proto": "https"}
    with running_server(tmp_path / "data", arguments=arguments, EMBEDSINK_HSTS_MAX_AGE_S=max_age_s) as running:
        responses = [
            running.post(view(), key=running.key("ingest"), **https),
            running.get("/api/v1/reports", key=running.key("read"), **https),
            running.get("/nowhere", **https),
            running.get("/login", **https),
        ]
    assert [response.status for response in responses] == [202, 200, 404, 200]
    assert {response.headers.get("strict-transport-security") for response in responses} == {expected}


@pytest.mark.server
@pytest.mark.parametrize(
    ("addresses", "status"),
    [("any", 202), ("127.0.0.1", 202), ("10.0.0.0/8 127.0.0.0/8", 202), ("203.0.113.0/24 fd00::/8", 403)],
)
def test_only_a_trusted_proxy_states_the_scheme_and_the_address(tmp_path: Path, addresses: str, status: int) -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "198.51.100.7"}
    with running_server(
        tmp_path / "data",
        arguments=["--behind-proxy"],
        EMBEDSINK_PROXY_ADDRESSES=addresses,
        EMBEDSINK_RATE_ANONYMOUS_PER_S="2",
    ) as running:
        _, key = KeyStore(running.data / "keys.json").create(KeyKind.INGEST, now=time.time())
        time.sleep(0.2)  # until the server has read the key
        response = running.post(view(), key=key, **headers)
        assert response.status == status
        if status == 403:
            assert response.json()["reason"] == "plain_http"
        refusals = (running.get("/nowhere", **headers) for _ in range(20))
        limited = next(refusal for refusal in refusals if refusal.status == 429)
        address = "198.51.100.7" if status == 202 else "127.0.0.1"
        assert f"address {address}: sends more than" in limited.json()["detail"]


def test_an_invalid_proxy_address_prints_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"EMBEDSINK_PROXY_ADDRESSES: 10\.0\.0\.5/8 has host bits"):
        create_app(DataFolder(tmp_path), Settings(proxy_addresses="10.0.0.5/8"))
