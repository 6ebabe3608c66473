"""The store: the one package that imports duckdb, and the one that knows where tables live.

`Store` is the server's own database. `open_snapshot` reads a published copy. Both answer with a `Reader`.
"""

from embedsink.store.database import Ledger, Store
from embedsink.store.examination import COMPARED_MAX, Segments, examine_snapshot, find_segments
from embedsink.store.failures import SqlUnfit, StoreBroken, StoreDamaged, StoreRefused, is_disk_full
from embedsink.store.limits import StoreLimits
from embedsink.store.purging import PURGED_AT_ONCE, PurgeFilter
from embedsink.store.reader import EVERYTHING, OLDER_SNAPSHOT, Reader, frame_of_parquet, open_snapshot
from embedsink.store.salvage import Salvaged
from embedsink.store.schema import check_duckdb_version, create_views, refuse_newer
from embedsink.store.selection import Column, Selection
from embedsink.store.timezones import timezone_names, utc_of
from embedsink.store.verification import read_every_row

__all__ = [
    "COMPARED_MAX",
    "EVERYTHING",
    "OLDER_SNAPSHOT",
    "PURGED_AT_ONCE",
    "Column",
    "Ledger",
    "PurgeFilter",
    "Reader",
    "Salvaged",
    "Segments",
    "Selection",
    "SqlUnfit",
    "Store",
    "StoreBroken",
    "StoreDamaged",
    "StoreLimits",
    "StoreRefused",
    "check_duckdb_version",
    "create_views",
    "examine_snapshot",
    "find_segments",
    "frame_of_parquet",
    "is_disk_full",
    "open_snapshot",
    "read_every_row",
    "refuse_newer",
    "timezone_names",
    "utc_of",
]
