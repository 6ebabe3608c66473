"""The import rules of CONTRIBUTING.md, checked in the source."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "embedsink"
CONTRIBUTING = SOURCE.parents[1] / "CONTRIBUTING.md"

# From the bottom up: a room imports rooms of lower layers and its own modules.
LAYERS = [
    {"reasons", "net", "clock_watch", "durable_files", "permissions", "browser"},
    {"errors"},
    {"protocol", "journal", "auth", "concurrency", "json_logging", "data_folder"},
    {"settings", "store"},
    {"ingest", "loader", "reports"},
    {"backup", "engine", "dashboards", "client"},
    {"doctor", "transfer"},
    {"http"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
# Packages from outside, each with the only rooms that may import it.
ONLY_IN = {
    "duckdb": {"store"},
    "nanoarrow": {"store"},
    "starlette": {"http"},
    "uvicorn": {"http"},
    "jinja2": {"http"},
    "itsdangerous": {"http"},
    "typer": {"cli"},
    "pydantic": {"auth", "protocol", "settings", "http", "dashboards"},
    "vl_convert": {"http", "dashboards"},
}
IMPURE = {"time", "datetime", "os", "pathlib", "io", "socket", "asyncio", "random", "secrets", "uuid", "uuid_utils"}


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


def layer_of(module: str) -> int:
    room = module.split(".")[0]
    return next(index for index, rooms in enumerate(LAYERS) if room in rooms)


def test_each_room_has_one_layer() -> None:
    assert sorted(room for rooms in LAYERS for room in rooms) == sorted({name.split(".")[0] for name in MODULES})


def test_modules_import_lower_layers_and_their_own_room() -> None:
    wrong = [
        f"{module} imports {other}"
        for module in MODULES
        for other in own_modules_imported_by(module)
        if other.split(".")[0] != module.split(".")[0] and layer_of(other) >= layer_of(module)
    ]
    assert wrong == []


def test_no_imports_form_a_cycle() -> None:
    TopologicalSorter({module: own_modules_imported_by(module) for module in MODULES}).prepare()


@pytest.mark.parametrize(("package", "rooms"), ONLY_IN.items())
def test_a_package_is_imported_by_its_rooms_alone(package: str, rooms: set[str]) -> None:
    importing = {
        module.split(".")[0]
        for module in MODULES
        if any(name == package or name.startswith(f"{package}.") for name in imported_by(module))
    }
    assert importing == rooms


def test_the_protocol_touches_no_clock_disk_network_or_environment() -> None:
    assert sys.stdlib_module_names | {"uuid_utils"} >= IMPURE
    assert {
        name: found for name in MODULES if name.startswith("protocol") and (found := IMPURE & imported_by(name))
    } == {}


def test_packages_re_export_nothing() -> None:
    assert [name for name in PACKAGES if imported_by(name)] == []
