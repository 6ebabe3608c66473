"""The request to erase a person, and its file in `erasures/`.

A pending request names the person. A finished one has the certificate, and only digests of the person's ids. They block
later deliveries, and are deleted after some days.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_bytes
from typing import Any, Self

import orjson

from embedsink.durable_files import DRAFT_SUFFIX, create_folder, replace_durably
from embedsink.errors import Misconfigured
from embedsink.permissions import FOLDER_MODE, give_to_owner
from embedsink.privacy.erased_people import ErasedPerson, person_from_json, person_to_json
from embedsink.privacy.person import Person

_NAME = re.compile(r"[0-9a-f-]{36}\.json")
_SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an erasure.

    Args:
        finished_at: when it was finished, in epoch milliseconds.
        text_count: the number of texts for which the files were searched.
        searched: the size of each searched file in bytes, by its path in the data folder.
        found: the number of found texts, by the path of the file.
        searched_count, found_count: the numbers of these files. `without_files` keeps them.
        remaining_row_count: the number of the person's rows when it was finished; None for an earlier version.
        unnamed_rejection_count: the number of stored rejections that name no viewer, but contain an id of the person;
            None if the request is limited, or was finished by an earlier version.
    """

    finished_at: int
    text_count: int
    searched: dict[str, int]
    found: dict[str, int]
    searched_count: int
    found_count: int
    remaining_row_count: int | None = None
    unnamed_rejection_count: int | None = None


@dataclass(frozen=True, slots=True)
class Erasure:
    """A request to erase a person.

    Args:
        id: a UUID.
        requested_at: the time of the request, in epoch milliseconds.
        key_id: the id of the key that requested it; None for a command and for the directory.
        deployments: the deployments that it is limited to; None for all.
        tenant_count: the number of tenants that it is limited to; None for all.
        blocked_until: when deliveries of the person are accepted again, in epoch milliseconds.
        person: the person; None when the request is finished.
        blocked: the digests of the person; None after `blocked_until`.
        removed: the number of removed rows by kind.
        texts: texts that only the person's rows contain, for the search of the files.
        deleted_user_id: the id of the user whose deletion over SCIM is the request. Other users stay: the identity
            provider decides about them. None to delete all users who are the person.
        result: the result; None while the request is pending.
    """

    id: str
    requested_at: int
    key_id: str | None
    deployments: list[int] | None
    tenant_count: int | None
    blocked_until: int
    person: Person | None
    blocked: ErasedPerson | None
    removed: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    deleted_user_id: str | None = None
    result: Result | None = None

    def with_removed(self, counts: dict[str, int], texts: Iterable[str]) -> Self:
        """Return the request with the rows that were selected now. A run that was killed may have selected more."""
        removed = {name: max(count, self.removed.get(name, 0)) for name, count in counts.items()}
        return replace(self, removed=self.removed | removed, texts=list(dict.fromkeys([*self.texts, *texts])))

    def finished(self, result: Result) -> Self:
        """Return the finished request, which no longer names the person."""
        return replace(self, person=None, texts=[], result=result)

    def without_files(self) -> Self:
        """Return the request without the paths of files."""
        if self.result is None:
            return self
        return replace(self, result=replace(self.result, searched={}, found={}))

    def certificate(self, *, with_files: bool = True) -> dict[str, Any]:
        """Return the request and its result as JSON (docs/privacy.md). It does not name the person.

        Args:
            with_files: whether to name the files that were searched, and those that still have texts of the person.
        """
        certificate: dict[str, Any] = {
            "id": self.id,
            "status": "pending" if self.result is None else "finished",
            "requestedAt": _time_text(self.requested_at),
            "deployments": self.deployments,
            "tenantCount": self.tenant_count,
            "blockedUntil": _time_text(self.blocked_until),
        }
        if self.result is not None:
            certificate |= {
                "finishedAt": _time_text(self.result.finished_at),
                "removed": self.removed,
                "searchedTextCount": self.result.text_count,
                "searchedFileCount": self.result.searched_count,
                "foundFileCount": self.result.found_count,
                "remainingRows": self.result.remaining_row_count,
                "remainingRejections": self.result.unnamed_rejection_count,
            }
        if self.result is not None and with_files:
            certificate |= {
                "searchedFiles": [{"path": path, "bytes": size} for path, size in self.result.searched.items()],
                "foundIn": [{"path": path, "textCount": count} for path, count in self.result.found.items()],
            }
        return certificate


