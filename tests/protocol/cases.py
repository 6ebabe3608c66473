"""Reader of the case files in `tests/protocol/envelopes/`: request bodies and their expected outcomes.

A case is a JSON object. `why` explains its purpose. The request body is one of

    body        any JSON value
    lines       NDJSON: a string is a line as it is, any other value is encoded as JSON
    text        the text as it is, for invalid JSON
    base64      the bytes as they are, for input that is not text

with `spelled` (replacements in the text) and `encoding` (of the text; the default is UTF-8). Everywhere in it,
`{"repeat": x, "times": n}` is a long string or array, and an array of texts is one text.

In `valid/`, all envelopes are accepted. `accepted` is their number if it is not obvious, and `extra` has their unknown
payload fields. In `invalid/`, the envelope at `index` (the first by default) or the whole body is rejected with
`reason` and a `detail` that begins with `path`; `accepted` other envelopes are accepted.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedsink.protocol.delivery import Rules

FOLDER = Path(__file__).parent / "envelopes"
EXPECTED = ("reason", "path", "detail", "index", "accepted", "extra")


@dataclass(frozen=True)
class Case:
    """A case file. `expected` is the part that describes the outcome."""

    name: str
    why: str
    body: bytes
    ndjson: bool
    rules: Rules
    expected: dict[str, Any]

    def __str__(self) -> str:
        return self.name


def read_cases(folder: str) -> list[Case]:
    """Return the cases of `valid` or `invalid`, by name."""
    return [_read(path) for path in sorted((FOLDER / folder).glob("*.json"))]


def _read(path: Path) -> Case:
    case = json.loads(path.read_text(encoding="utf-8"))
    return Case(
        name=path.stem,
        why=case["why"],
        body=_body(case),
        ndjson="lines" in case,
        rules=Rules(service_name=case.get("service_name", "svc")),
        expected={name: case[name] for name in EXPECTED if name in case},
    )


def _body(case: dict[str, Any]) -> bytes:
    if "base64" in case:
        return base64.b64decode(case["base64"], validate=True)
    text = _text(case)
    for plain, spelled in case.get("spelled", {}).items():
        assert plain in text, f"{plain} is not in the text"
        text = text.replace(plain, _joined(spelled))
    return text.encode(case.get("encoding", "utf-8"))


def _text(case: dict[str, Any]) -> str:
    if "lines" in case:
        lines = _expand(case["lines"])
        return "\n".join(line if isinstance(line, str) else _json(line) for line in lines)
    return _joined(case["text"]) if "text" in case else _json(_expand(case["body"]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _joined(pieces: Any) -> str:
    return pieces if isinstance(pieces, str) else "".join(_expand(pieces))


def _expand(value: Any) -> Any:
    """Return the value with each `{"repeat": x, "times": n}` expanded."""
    if isinstance(value, list):
        return [_expand(part) for part in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"repeat", "times"}:
        return _repeated(_expand(value["repeat"]), value["times"])
    return {name: _expand(part) for name, part in value.items()}


def _repeated(value: Any, times: int) -> Any:
    return value * times if isinstance(value, str) else [value] * times


def envelopes_in(case: Case) -> Iterator[Any]:
    """Yield the envelopes of a valid case, parsed with the standard library."""
    if case.ndjson:
        yield from (json.loads(line) for line in case.body.splitlines() if line.strip())
        return
    value = json.loads(case.body, parse_int=_parse_integer_as_browsers)
    if isinstance(value, dict) and "source" not in value:
        value = value["events"]
    yield from value if isinstance(value, list) else [value]


def _parse_integer_as_browsers(literal: str) -> int | float:
    integer = int(literal)
    return integer if -(2**63) <= integer < 2**64 else float(literal)
