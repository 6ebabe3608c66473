"""Under which address a reader reached this server, for examples that can be pasted."""

import re

from starlette.requests import Request

from embedsink.http.transport import Transport

# Examples go into a shell, so what a sender writes into `Host` is taken only where it is the name of a host.
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_HOST_CHARACTERS_MAX = 261


def address_of(request: Request) -> str:
    """Scheme, host and port as the reader wrote them, such as `https://events.example.com`."""
    transport: Transport = request.state.transport
    # Behind a proxy a key over plain HTTP is refused, so that is never what an example says.
    scheme = "https" if transport is not Transport.ANYTHING else request.url.scheme
    hosts = request.headers.getlist("host")
    if len(hosts) == 1 and len(hosts[0]) <= _HOST_CHARACTERS_MAX and _HOST.fullmatch(hosts[0]):
        return f"{scheme}://{hosts[0]}"
    return f"{scheme}://localhost"
