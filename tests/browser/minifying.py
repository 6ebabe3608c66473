"""Writes the served modules from their readable sources. `scripts/minify` runs it.

Only this script needs the minifier, so neither a server nor an installation includes it.
"""

import subprocess

from embedsink.browser.modules import FOLDER, MODULES, VERSIONS, browser_files
from tests.support.paths import ROOT


def minified(module: str) -> str:
    """Return a module without comments and spaces, and with short local names."""
    import minify

    source = (ROOT / "packages/browser/src" / f"{module}.js").read_text(encoding="utf-8")
    return str(minify.string("text/javascript", source))


def _drop_drafts() -> None:
    """Delete the versions that were never committed."""
    listed = ["git", "ls-files", "--others", "--", "*.js"]
    for name in subprocess.run(listed, cwd=VERSIONS, check=True, capture_output=True, text=True).stdout.split():
        (VERSIONS / name).unlink()


def main() -> None:
    """Write the modules, store each as a version, and print their sizes."""
    for module in MODULES:
        (FOLDER / f"{module}.min.js").write_text(minified(module), encoding="utf-8")
    _drop_drafts()
    for module in MODULES:
        file = browser_files()[f"{module}.js"]
        (VERSIONS / file.versioned_name).write_bytes(file.content)
    for file in browser_files().values():
        print(f"{file.name:14} {len(file.compressed):5,} bytes gzipped  {file.versioned_name}  {file.integrity}")


if __name__ == "__main__":
    main()
