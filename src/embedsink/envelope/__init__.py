"""Spec 6: what an envelope is, and whether this one is valid. Knows no clock, disk, network or environment."""

from embedsink.envelope.lines import (
    NewId,
    body_rejection_line,
    counted_lines,
    first_id,
    journal_lines,
    read_syncs,
    rejection_lines,
    replayed_line,
    sync_line,
)
from embedsink.envelope.parsing import REJECTIONS_LISTED_MAX, Parsed, Rejection, Rules, parse, parse_plain
from embedsink.envelope.sync import COUNT_FIELD, Sync, digest_of

__all__ = [
    "COUNT_FIELD",
    "REJECTIONS_LISTED_MAX",
    "NewId",
    "Parsed",
    "Rejection",
    "Rules",
    "Sync",
    "body_rejection_line",
    "counted_lines",
    "digest_of",
    "first_id",
    "journal_lines",
    "parse",
    "parse_plain",
    "read_syncs",
    "rejection_lines",
    "replayed_line",
    "sync_line",
]
