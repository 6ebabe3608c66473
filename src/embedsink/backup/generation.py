"""The manifest of a backup generation: its files, and the chunks that make up each file.

{"format": 1, "sha256": "…", "generation": {"began_at": "…", …, "files": [{"name": "keys.json", …}]}}
"""

import json
import re
from dataclasses import asdict, dataclass
from hashlib import sha256

from embedsink.errors import Misconfigured, preview

FORMAT = 1
# The name of `StoredFile.chunks` in manifests.
_CHUNKS_MEMBER = "pieces"
# The files that a backup may contain. A forged manifest must not write outside the restored folder.
_FILE_NAME = re.compile(
    r"keys\.json|identity\.toml|privacy\.toml|privacy_secrets\.json|internal\.toml|analytics\.duckdb|"
    r"(journal|damaged|dashboards|erasures|audit)/(?!\.{1,2}$)[^/\0]+"
)


class BackupDamaged(Misconfigured):
    """A manifest or a chunk of a backup can't be read, or its checksum does not match."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a generation: its path in the data folder, and the SHA-256 digests of its chunks in order."""

    name: str
    byte_count: int
    sha256: str
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """A backup. It contains every event that was acknowledged before `began_at` (ISO 8601, UTC)."""

    began_at: str
    ended_at: str
    version: str  # the version of embedsink that wrote it
    files: tuple[StoredFile, ...]
    # The identities of the newest segments in the journal or the snapshot. Manifests of older versions lack them.
    segments: tuple[str, ...] = ()

    @property
    def byte_count(self) -> int:
        """The total size of the files in bytes."""
        return sum(file.byte_count for file in self.files)

    @property
    def chunks(self) -> set[str]:
        """The digests of all chunks."""
        return {chunk for file in self.files for chunk in file.chunks}

    def encode(self) -> bytes:
        """Return the manifest as JSON."""
        content = asdict(self)
        for file in content["files"]:
            # In manifests, the chunks keep their former name.
            file[_CHUNKS_MEMBER] = file.pop("chunks")
        manifest = {"format": FORMAT, "sha256": _checksum(content), "generation": content}
        return json.dumps(manifest, indent=1).encode() + b"\n"


def decode(manifest: bytes) -> Generation:
    """Return the generation that a manifest describes.

    Raises:
        BackupDamaged: the text is not a manifest, the checksum does not match, a newer embedsink wrote it, or a file
            in it does not belong to a data folder.
    """
    try:
        parsed = json.loads(manifest)
        if parsed["format"] != FORMAT:
            raise BackupDamaged(
                f"has the format {preview(parsed['format'])}, but this version of embedsink reads {FORMAT}"
            )
        content = parsed["generation"]
        if parsed["sha256"] != _checksum(content):
            raise BackupDamaged("its checksum does not match")
        files = tuple(
            StoredFile(_current_path(file["name"]), file["byte_count"], file["sha256"], tuple(file[_CHUNKS_MEMBER]))
            for file in content["files"]
        )
        segments = tuple(content.get("segments", ()))  # Manifests of older versions lack them.
        generation = Generation(**content | {"files": files, "segments": segments})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BackupDamaged("is not the manifest of a backup") from None
    # A forged manifest must not write outside the restored folder.
    for file in generation.files:
        if not _FILE_NAME.fullmatch(file.name):
            raise BackupDamaged(f"contains a file that does not belong to a data folder ({preview(file.name)})")
    return generation


def _current_path(name: str) -> str:
    """Return the current path of a file in the data folder: `damaged/` was formerly named `aside/`."""
    return f"damaged/{name.removeprefix('aside/')}" if name.startswith("aside/") else name


def _checksum(content: object) -> str:
    """Return the SHA-256 of a content as compact JSON with sorted members."""
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
