"""The base URL of a request, for locations, and for examples that readers can paste into a shell."""

import re

from starlette.requests import Request

from embedsink.http.transport import Transport

# A domain name, an IPv4 address, or an IPv6 address in brackets, with an optional port. Readers paste examples into a
# shell, so the examples contain no other text of a `Host` header.
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
# 255 characters of a domain name, a colon, and 5 digits of a port.
_HOST_CHARACTERS_MAX = 261


def base_url_of(request: Request) -> str:
    """Return the base URL as the client sees it, such as `https://events.example.com`.

    The host and the port are those of the request. The host is `localhost` if the `Host` header is missing, repeated or
    invalid. The scheme is `https`, unless the server accepts keys over HTTP and the request uses HTTP.
    """
    transport: Transport = request.state.transport
    scheme = request.url.scheme if transport is Transport.ANYTHING else "https"
    hosts = request.headers.getlist("host")
    host = hosts[0] if len(hosts) == 1 else ""
    is_valid = len(host) <= _HOST_CHARACTERS_MAX and _HOST.fullmatch(host) is not None
    return f"{scheme}://{host}" if is_valid else f"{scheme}://localhost"
