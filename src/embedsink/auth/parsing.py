"""What people write of a key, read strictly: spans of time, deployments, labels, origins."""

import re

from embedsink.errors import Misconfigured, preview

# As the wire has it (SafeInteger in envelope/catalog.py), in either direction: importing that would load pydantic.
DEPLOYMENT_MAX = 2**53 - 1
DURATION_DAYS_MAX = 36_500
LABEL_CHARACTERS_MAX = 100

_ORIGIN = re.compile(
    r"(https?)://([0-9a-z](?:[0-9a-z_.-]*[0-9a-z])?|\[[0-9a-f:]+\])(?::([0-9]{1,5}))?/?",
    re.ASCII | re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_DEPLOYMENT = re.compile(r"-?[0-9]{1,16}")
_DURATION = re.compile(r"([0-9]{1,12})([smhdw])")
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_duration(text: str) -> int:
    """A span of time such as `90d`, in seconds.

    Raises:
        Misconfigured: it is not a number with a unit (s, m, h, d, w), or not between a second and 100 years.
    """
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 1 <= seconds <= DURATION_DAYS_MAX * _UNITS_S["d"]:
        raise Misconfigured(
            f"duration: {preview(text)} is not a number with s, m, h, d or w, from 1s to {DURATION_DAYS_MAX}d. "
            "Write it like 90d."
        )
    return seconds


def parse_deployment(text: str, *, name: str = "deployment") -> int:
    """A deployment as it is typed: digits of ASCII, no zeros in front, and no more than the wire allows.

    Args:
        name: what it is called where it was typed.

    Raises:
        Misconfigured: it can be no deployment.
    """
    number = int(text) if _DEPLOYMENT.fullmatch(text) else None
    if number is None or not is_deployment(number) or str(number) != text:
        raise Misconfigured(
            f"{name}: {preview(text)} is not an integer from {-DEPLOYMENT_MAX:,} to {DEPLOYMENT_MAX:,}. "
            "Write it in plain digits."
        )
    return number


def is_deployment(number: object) -> bool:
    """Whether the wire takes this as a deployment: an integer that is safe in JSON (RFC 7493), so no boolean."""
    return type(number) is int and abs(number) <= DEPLOYMENT_MAX


def is_label(text: object) -> bool:
    """Whether a text can stand in a list of keys: one printable line."""
    return isinstance(text, str) and len(text) <= LABEL_CHARACTERS_MAX and text.isprintable()


def parse_label(text: str) -> str:
    """What a key is for: one printable line.

    Raises:
        Misconfigured: it is too long, or more than a line.
    """
    if not is_label(text):
        raise Misconfigured(
            f"label: {preview(text)} is not one line of at most {LABEL_CHARACTERS_MAX} characters. Shorten it."
        )
    return text


def normal_origin(origin: str) -> str:
    """An origin as browsers put it into their `Origin` header (RFC 6454, section 6.2).

    Raises:
        Misconfigured: it is no origin of a web page.
    """
    match = _ORIGIN.fullmatch(origin)
    if match is None or not 0 < int(match[3] or 1) < 65_536:
        raise Misconfigured(
            f"origin: {preview(origin)} is not http(s)://host or http(s)://host:port. Write it like "
            "https://app.example.com: no path, no wildcard, no null; other scripts in their xn-- form."
        )
    scheme, host = match[1].lower(), match[2].lower()
    port = int(match[3] or _DEFAULT_PORTS[scheme])
    return f"{scheme}://{host}" if port == _DEFAULT_PORTS[scheme] else f"{scheme}://{host}:{port}"
