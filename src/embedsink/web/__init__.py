"""What browsers load. Beside the readable sources lie the modules as they are served, made by scripts/minify.

A versioned name holds for one content, for ever; so whoever loads it may keep it, and give its hash.
"""

import gzip
from base64 import b64encode
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256, sha384
from pathlib import Path

FOLDER = Path(__file__).parent
MODULES = ("forwarder", "actions")
_VERSION_CHARACTERS = 16
_JAVASCRIPT = "text/javascript; charset=utf-8"
# There is no registered type for declarations. As text, a browser shows them.
_DECLARATIONS = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class BrowserFile:
    """One file as it is served."""

    name: str
    media_type: str
    content: bytes

    @cached_property
    def compressed(self) -> bytes:
        """The content as gzip, the same each time."""
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def version(self) -> str:
        """What changes with the content."""
        return sha256(self.content).hexdigest()[:_VERSION_CHARACTERS]

    @cached_property
    def integrity(self) -> str:
        """What `integrity` says in a script element (Subresource Integrity, section 3.5)."""
        return f"sha384-{b64encode(sha384(self.content).digest()).decode()}"

    @property
    def versioned_name(self) -> str:
        """The name that holds for this content alone."""
        stem, suffix = self.name.split(".", maxsplit=1)
        return f"{stem}.{self.version}.{suffix}"


@cache
def browser_files() -> dict[str, BrowserFile]:
    """The files by their plain names."""
    found = [_file(f"{module}.js", f"{module}.min.js", _JAVASCRIPT) for module in MODULES]
    found += [_file(f"{module}.d.ts", f"{module}.d.ts", _DECLARATIONS) for module in MODULES]
    return {file.name: file for file in found}


def _file(name: str, source: str, media_type: str) -> BrowserFile:
    return BrowserFile(name, media_type, (FOLDER / source).read_bytes())
