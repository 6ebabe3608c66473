"""One definition of "this machine" decides where servers listen, where keys are sent, and who sees the demo."""

import pytest

from embedsink.client.http_client import HttpClient
from embedsink.errors import Misconfigured
from embedsink.http.server import ListenOptions
from embedsink.net import is_loopback


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("engine.localhost", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("127.1", False),
    ],
)
def test_all_modules_agree_whether_a_host_is_this_machine(host: str, is_here: bool) -> None:
    assert is_loopback(host) == is_here
    messages: list[str] = []
    for ask in (
        lambda: ListenOptions(host=host).check_encryption(),
        lambda: HttpClient(f"http://[{host}]" if ":" in host else f"http://{host}", None),
    ):
        try:
            ask()
        except Misconfigured as error:
            messages.append(str(error))
    assert sum("unencrypted" in why for why in messages) == (0 if is_here else 2), messages
