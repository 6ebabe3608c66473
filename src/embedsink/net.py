"""Checks of host names and IP addresses, and requests to other servers."""

import ipaddress
import urllib.request
from typing import Any
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address, which only this machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirects."""

    def redirect_request(self, *_arguments: object, **_options: object) -> None:
        return None  # urllib then raises the redirect as an HTTPError.


def url_opener(url: str) -> urllib.request.OpenerDirector:
    """Return an opener for the host of a URL. It follows no redirects, and uses no proxy for this machine.

    A redirect could send a secret to another server. A proxy would send the request to its own loopback address.
    """
    handlers: list[Any] = [_NoRedirects]
    if is_loopback(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)
