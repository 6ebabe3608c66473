"""Everything that embedsink raises on purpose. Anything else is a bug.

    EmbedsinkError
    ├── Refused          what the sender did wrong; resending the same does not help
    ├── Unavailable      the sender did nothing wrong; the same works later
    └── Misconfigured    what the operator has to change; the program does not start

A message reads: where: what was seen, what is allowed. What to do.
"""

import json
import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from hashlib import sha256

from embedsink.reasons import Reason

PREVIEW_CHARACTERS_MAX = 64
# How much of a name a slip of the keyboard leaves as it was.
_ALIKE = 0.6
_WORD = re.compile(r"[^_]+")
# As long as a key, or almost: `sales_admin_total` is a measure, not a credential.
_KEY = re.compile(r"es_(ingest|read|sync|admin)_[0-9A-Za-z]{32,}")
# Like `json.dumps`, but it can stop early.
_QUOTING = json.JSONEncoder(default=str)


class EmbedsinkError(Exception):
    """The root: its text is safe to show to whoever caused it."""


class Refused(EmbedsinkError):
    """The request is wrong. `reason.status` is the answer's status."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(detail or reason.sentence)
        self.reason = reason


class Unavailable(EmbedsinkError):
    """The request is fine, but not now: wait `retry_after_s` seconds, then send it again. Nothing of it is kept."""

    def __init__(self, reason: Reason, detail: str = "", *, retry_after_s: int = 1) -> None:
        super().__init__(detail or reason.sentence)
        self.reason = reason
        self.retry_after_s = retry_after_s


class Misconfigured(EmbedsinkError):
    """The program can't run like this; the text says what to change."""


def preview(value: object) -> str:
    """A wrong value for an error message: JSON, escaped, at most 64 characters, never a credential."""
    text = ""
    try:
        # Of a list or an object no more than is quoted: it may be a body of a megabyte. A part is a whole string, so no
        # key is cut in two.
        parts = _QUOTING.iterencode(value) if isinstance(value, dict | list) else [_QUOTING.encode(value)]
        for part in parts:
            text += redact_keys(part)
            if len(text) > PREVIEW_CHARACTERS_MAX:
                break
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    if len(text) <= PREVIEW_CHARACTERS_MAX:
        return text
    end = '…"' if text.startswith('"') else "…"
    return text[: PREVIEW_CHARACTERS_MAX - len(end)] + end


def nearest(asked: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant: one like it, or else one with a word like it (`vew` for `view_count`)."""
    if len(asked) > PREVIEW_CHARACTERS_MAX:
        return None  # No slip of the keyboard; and comparing takes time.
    names, asked = list(known), asked.lower()
    for parts_of in (lambda name: [name], _WORD.findall):
        likeness, name = max(((_likeness(asked, parts_of(name.lower())), name) for name in names), default=(0.0, ""))
        if likeness >= _ALIKE:
            return name
    return None


def suggestion(asked: str, known: Iterable[str], otherwise: str = "") -> str:
    """What to say of a name that does not exist: which was probably meant; or else which there are, or `otherwise`."""
    names = list(known)
    meant = nearest(asked, names)
    if meant is not None:
        return f'Did you mean "{meant}"?'
    return otherwise or (f"There are {', '.join(names)}." if names else "There are none.")


def redact_keys(text: str) -> str:
    """The text with each embedsink key in it cut down to its kind, and to the beginning of its SHA-256.

    So two keys that stand as names in one object stay two names; and `keys.json`, which has the digests, tells whose
    a key was. It opens nothing.
    """
    return _KEY.sub(lambda key: f"es_{key[1]}_…{sha256(key[0].encode()).hexdigest()[:8]}", text)


def _likeness(asked: str, parts: list[str]) -> float:
    return max((SequenceMatcher(None, asked, part).ratio() for part in parts), default=0.0)
