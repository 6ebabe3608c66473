"""The base URL that the reader used, for examples that can be pasted."""

import re

from starlette.requests import Request

from embedsink.http.transport import Transport

# Readers paste examples into a shell, so only a valid host name is copied from the `Host` header.
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_HOST_CHARACTERS_MAX = 261


def base_url_of(request: Request) -> str:
    """Return the scheme, host and port of the request, such as `https://events.example.com`."""
    transport: Transport = request.state.transport
    # If keys require HTTPS, examples always use it.
    scheme = "https" if transport is not Transport.ANYTHING else request.url.scheme
    hosts = request.headers.getlist("host")
    if len(hosts) == 1 and len(hosts[0]) <= _HOST_CHARACTERS_MAX and _HOST.fullmatch(hosts[0]):
        return f"{scheme}://{hosts[0]}"
    return f"{scheme}://localhost"
