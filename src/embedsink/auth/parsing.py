"""Strict parsers for what people type: durations, deployments, tenants, labels and origins."""

import re

from embedsink.errors import Misconfigured, preview

# The same limit as SafeInteger in protocol/messages.py, in either direction. Importing it would load pydantic.
DEPLOYMENT_MAX = 2**53 - 1
DURATION_DAYS_MAX = 36_500
LABEL_CHARACTERS_MAX = 100
# In a claim with deployments or tenants, this text allows all of them.
ALL = "*"
TENANT_CHARACTERS_MAX = 200
PORT_MAX = 65_535

_ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>[0-9a-z](?:[0-9a-z_.-]*[0-9a-z])?|\[[0-9a-f:]+\])(?::(?P<port>[0-9]{1,5}))?/?",
    re.ASCII | re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_DEPLOYMENT = re.compile(r"-?[0-9]{1,16}")
_DEPLOYMENT_DAYS = re.compile(r"(?P<deployment>-?[0-9]{1,16})=(?P<days>[0-9]{1,5})")
_DURATION = re.compile(r"(?P<count>[0-9]{1,12})(?P<unit>[smhdw])")
_SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_duration(text: str) -> int:
    """Return a duration such as `90d` in seconds.

    Raises:
        Misconfigured: the text is not a number with a unit (s, m, h, d, w), or not between 1 second and 100 years.
    """
    match = _DURATION.fullmatch(text)
    seconds = int(match["count"]) * _SECONDS_BY_UNIT[match["unit"]] if match else 0  # 0 is refused.
    if not 1 <= seconds <= DURATION_DAYS_MAX * _SECONDS_BY_UNIT["d"]:
        raise Misconfigured(
            f"duration: {preview(text)} is not a duration from 1s to {DURATION_DAYS_MAX}d. Write a number and a "
            "unit: s, m, h, d or w. Example: 90d."
        )
    return seconds


def parse_deployment(text: str, *, name: str = "deployment") -> int:
    """Return the deployment id that a text of decimal digits represents. Leading zeros are refused.

    Args:
        text: what the user typed.
        name: the name of the parameter, for the error message.

    Raises:
        Misconfigured: the text is not an integer within `DEPLOYMENT_MAX`, or has leading zeros.
    """
    number = int(text) if _DEPLOYMENT.fullmatch(text) else None
    if number is None or abs(number) > DEPLOYMENT_MAX or str(number) != text:
        raise Misconfigured(
            f"{name}: {preview(text)} is not an integer from {-DEPLOYMENT_MAX:,} to {DEPLOYMENT_MAX:,}. "
            "Write it in plain digits."
        )
    return number


def parse_deployment_days(text: str, *, name: str) -> dict[int, int]:
    """Return the numbers of days of deployments, such as `12=30,13=0`.

    Args:
        text: the deployments and days.
        name: the name of the setting, for the error message.

    Raises:
        Misconfigured: an item is not a deployment and at most `DURATION_DAYS_MAX` days, or a deployment repeats.
    """
    days_by_deployment: dict[int, int] = {}
    for item in text.split(","):
        match = _DEPLOYMENT_DAYS.fullmatch(item)
        if match is None or int(match["days"]) > DURATION_DAYS_MAX:
            raise Misconfigured(
                f"{name}: {preview(item)} is not deployment=days with 0 to {DURATION_DAYS_MAX:,} days. Write items "
                "separated by commas, without spaces. Example: 12=30,13=0"
            )
        deployment = parse_deployment(match["deployment"], name=name)
        if deployment in days_by_deployment:
            raise Misconfigured(f"{name}: deployment {deployment} has two numbers of days. Delete one of them.")
        days_by_deployment[deployment] = int(match["days"])
    return days_by_deployment


def parse_label(text: str) -> str:
    """Return the label of a key unchanged, if it is one printable line.

    Raises:
        Misconfigured: the label is too long, or has a character that can't be printed.
    """
    if len(text) > LABEL_CHARACTERS_MAX or not text.isprintable():
        raise Misconfigured(
            f"label: {preview(text)} is not one line of at most {LABEL_CHARACTERS_MAX} characters. Shorten it."
        )
    return text


def parse_tenant(text: object) -> str:
    """Return the tenant of a key unchanged, if it is one printable line.

    Raises:
        Misconfigured: the tenant is empty or too long, has a character that can't be printed, or is `ALL`.
    """
    is_line = isinstance(text, str) and 1 <= len(text) <= TENANT_CHARACTERS_MAX and text.isprintable()
    if not isinstance(text, str) or not is_line or not text.strip() or text == ALL:
        raise Misconfigured(
            f"tenant: {preview(text)} is not one line of 1 to {TENANT_CHARACTERS_MAX} characters, or is *. Correct it."
        )
    return text


def normalize_origin(origin: str) -> str:
    """Return an origin as browsers send it in the `Origin` header (RFC 6454, section 6.2).

    The result is in lower case, without a default port and without a slash at the end.

    Raises:
        Misconfigured: the text is not the origin of a web page.
    """
    match = _ORIGIN.fullmatch(origin)
    if match is None or (match["port"] and not 1 <= int(match["port"]) <= PORT_MAX):
        raise Misconfigured(
            f"origin: {preview(origin)} is not http(s)://host or http(s)://host:port. Example: "
            "https://app.example.com. Paths, wildcards and null are not allowed. Write a non-ASCII host name in its "
            "xn-- form."
        )
    scheme, host = match["scheme"].lower(), match["host"].lower()
    if not match["port"] or int(match["port"]) == _DEFAULT_PORTS[scheme]:
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{int(match['port'])}"
