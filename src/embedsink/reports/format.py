"""The file formats of rows. They are apart from their writers, so that `--help` imports nothing slow."""

from enum import StrEnum


class Format(StrEnum):
    """A file format, by its suffix in URLs and file names."""

    JSON = "json"
    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"
    ARROW = "arrow"


# The formats of reports. Those of raw events differ.
REPORT_FORMATS = (Format.JSON, Format.CSV, Format.PARQUET, Format.ARROW)
