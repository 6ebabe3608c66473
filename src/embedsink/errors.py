"""The errors that embedsink raises on purpose. Any other exception is a bug.

    EmbedsinkError
    ├── Refused             the request is wrong; resending it unchanged fails again
    │   └── NothingAccepted     (client)
    ├── Unavailable         the request is valid; a retry may succeed
    │   └── SigningKeysNotFetched   (auth)
    ├── Misconfigured       the operator has to change something
    │   ├── FolderTaken         (data_folder)
    │   └── BackupDamaged       (backup)
    ├── StoreBroken         (store) the database has to be reopened
    │   └── StoreDamaged        the file has to be rebuilt
    ├── StoreRefused        (store) the store can't do this at the moment; a retry may succeed
    │   └── StoreTooSmall       its memory limit is too low for the operation
    ├── SqlFailed           (store) the SQL is invalid, or fails on these rows
    ├── LoginFailed         (auth) a person can't log in at the identity provider
    ├── LoggedOut           (auth) a logout has overtaken the login
    ├── IssuerUnreachable   (auth) an identity provider does not respond, or has an error
    ├── RefusedByIssuer     (auth) an identity provider refuses a request
    ├── Unreachable         (client)
    └── NotEmbedsink        (client)

An error message has the form: where: what is wrong (value). What is allowed. What to do.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable
from contextlib import suppress
from difflib import SequenceMatcher
from hashlib import sha256

from embedsink.reasons import Reason

PREVIEW_CHARACTERS_MAX = 64
# The minimum similarity of a misspelt name to the intended one, as a ratio of `difflib`.
_SIMILARITY_MIN = 0.6
_WORD = re.compile(r"[^_]+")
# At least 32 characters: `sales_admin_total` is a measure, not a credential.
_KEY_PREFIX = "es_(?P<kind>ingest|read|sync|scim|admin)_"
# The next key may follow without a separator.
_KEY = re.compile(rf"{_KEY_PREFIX}(?:(?!es_[a-z]{{4,6}}_)[0-9A-Za-z]){{32,}}")
# The beginning of a JWT in base64url: its header begins with `{"`, possibly with white space before the quotation mark.
JWT_MARK = "e(?:y[AIJKL]|w[k0o])"
_JWT_MARK = re.compile(JWT_MARK)
# The beginning of an escape such as `\u000e`, without its last digit.
_ESCAPE_START = re.compile(r"\\u[0-9a-fA-F]{3}")
_JWT_HEADER_CHARACTERS_MIN = 16
_JWT_HEADER_CHARACTERS_MAX = 8_192
_JWT_HEADER_START = re.compile(rb'\{[ \t\r\n]*"[ -~\t\r\n]*')
# A header contains one mark; further marks are coincidences. Decoding a text at each mark would take quadratic time.
_JWT_HEADERS_DECODED_MAX = 8
_JWT_HEADER = re.compile(r"[0-9A-Za-z_-]++")
# The payload and the signature of a JWT (RFC 7515, section 3.1). The quantifiers don't backtrack.
_JWT_REST = re.compile(r"\.[0-9A-Za-z_-]++\.[0-9A-Za-z_-]++")
# Unlike `json.dumps`, an encoder can stop early.
_ENCODER = json.JSONEncoder(default=str)


class EmbedsinkError(Exception):
    """The base class of embedsink's errors. The message is safe to show to the client."""


