"""The manifest of one generation: which files a backup has, and of which pieces each is made.

{"format": 1, "sha256": "…", "generation": {"began_at": "…", …, "files": [{"name": "keys.json", …}]}}
"""

import json
import re
from dataclasses import asdict, dataclass
from hashlib import sha256

from embedsink.errors import Misconfigured, preview

FORMAT = 1
# Everything that a backup may hold. A manifest from elsewhere must not write outside the restored folder.
_NAME = re.compile(r"keys\.json|analytics\.duckdb|(journal|damaged|dashboards)/(?!\.{1,2}$)[^/\0]+")


class BackupDamaged(Misconfigured):
    """A manifest or a piece of a backup can't be read, or its checksum does not match."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a generation. `name` is its path in the data folder, `pieces` are SHA-256 digests in order."""

    name: str
    byte_count: int
    sha256: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """One backup. It has every event that was acknowledged before `began_at` (ISO 8601, UTC)."""

    began_at: str
    ended_at: str
    version: str  # of the embedsink that wrote it
    files: tuple[StoredFile, ...]
    segments: tuple[
        str, ...
    ] = ()  # identities of the newest ones, in the journal or the snapshot; older programs: none

    @property
    def byte_count(self) -> int:
        """The size of all files together."""
        return sum(file.byte_count for file in self.files)

    @property
    def pieces(self) -> set[str]:
        """The digests of all pieces."""
        return {piece for file in self.files for piece in file.pieces}

    def encode(self) -> bytes:
        """Return the manifest."""
        content = asdict(self)
        manifest = {"format": FORMAT, "sha256": _checksum(content), "generation": content}
        return json.dumps(manifest, indent=1).encode() + b"\n"


def decode(manifest: bytes) -> Generation:
    """Read a manifest.

    Raises:
        BackupDamaged: it is no manifest, its checksum does not match, or a newer embedsink wrote it.
    """
    try:
        found = json.loads(manifest)
        if found["format"] != FORMAT:
            raise BackupDamaged(f"has the format {preview(found['format'])}, and this embedsink reads {FORMAT}")
        content = found["generation"]
        if found["sha256"] != _checksum(content):
            raise BackupDamaged("its checksum does not match")
        files = tuple(
            StoredFile(_current_name(file["name"]), file["byte_count"], file["sha256"], tuple(file["pieces"]))
            for file in content["files"]
        )
        generation = Generation(**content | {"files": files, "segments": tuple(content.get("segments", ()))})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BackupDamaged("is no manifest of a backup") from None
    for file in generation.files:
        if not _NAME.fullmatch(file.name):
            raise BackupDamaged(f"names a file that no data folder has ({preview(file.name)})")
    return generation


def _current_name(name: str) -> str:
    """Return the name of a file today: `damaged/` was named `aside/` once."""
    return f"damaged/{name.removeprefix('aside/')}" if name.startswith("aside/") else name


def _checksum(content: object) -> str:
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
