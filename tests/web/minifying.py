"""The modules as they are served, from their readable sources. `scripts/minify` runs it.

A module needs the minifier only here, so neither a server nor an installation has it.
"""

from embedsink.web import FOLDER, MODULES, browser_files


def minified(module: str) -> str:
    """A module without comments and spaces, its local names short."""
    import minify

    source = (FOLDER / f"{module}.js").read_text(encoding="utf-8")
    return str(minify.string("text/javascript", source))


def main() -> None:
    """Write them, and tell what they have become."""
    for module in MODULES:
        (FOLDER / f"{module}.min.js").write_text(minified(module), encoding="utf-8")
    for file in browser_files().values():
        print(f"{file.name:14} {len(file.compressed):5,} bytes gzipped  {file.versioned_name}  {file.integrity}")


if __name__ == "__main__":
    main()
