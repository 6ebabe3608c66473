"""Erased people, whose deliveries are rejected for some days. Only digests of their ids are stored."""

import hmac
import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from urllib.parse import unquote_plus

import orjson

# The closing mark may be missing. Otherwise, each mark in the rest of the input would begin a search up to its end.
_TEXT = rb'"(?:[^"\\]|\\.)*+"?|\'[^\']*+\'?|-?[0-9]+'
# A list or an object ends before the next one, so that the search takes linear time.
_VIEWER = re.compile(rb"""(?i)["']viewer["']\s*:\s*(%s|\[[^\[\]]*+\]|\{[^{}]*+\})""" % _TEXT)
_TRAILING_COMMA = re.compile(rb",(?=\s*[\]}])")
_VIEWER_IN_FORM = re.compile(rb"(?:\A|&)viewer=([^&]*+)")


@dataclass(frozen=True, slots=True)
class ErasedPerson:
    """A person whose deliveries are rejected.

    Args:
        viewers: the digests of all forms of the viewer: as sent, and hashed.
        deployments: the deployments in which the person was erased; None for all.
        tenants: the digests of all forms of the tenants in which the person was erased; None for all.
    """

    viewers: frozenset[str]
    deployments: frozenset[int] | None = None
    tenants: frozenset[str] | None = None


@dataclass(frozen=True)
class ErasedPeople:
    """The people whose deliveries are rejected.

    Args:
        salt: the secret of the digests.
        people: the people.
    """

    salt: bytes = b""
    people: tuple[ErasedPerson, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no person is erased."""
        return not self.people

    def find(self, viewers: Iterable[str]) -> list[ErasedPerson]:
        """Return the erased people with one of these viewers."""
        return [person for viewer in viewers for person in self._by_digest.get(self.digest(viewer), ())]

    def is_erased_in(self, person: ErasedPerson, deployments: Collection[int], tenants: Iterable[str]) -> bool:
        """Return whether a person was erased in one of these deployments and in one of these tenants, or everywhere."""
        return (person.deployments is None or not person.deployments.isdisjoint(deployments)) and (
            person.tenants is None or not person.tenants.isdisjoint(map(self.digest, tenants))
        )

    def digest(self, text: str) -> str:
        """Return the digest of a text: HMAC-SHA256 (RFC 2104), in hexadecimal digits."""
        return hmac.digest(self.salt, text.encode(errors="surrogatepass"), "sha256").hex()

    @cached_property
    def _by_digest(self) -> dict[str, list[ErasedPerson]]:
        by_digest: dict[str, list[ErasedPerson]] = {}
        for person in self.people:
            for digest in person.viewers:
                by_digest.setdefault(digest, []).append(person)
        return by_digest

    def to_json(self) -> dict[str, Any]:
        """Return the people for `from_json`."""
        return {"salt": self.salt.hex(), "people": [person_to_json(person) for person in self.people]}

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        """Return the people of `to_json`."""
        return cls(bytes.fromhex(members["salt"]), tuple(person_from_json(person) for person in members["people"]))


def person_to_json(person: ErasedPerson) -> dict[str, Any]:
    """Return a person for `person_from_json`."""
    return {
        "viewers": sorted(person.viewers),
        "deployments": None if person.deployments is None else sorted(person.deployments),
        "tenants": None if person.tenants is None else sorted(person.tenants),
    }


def person_from_json(members: dict[str, Any]) -> ErasedPerson:
    """Return the person of `person_to_json`."""
    deployments, tenants = members["deployments"], members["tenants"]
    return ErasedPerson(
        viewers=frozenset(members["viewers"]),
        deployments=None if deployments is None else frozenset(deployments),
        tenants=None if tenants is None else frozenset(tenants),
    )


def viewers_in(raw: bytes) -> Iterator[str]:
    """Yield the viewers that input, which may be invalid, names.

    In JSON, these are all texts and numbers in the values of members `viewer`, at any depth, with the names of members.
    4711.0 also counts as 4711.
    JSON within a text is not parsed. Trailing commas are allowed, as in DuckDB. Input that is not JSON is searched with
    regular expressions.

    The view `person_rejection` finds the same in JSON, except for ids with other than ASCII characters in UTF-16. In
    other input it finds more: an id between any quotation marks. NaN and Infinity are JSON here, but not for the view.
    """
    for text in (raw, _TRAILING_COMMA.sub(b"", raw)):
        try:
            return _viewers_in_json(json.loads(text, object_pairs_hook=tuple))
        except (ValueError, RecursionError):
            continue  # It is not JSON.
    return _viewers_in_text(raw.replace(b"\0", b""))  # UTF-16 has a NUL in each ASCII character.


def _viewers_in_json(value: Any) -> Iterator[str]:
    """Yield the viewers in a JSON value. Objects are tuples of pairs, so duplicate members are kept."""
    pending = deque([(value, False)])
    while pending:
        value, is_viewer = pending.popleft()
        if isinstance(value, tuple):
            if is_viewer:
                yield from (name for name, _ in value)
            pending.extend((member, is_viewer or name.lower() == "viewer") for name, member in value)
        elif isinstance(value, list):
            pending.extend((item, is_viewer) for item in value)
        elif is_viewer and isinstance(value, str | int | float) and not isinstance(value, bool):
            yield str(value)
            if isinstance(value, float) and value.is_integer():
                yield str(int(value))


def _viewers_in_text(raw: bytes) -> Iterator[str]:
    """Yield each text or integer that is, or is directly in, what looks like the value of a member `viewer`."""
    for value in _VIEWER.finditer(raw):
        for text in re.finditer(_TEXT, value[1]):
            try:
                yield text[0][1:-1].decode() if text[0].startswith(b"'") else str(orjson.loads(text[0]))
            except ValueError:
                continue  # It has an invalid escape or is not UTF-8.
    for value in _VIEWER_IN_FORM.finditer(raw):
        yield unquote_plus(value[1].decode(errors="replace"))


def context_in(raw: bytes) -> dict[str, Any]:
    """Return the context in a rejected delivery; an empty one for other input."""
    try:
        value = orjson.loads(raw)
    except ValueError:
        return {}
    context = value.get("context") if isinstance(value, dict) else None
    return context if isinstance(context, dict) else {}