class Refused(EmbedsinkError):
    """The request is wrong. `reason.status` is the status of the response."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(detail or reason.sentence)
        self.reason = reason


class Unavailable(EmbedsinkError):
    """The server can't serve the request now. The client must wait at least `retry_after_s` seconds before it retries.

    Nothing of the request is stored, except after `storage_failed`: then its events may or may not be stored.
    """

    def __init__(self, reason: Reason, detail: str = "", *, retry_after_s: int = 1) -> None:
        super().__init__(detail or reason.sentence)
        self.reason = reason
        self.retry_after_s = retry_after_s


class Misconfigured(EmbedsinkError):
    """The operator has to change something, such as a setting, a file or a folder. The message names it."""


def preview(value: object) -> str:
    """Return an invalid value for an error message: escaped JSON of at most 64 characters, with API keys redacted."""
    try:
        text = _encode_beginning(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    if len(text) <= PREVIEW_CHARACTERS_MAX:
        return text
    # Close the quotation marks of a string that is cut off.
    end = '…"' if text.startswith('"') else "…"
    return text[: PREVIEW_CHARACTERS_MAX - len(end)] + end


def _encode_beginning(value: object) -> str:
    """Return at least the beginning of a value as JSON without API keys. Stop early: a body may have a megabyte."""
    if not isinstance(value, dict | list):
        return redact_keys(_ENCODER.encode(value))
    text = ""
    # Each chunk has whole strings, so no API key is split between two chunks.
    for chunk in _ENCODER.iterencode(value):
        text += redact_keys(chunk)
        if len(text) > PREVIEW_CHARACTERS_MAX:
            break
    return text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant: a similar name, else a name with a similar word, else None.

    For example, `vew` means `view_count`, because it is similar to `view`.
    """
    if len(name) > PREVIEW_CHARACTERS_MAX:
        return None  # Too long for a typing error, and slow to compare.
    candidates = list(known)
    name_similarities = {candidate: _similarity(name, [candidate]) for candidate in candidates}
    word_similarities = {candidate: _similarity(name, _WORD.findall(candidate)) for candidate in candidates}
    for similarities in (name_similarities, word_similarities):
        # Of equally similar names, choose the last in alphabetical order, so that the result is always the same.
        best = max(candidates, key=lambda candidate: (similarities[candidate], candidate), default=None)
        if best is not None and similarities[best] >= _SIMILARITY_MIN:
            return best
    return None


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return advice about an unknown name: the nearest known name, else `otherwise`, else all known names."""
    candidates = list(known)
    nearest_name = nearest(name, candidates)
    if nearest_name is not None:
        return f'Did you mean "{nearest_name}"?'
    if otherwise:
        return otherwise
    return f"Valid names: {', '.join(candidates)}." if candidates else "There are no valid names."


def redact_keys(text: str) -> str:
    """Return the text with each embedsink key and each JWT replaced by its kind and eight digits of its SHA-256.

    The digits grant no access. They identify the key in `keys.json`, which has the digests of all keys. Two different
    keys stay different, which matters if the keys are names in a JSON object.
    """

    return _KEY.sub(lambda match: _redacted(f"es_{match['kind']}", match[0]), _redact_jwts(text))


def _redact_jwts(text: str) -> str:
    """Return the text with each signed JWT redacted. The time is linear."""
    pieces: list[str] = []
    end = 0
    mark = _find_jwt_mark(text, 0, len(text))
    while mark is not None:
        header_end = _JWT_HEADER.match(text, mark).end()  # type: ignore[union-attr]  # The mark matches.
        rest = _JWT_REST.match(text, header_end)
        header_start = None if rest is None else _find_jwt_header(text, mark, header_end)
        if rest is not None and header_start is not None:
            pieces += [text[end:header_start], _redacted("jwt", text[header_start : rest.end()])]
            end = header_end = rest.end()
        mark = _find_jwt_mark(text, header_end, len(text))
    return "".join([*pieces, text[end:]])


def _find_jwt_header(text: str, start: int, end: int) -> int | None:
    """Return where the header of a JWT begins that ends at `end`; None for another text, such as HarleyJames.

    A header is a JSON object with an algorithm (RFC 7515, section 4.1.1), in base64url.
    """
    decoded_count = 0
    mark = _find_jwt_mark(text, max(start, end - _JWT_HEADER_CHARACTERS_MAX), end)
    while mark is not None and decoded_count < _JWT_HEADERS_DECODED_MAX:
        start = mark
        if end - start >= _JWT_HEADER_CHARACTERS_MIN and _JWT_HEADER_START.fullmatch(
            urlsafe_b64decode(text[start : start + _JWT_HEADER_CHARACTERS_MIN])
        ):
            decoded_count += 1
            with suppress(ValueError, RecursionError):
                header = json.loads(urlsafe_b64decode(f"{text[start:end]}=="))  # Further padding is ignored.
                if isinstance(header, dict) and "alg" in header:
                    return start
        mark = _find_jwt_mark(text, start + 1, end)
    return None


def _find_jwt_mark(text: str, start: int, end: int) -> int | None:
    """Return where the first possible beginning of a JWT is; None without one.

    In JSON, its first letter may be the last digit of an escape such as `\\u000e`, which must stay whole.
    """
    marks = (match.start() for match in _JWT_MARK.finditer(text, start, end))
    return next((mark for mark in marks if not _ends_escape(text, mark)), None)


def _ends_escape(text: str, index: int) -> bool:
    """Return whether a character is the last digit of an escape in JSON. After two backslashes, it is not."""
    escape_start = index - 5
    if escape_start < 0 or not _ESCAPE_START.fullmatch(text, escape_start, index):
        return False
    backslash_count = 1
    while text[escape_start - backslash_count : escape_start - backslash_count + 1] == "\\":
        backslash_count += 1
    return backslash_count % 2 == 1


def _redacted(prefix: str, key: str) -> str:
    return f"{prefix}_…{sha256(key.encode()).hexdigest()[:8]}"


def _similarity(name: str, words: list[str]) -> float:
    """Return the similarity of a name to the most similar word, from 0 to 1. Case does not matter."""
    ratios = [SequenceMatcher(None, name.lower(), word.lower()).ratio() for word in words]
    return max(ratios, default=0.0)
