"""The export of raw events: NDJSON deliveries that `import` reads, or the rows of the event table.

event table ─▶ export ─▶ NDJSON, one delivery a line ─▶ import ─▶ the same rows with the same ids
"""

from collections.abc import Iterator
from pathlib import Path

from embedsink.reports.csv_writer import csv_chunks
from embedsink.store.reader import Reader

TABLE = "event"
DELIVERY_VIEW = "event_export"


def export_ndjson(reader: Reader) -> Iterator[bytes]:
    """Yield chunks of NDJSON. Each line is a delivery with one event or action, its id and its times."""
    for rows in reader.rows(DELIVERY_VIEW):
        yield "".join([f"{delivery}\n" for (delivery,) in rows]).encode()


def export_csv(reader: Reader) -> Iterator[bytes]:
    """Yield the rows of the event table as CSV. Text that looks like a formula gets an apostrophe."""
    return csv_chunks(reader, TABLE)


def export_parquet(reader: Reader, path: Path) -> None:
    """Write the rows of the event table to a Parquet file."""
    reader.write_parquet(TABLE, path)
