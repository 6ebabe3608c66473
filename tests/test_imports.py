"""The house's floors: imports point one way (design: cli → http → services → storage → words). Read from the source."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "embedsink"
# All but the package's own face, which hands a few names on, lazily.
MODULES = sorted(set(SOURCE.rglob("*.py")) - {SOURCE / "__init__.py"})

# From the ground up. A module may import what stands on its own floor or below.
FLOORS: list[set[str]] = [
    {
        "acceptor",
        "reasons",
        "busyness",
        "blocks",
        "clock_watch",
        "last_sealed",
        "loopback",
        "memory",
        "opaque",
        "permissions",
        "priority",
        "resting",
        "row_format",
        "sharing",
        "sqlfiles",
        "quarantine_budget",
        "recovery",
        "renaming",
        "repair",
        "segment",
        "space",
        "web",
    },
    {"errors"},
    {"envelope", "logs", "folder", "keys", "numbered_lines", "limiter", "backlog", "fair_queue"},
    {"ingest"},
    {"ingest_worker"},
    {"ingest_pool"},
    {"aside", "copying", "journal", "pace", "store", "snapshot", "settings"},
    {"arrivals", "intake", "loader_status", "rebuild", "reports", "store_room", "syncs"},
    {"publisher"},
    {"loader_tasks"},
    {"loader"},
    {"live"},
    {"backup", "sink", "doctor", "remote", "charts"},
    {"quarantine", "deliveries", "client", "pictures"},
    {"transfer"},
    {"http"},
    {"serving"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
ONLY_IN = {
    "duckdb": {"store"},
    "nanoarrow": {"store"},
    "numpy": {"blocks", "client"},
    "starlette": {"http"},
    "uvicorn": {"http", "serving"},
    "jinja2": {"http"},
    "markupsafe": {"http"},
    "typer": {"cli"},
    "pydantic": {"envelope", "settings", "http", "charts"},
    "itsdangerous": {"http"},
    "vl_convert": {"http", "pictures"},
}


def room_of(path: Path) -> str:
    """The module or package directly below embedsink in which a file lies."""
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported_by(path: Path) -> set[str]:
    """The full names that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def floor_of(room: str) -> int:
    return next(floor for floor, rooms in enumerate(FLOORS) if room in rooms)


def rooms_imported_by(path: Path) -> set[str]:
    rooms = {name.split(".")[1] for name in imported_by(path) if name.startswith("embedsink.")}
    return {room for room in rooms if any(room in floor for floor in FLOORS)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward(path: Path) -> None:
    room = room_of(path)
    upward = {other for other in rooms_imported_by(path) if floor_of(other) > floor_of(room)}

    assert not upward, f"{path.name} stands on floor {floor_of(room)} and imports {upward} from above"


@pytest.mark.parametrize(("package", "rooms"), ONLY_IN.items())
def test_a_package_is_imported_where_it_belongs(package: str, rooms: set[str]) -> None:
    importing = {
        room_of(path)
        for path in MODULES
        if any(name == package or name.startswith(f"{package}.") for name in imported_by(path))
    }

    assert importing <= rooms


def test_the_envelope_touches_no_clock_disk_network_or_environment() -> None:
    outside = {
        "time",
        "datetime",
        "os",
        "pathlib",
        "io",
        "socket",
        "asyncio",
        "random",
        "secrets",
        "uuid",
        "uuid_utils",
    }

    for path in (SOURCE / "envelope").glob("*.py"):
        assert not outside & imported_by(path), f"{path.name} is not pure"


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in MODULES} == set().union(*FLOORS)


def test_no_two_rooms_import_each_other() -> None:
    edges = {(room_of(path), other) for path in MODULES for other in rooms_imported_by(path)}

    assert not {(a, b) for a, b in edges if a < b and (b, a) in edges}
