"""URLs and paths without what may identify a person: queries, path parameters, passwords and ids."""

import re

_WORD_OF_PATH = re.compile(r"[A-Za-z_-]{1,32}|v[0-9]{1,3}|")
_ID_OF_PATH = ":id"
_WEB_URL = re.compile(
    r"\s*(?P<scheme>https?|[a-z][a-z0-9+.-]*(?=://)):[/\\]*(?P<host>[^/\\]*)(?P<path>.*)", re.IGNORECASE | re.DOTALL
)
_SLASHES = re.compile(r"[/\\]{2,}")
_STRIP_COUNT_MAX = 8
# Parameters of a part of a path, such as ;jsessionid=… (RFC 3986, section 3.3).
_PATH_PARAMETERS = re.compile(r";[^/\\]*")
_CONTROL = re.compile(r"[\x00-\x1f]+")
# Schemes that precede another URL, such as blob:https://a.example/b.
_NESTED_URL = re.compile(r"\s*(?:(?:blob|filesystem|feed|jar|view-source):\s*)+", re.IGNORECASE)


def strip_query(url: str) -> str:
    """Return a URL or a path without its query, fragment and path parameters, and the user and password of its host."""
    # What is left may be another URL, such as //b of /\\@/b. An export that is imported again must not change.
    for _ in range(_STRIP_COUNT_MAX):
        origin, path = _split_url(url)
        stripped = origin + _PATH_PARAMETERS.sub("", path)
        if stripped == url:
            return url
        url = stripped
    return ""  # no page has such a URL


def fold_ids(url: str) -> str:
    """Return a URL or a path without its query, with `:id` for each part of the path that may be an id.

    A part stays if it has at most 32 ASCII letters, `-` and `_`, or is a version such as `v2`.
    """
    origin, path = _split_url(strip_query(url))
    parts = [one if _WORD_OF_PATH.fullmatch(one) else _ID_OF_PATH for one in re.split(r"[/\\]", path)]
    return origin + "/".join(parts)


def _split_url(url: str) -> tuple[str, str]:
    """Return the origin of a URL without a user, and its path. Any other text is a path.

    As in browsers, any number of slashes and backslashes may follow the scheme, and control characters are ignored
    (URL Standard, section 4.4).
    """
    text = re.split("[?#]", _CONTROL.sub("", url), maxsplit=1)[0]
    nested = _NESTED_URL.match(text)
    if nested is not None:
        origin, path = _split_url(text[nested.end() :])
        return nested[0].lower() + origin, path
    web = _WEB_URL.match(text)
    if web is not None:
        return f"{web['scheme'].lower()}://{web['host'].rpartition('@')[2]}", web["path"]
    slashes = _SLASHES.match(text)
    if slashes is None:
        return "", text
    # Browsers read the first part of //ann:secret@a.example/b as a host.
    first, separator, rest = text[slashes.end() :].partition("/")
    return "", f"/{first.rpartition('@')[2]}{separator}{rest}"
