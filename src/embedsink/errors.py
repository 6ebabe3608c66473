"""The errors that embedsink raises on purpose. Any other exception is a bug.

    EmbedsinkError
    ├── Refused             the request is wrong; resending it unchanged fails again
    │   └── NothingAccepted     (client)
    ├── Unavailable         the request is valid; a retry may succeed
    ├── Misconfigured       the operator has to change something; the program does not start
    │   ├── FolderTaken         (data_folder)
    │   └── BackupDamaged       (backup)
    ├── StoreBroken         (store) DuckDB has to be reopened
    │   └── StoreDamaged        the file has to be rebuilt
    ├── StoreRefused        (store) the store can't do this now, for lack of space or memory
    │   └── StoreTooSmall
    ├── SqlFailed            (store) SQL can't process this segment
    ├── Unreachable         (client)
    └── NotEmbedsink        (client)

An error message has the form: where: what is wrong (value). What is allowed. What to do.
"""

import json
import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from hashlib import sha256

from embedsink.reasons import Reason

PREVIEW_CHARACTERS_MAX = 64
# The minimum similarity of a misspelt name to the intended one, as a ratio of `difflib`.
_SIMILARITY_MIN = 0.6
_WORD = re.compile(r"[^_]+")
# At least 32 characters: `sales_admin_total` is a measure, not a credential.
_KEY = re.compile(r"es_(ingest|read|sync|admin)_[0-9A-Za-z]{32,}")
# Unlike `json.dumps`, an encoder can stop early.
_ENCODER = json.JSONEncoder(default=str)


class EmbedsinkError(Exception):
    """The base class. Its message is safe to show to the client."""


class Refused(EmbedsinkError):
    """The request is wrong. `reason.status` is the status of the response."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(detail or reason.sentence)
        self.reason = reason


class Unavailable(EmbedsinkError):
    """The server can't serve the request now and stores nothing of it. Retry it after `retry_after_s` seconds."""

    def __init__(self, reason: Reason, detail: str = "", *, retry_after_s: int = 1) -> None:
        super().__init__(detail or reason.sentence)
        self.reason = reason
        self.retry_after_s = retry_after_s


class Misconfigured(EmbedsinkError):
    """The program can't run with this configuration. The message names what to change."""


def preview(value: object) -> str:
    """Return an invalid value for an error message: escaped JSON of at most 64 characters, with keys redacted."""
    text = ""
    try:
        # Stop encoding after the preview: the value may be a body of a megabyte. Each chunk has whole strings, so no
        # key is split between two chunks.
        chunks = _ENCODER.iterencode(value) if isinstance(value, dict | list) else [_ENCODER.encode(value)]
        for chunk in chunks:
            text += redact_keys(chunk)
            if len(text) > PREVIEW_CHARACTERS_MAX:
                break
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    if len(text) <= PREVIEW_CHARACTERS_MAX:
        return text
    end = '…"' if text.startswith('"') else "…"
    return text[: PREVIEW_CHARACTERS_MAX - len(end)] + end


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant.

    A similar name comes first, then a name with a similar word (`vew` for `view_count`).
    """
    if len(name) > PREVIEW_CHARACTERS_MAX:
        return None  # Too long for a typing error, and slow to compare.
    candidates, name = list(known), name.lower()
    for split in (lambda candidate: [candidate], _WORD.findall):
        rated = ((_similarity(name, split(candidate.lower())), candidate) for candidate in candidates)
        similarity, candidate = max(rated, default=(0.0, ""))
        if similarity >= _SIMILARITY_MIN:
            return candidate
    return None


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return advice about an unknown name: the nearest known name, else `otherwise`, else all known names."""
    candidates = list(known)
    if (meant := nearest(name, candidates)) is not None:
        return f'Did you mean "{meant}"?'
    return otherwise or (f"There are {', '.join(candidates)}." if candidates else "None exist.")


def redact_keys(text: str) -> str:
    """Return the text with each embedsink key replaced by its kind and the first digits of its SHA-256.

    The digits keep two keys distinct where they are names in one object, and identify a key in `keys.json`, which has
    the digests. They grant no access.
    """
    return _KEY.sub(lambda key: f"es_{key[1]}_…{sha256(key[0].encode()).hexdigest()[:8]}", text)


def _similarity(name: str, parts: list[str]) -> float:
    return max((SequenceMatcher(None, name, part).ratio() for part in parts), default=0.0)
