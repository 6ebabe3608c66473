"""Spec 6: what an envelope is, and whether this one is valid. Knows no clock, disk, network or environment."""

from embedsink.envelope.lines import body_rejection_line, journal_lines, replayed_line
from embedsink.envelope.parsing import REJECTIONS_LISTED_MAX, Accepted, Parsed, Rejection, Rules, parse

__all__ = [
    "REJECTIONS_LISTED_MAX",
    "Accepted",
    "Parsed",
    "Rejection",
    "Rules",
    "body_rejection_line",
    "journal_lines",
    "parse",
    "replayed_line",
]
