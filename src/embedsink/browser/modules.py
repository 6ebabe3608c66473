"""The JavaScript modules and the npm package for host pages. `scripts/build-browser` writes them from packages/browser.

A versioned name, such as `forwarder.1471f866f53a13b2.js`, always has the same content. Pages may cache it and pin its
hash. `versions/` contains every version that was ever served, so that these pages still work after an upgrade.
`packages/` contains the tarball of each release, because the lock files of applications name its URL and its hash.
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
PACKAGES = FOLDER / "packages"
MODULES = ("forwarder", "actions")
_VERSION_CHARACTERS = 16
_VERSIONED_NAME = re.compile(rf"([a-z]+)\.[0-9a-f]{{{_VERSION_CHARACTERS}}}\.(js|d\.ts)")
_JAVASCRIPT = "text/javascript; charset=utf-8"
# TypeScript declarations have no registered media type. Browsers display plain text.
_TYPESCRIPT = "text/plain; charset=utf-8"
_TARBALL = "application/gzip"  # RFC 6713


@dataclass(frozen=True)
class BrowserFile:
    """A file that the server sends to browsers."""

    name: str
    media_type: str
    content: bytes

    @cached_property
    def compressed(self) -> bytes:
        """The content, compressed with gzip."""
        return gzip.compress(self.content, mtime=0)  # Without the time, equal content gives equal bytes.

    @cached_property
    def version(self) -> str:
        """The first 16 hexadecimal digits of the content's SHA-256."""
        return sha256(self.content).hexdigest()[:_VERSION_CHARACTERS]

    @cached_property
    def integrity(self) -> str:
        """The value of the `integrity` attribute of a script element (Subresource Integrity, section 3.5)."""
        return f"sha384-{b64encode(sha384(self.content).digest()).decode()}"

    @property
    def versioned_name(self) -> str:
        """The name with the version, such as `forwarder.1471f866f53a13b2.js`."""
        stem, suffix = self.name.split(".", maxsplit=1)
        return f"{stem}.{self.version}.{suffix}"


@cache
def browser_files() -> dict[str, BrowserFile]:
    """Return the current modules and their TypeScript declarations by plain name, such as `forwarder.js`."""
    files: dict[str, BrowserFile] = {}
    for module in MODULES:
        script = BrowserFile(f"{module}.js", _JAVASCRIPT, (FOLDER / f"{module}.js").read_bytes())
        declarations = BrowserFile(f"{module}.d.ts", _TYPESCRIPT, (FOLDER / f"{module}.d.ts").read_bytes())
        files |= {script.name: script, declarations.name: declarations}
    return files


@cache
def vendor_files() -> dict[str, BrowserFile]:
    """Return the adapters for other vendors' embeds by the name of the vendor, such as `looker`."""
    paths = sorted((FOLDER / "vendors").glob("*.js"))
    return {path.stem: BrowserFile(f"vendors/{path.name}", _JAVASCRIPT, path.read_bytes()) for path in paths}


@cache
def package_files() -> dict[str, BrowserFile]:
    """Return the tarballs of the npm package by name, such as `embedsink-browser-0.1.0.tgz`."""
    return {path.name: BrowserFile(path.name, _TARBALL, path.read_bytes()) for path in sorted(PACKAGES.glob("*.tgz"))}


@cache
def versioned_files() -> dict[str, BrowserFile]:
    """Return every version of the modules and the current TypeScript declarations, by versioned name."""
    all_versions = {path.name: BrowserFile(path.name, _JAVASCRIPT, path.read_bytes()) for path in VERSIONS.glob("*.js")}
    current_files = {file.versioned_name: file for file in browser_files().values()}
    return all_versions | current_files


def plain_name(name: str) -> str:
    """Return the name of a file without the version, such as `forwarder.js` for `forwarder.1471f866f53a13b2.js`.

    A name without a version is returned unchanged.
    """
    match = _VERSIONED_NAME.fullmatch(name)
    if match is None:
        return name
    stem, suffix = match.groups()
    return f"{stem}.{suffix}"
