"""The import rules of CONTRIBUTING.md. Each test's docstring is a rule."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "embedsink"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"

# From the bottom up.
LAYERS = [
    {"reasons", "net", "permissions", "browser"},
    {"errors", "key_scope", "clock_watch", "durable_files"},
    {"protocol", "journal", "auth", "concurrency", "json_logging", "data_folder", "retention_schedule"},
    {"privacy"},
    {"settings", "store", "audit"},
    {"archive"},
    {"ingest", "loader", "reports"},
    {"directory"},
    {"erasure"},
    {"backup", "engine", "dashboards", "client"},
    {"doctor", "transfer"},
    {"http"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
# The packages that `protocol` may import. None of them reads a clock, the disk, the network or the environment.
PURE = {
    *("collections", "dataclasses", "functools", "hashlib", "itertools", "json", "math", "re", "typing"),
    *("orjson", "pydantic", "pydantic_core", "typing_extensions", "embedsink"),
}


def module_name(path: Path) -> str:
    """Return the dotted name below `embedsink`; that of a package for its `__init__.py`."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"}
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


def imported_by(module: str) -> set[str]:
    """Return the full names that a module imports, at its top and in its functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own_modules_imported_by(module: str) -> set[str]:
    return {name.removeprefix("embedsink.") for name in imported_by(module)} & set(MODULES) - PACKAGES


def folder_of(module: str) -> str:
    return module.split(".")[0]


def layer_of(module: str) -> int:
    return next(index for index, folders in enumerate(LAYERS) if folder_of(module) in folders)


def folders_importing(*packages: str) -> set[str]:
    return {folder_of(module) for module in MODULES for name in imported_by(module) if name.split(".")[0] in packages}


def test_modules_import_lower_layers() -> None:
    """A module imports modules of its own folder and of lower layers only. The test lists the layers."""
    wrong = [
        f"{module} imports {other}"
        for module in MODULES
        for other in own_modules_imported_by(module)
        if folder_of(other) != folder_of(module) and layer_of(other) >= layer_of(module)
    ]
    assert wrong == []
    assert sorted(folder for folders in LAYERS for folder in folders) == sorted(set(map(folder_of, MODULES)))


def test_imports_form_no_cycle() -> None:
    """No imports form a cycle, not even within a folder."""
    TopologicalSorter({module: own_modules_imported_by(module) for module in MODULES}).prepare()


def test_packages_re_export_nothing() -> None:
    """Packages re-export nothing: an import names the module that defines the name."""
    assert [name for name in PACKAGES if imported_by(name)] == []


def test_only_the_store_imports_duckdb() -> None:
    """Only `store` imports duckdb and nanoarrow. No `http` module imports `store.snapshot_reader`, even indirectly."""
    assert folders_importing("duckdb", "nanoarrow") == {"store"}
    # `store.snapshot_reader` runs any SQL, and the server must not.
    reached = {name for name in MODULES if folder_of(name) == "http"}
    while new_names := set().union(*map(own_modules_imported_by, reached)) - reached:
        reached |= new_names
    assert "store.snapshot_reader" not in reached


def test_only_http_and_the_demo_import_starlette() -> None:
    """Only `http` imports jinja2 and itsdangerous. Only `http` and `demo` import starlette and uvicorn."""
    assert folders_importing("jinja2", "itsdangerous") == {"http"}
    assert folders_importing("starlette", "uvicorn") == {"http", "demo"}


def test_only_the_command_line_imports_typer() -> None:
    """Only `cli` imports typer."""
    assert folders_importing("typer") == {"cli"}


def test_only_http_and_dashboards_import_vega() -> None:
    """Only `http` and `dashboards` import vl_convert."""
    assert folders_importing("vl_convert") == {"http", "dashboards"}


def test_pydantic_validates_at_the_boundaries() -> None:
    """Only `protocol`, `privacy`, `settings`, `auth`, `dashboards`, `archive` and `http` import pydantic."""
    boundaries = {"protocol", "privacy", "settings", "auth", "dashboards", "archive", "http"}
    assert folders_importing("pydantic") == boundaries


def test_the_protocol_is_pure() -> None:
    """`protocol` uses no clock, disk, network or environment."""
    modules = [name for name in MODULES if folder_of(name) == "protocol"]
    wrong = {name: {package.split(".")[0] for package in imported_by(name)} - PURE for name in modules}
    assert not any(wrong.values()), wrong


def test_the_journal_knows_no_json() -> None:
    """`journal` treats lines as bytes: it imports no JSON parser."""
    assert folders_importing("json", "orjson").isdisjoint({"journal"})


def test_contributing_lists_the_rules() -> None:
    tests = [value for name, value in globals().items() if name.startswith("test_") and value.__doc__]
    rules = [f"{number}. {test.__doc__}" for number, test in enumerate(tests, 1)]
    listed = CONTRIBUTING.read_text(encoding="utf-8").splitlines()
    assert [rule for rule in rules if rule not in listed] == []
    assert len(rules) == 10