class ErasureFolder:
    """The folder `erasures/`: a file for each request, and the salt of the digests.

    Args:
        path: the folder. The first request creates it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Erasure]:
        """Return all requests, oldest first, without the files that were searched.

        Raises:
            Misconfigured: a file can't be read or is damaged.
        """
        if not self._path.is_dir():
            return []
        erasures = [_read(path).without_files() for path in self._path.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(erasures, key=lambda erasure: (erasure.requested_at, erasure.id))

    def read_one(self, erasure_id: str) -> Erasure:
        """Return a request.

        Raises:
            Misconfigured: the file can't be read or is damaged.
        """
        return _read(self._path / f"{erasure_id}.json")

    def delete_drafts(self) -> None:
        """Delete the files of a process that was killed while it wrote. They name people, and no request has them."""
        for draft in self._path.glob(f"*{DRAFT_SUFFIX}"):
            draft.unlink()

    def salt(self, *, may_create: bool = False) -> bytes:
        """Return the salt of the digests.

        Args:
            may_create: whether to create a missing salt. Digests with a former salt are then useless.

        Raises:
            Misconfigured: the file is missing or damaged.
            OSError: the file can't be written.
        """
        path = self._path / "salt"
        try:
            salt = path.read_bytes()
        except FileNotFoundError:
            salt = b""
        if len(salt) == _SALT_BYTES:
            return salt
        if salt or not may_create:
            raise Misconfigured(
                f"{path}: is missing or damaged, so erased people would not be recognized. Put a copy back, or move "
                f"{self._path.name}/ elsewhere and request the erasures of the last days again."
            )
        salt = token_bytes(_SALT_BYTES)
        self._replace(path, salt)
        return salt

    def write(self, erasure: Erasure) -> None:
        """Write a request durably, and replace its former version.

        Raises:
            OSError: the file can't be written. The former version remains.
        """
        content = asdict(erasure)
        content["person"] = None if erasure.person is None else _person_to_json(erasure.person)
        content["blocked"] = None if erasure.blocked is None else person_to_json(erasure.blocked)
        self._replace(self._path / f"{erasure.id}.json", orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))

    def delete(self, erasure_id: str) -> None:
        """Delete the file of a request.

        Raises:
            OSError: it can't be deleted.
        """
        (self._path / f"{erasure_id}.json").unlink(missing_ok=True)

    def _replace(self, path: Path, content: bytes) -> None:
        """Replace a file durably. Only its owner can read it."""
        create_folder(self._path, mode=FOLDER_MODE)
        give_to_owner(self._path, self._path.parent)
        replace_durably(path, content, mode=0o600)


def _read(path: Path) -> Erasure:
    """Return the request in a file. Raise Misconfigured if the file can't be read or is damaged."""
    try:
        content = orjson.loads(path.read_bytes())
        person, blocked, result = (content.pop(name) for name in ("person", "blocked", "result"))
        if content.pop("keeps_users", False):  # An earlier version did not store which user was deleted.
            content["deleted_user_id"] = ""
        return Erasure(
            person=None if person is None else _person_from_json(person),
            blocked=None if blocked is None else person_from_json(blocked),
            result=None if result is None else _result_from_json(result),
            **content,
        )
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}. Make it readable for this user.") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Misconfigured(
            f"{path}: is damaged. Put a copy back, or delete it and request the erasure again."
        ) from None


def _result_from_json(members: dict[str, Any]) -> Result:
    # Earlier versions did not store the numbers.
    counts = {"searched_count": len(members["searched"]), "found_count": len(members["found"])}
    return Result(**counts | members)


def _person_to_json(person: Person) -> dict[str, Any]:
    return {
        "viewer": person.viewer,
        "deployments": None if person.deployments is None else sorted(person.deployments),
        "tenants": None if person.tenants is None else sorted(person.tenants),
    }


def _person_from_json(members: dict[str, Any]) -> Person:
    deployments, tenants = members["deployments"], members["tenants"]
    return Person(
        members["viewer"],
        None if deployments is None else frozenset(deployments),
        None if tenants is None else frozenset(tenants),
    )


def _time_text(epoch_ms: int) -> str:
    """Return a time as RFC 3339 text in UTC, in seconds."""
    return datetime.fromtimestamp(epoch_ms // 1_000, UTC).isoformat().replace("+00:00", "Z")
