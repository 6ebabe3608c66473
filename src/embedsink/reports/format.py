"""How rows can be written. Apart from what writes them, which is heavy: `--help` names these, too."""

from enum import StrEnum


class Format(StrEnum):
    """How rows are written: the suffix of their address and of their file."""

    JSON = "json"
    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"
    ARROW = "arrow"


# What a report has; raw events have others.
REPORT_FORMATS = (Format.JSON, Format.CSV, Format.PARQUET, Format.ARROW)
