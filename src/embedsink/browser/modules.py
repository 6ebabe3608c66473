"""The JavaScript modules for browsers. `scripts/minify` writes the served `.min.js` files next to their sources.

The content of a versioned name never changes, so pages may cache it and pin its hash. `versions/` contains every
version that was ever served, so a page that pins one can still load it after an upgrade.
"""

import gzip
import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256, sha384
from pathlib import Path

FOLDER = Path(__file__).parent
VERSIONS = FOLDER / "versions"
MODULES = ("forwarder", "actions")
_VERSION_CHARACTERS = 16
_VERSIONED = re.compile(rf"([a-z]+)\.[0-9a-f]{{{_VERSION_CHARACTERS}}}\.(js|d\.ts)")
_JAVASCRIPT = "text/javascript; charset=utf-8"
# TypeScript declarations have no registered media type. Browsers display plain text.
_DECLARATIONS = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class BrowserFile:
    """A served file."""

    name: str
    media_type: str
    content: bytes

    @cached_property
    def compressed(self) -> bytes:
        """The content as gzip. Equal content gives equal bytes."""
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def version(self) -> str:
        """The beginning of the SHA-256 of the content, in hex."""
        return sha256(self.content).hexdigest()[:_VERSION_CHARACTERS]

    @cached_property
    def integrity(self) -> str:
        """The value of the `integrity` attribute of a script element (Subresource Integrity, section 3.5)."""
        return f"sha384-{b64encode(sha384(self.content).digest()).decode()}"

    @property
    def versioned_name(self) -> str:
        """The name with the version, which belongs to this content only."""
        stem, suffix = self.name.split(".", maxsplit=1)
        return f"{stem}.{self.version}.{suffix}"


@cache
def browser_files() -> dict[str, BrowserFile]:
    """Return the current files by their plain names."""
    files = [_file(f"{module}.js", f"{module}.min.js", _JAVASCRIPT) for module in MODULES]
    files += [_file(f"{module}.d.ts", f"{module}.d.ts", _DECLARATIONS) for module in MODULES]
    return {file.name: file for file in files}


@cache
def versioned_files() -> dict[str, BrowserFile]:
    """Return the files by their versioned names: every version of the modules, and the current declarations."""
    modules = {path.name: BrowserFile(path.name, _JAVASCRIPT, path.read_bytes()) for path in VERSIONS.glob("*.js")}
    return modules | {file.versioned_name: file for file in browser_files().values()}


def plain_name(name: str) -> str:
    """Return the name without its version."""
    match = _VERSIONED.fullmatch(name)
    return f"{match[1]}.{match[2]}" if match else name


def _file(name: str, source: str, media_type: str) -> BrowserFile:
    return BrowserFile(name, media_type, (FOLDER / source).read_bytes())
