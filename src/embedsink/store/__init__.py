"""The store: the one package that imports duckdb, and the one that knows where tables live.

`Store` is the server's own database. `open_snapshot` reads a published copy. Both answer with a `Reader`.
"""

from embedsink.store.database import Ledger, Store
from embedsink.store.failures import SqlUnfit, StoreBroken, StoreDamaged, StoreRefused
from embedsink.store.limits import StoreLimits
from embedsink.store.reader import EVERYTHING, Reader, frame_of_parquet, open_snapshot
from embedsink.store.schema import check_duckdb_version, create_views, refuse_newer
from embedsink.store.selection import Column, Selection
from embedsink.store.timezones import timezone_names, utc_of

__all__ = [
    "EVERYTHING",
    "Column",
    "Ledger",
    "Reader",
    "Selection",
    "SqlUnfit",
    "Store",
    "StoreBroken",
    "StoreDamaged",
    "StoreLimits",
    "StoreRefused",
    "check_duckdb_version",
    "create_views",
    "frame_of_parquet",
    "open_snapshot",
    "refuse_newer",
    "timezone_names",
    "utc_of",
]
