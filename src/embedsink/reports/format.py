"""The file formats of rows. The writers are in another module, because `--help` must not import them: they are slow."""

from enum import StrEnum


class Format(StrEnum):
    """A file format, by its suffix in URLs and file names."""

    JSON = "json"
    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"
    ARROW = "arrow"


# The formats of reports. Raw events have CSV, NDJSON and Parquet.
REPORT_FORMATS = (Format.JSON, Format.CSV, Format.PARQUET, Format.ARROW)
