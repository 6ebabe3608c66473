"""Redaction without rules, for tests of journal lines."""

from embedsink.privacy.redaction import Privacy, StorableDelivery, StorableRejection
from embedsink.protocol.delivery import ParsedDelivery, Rejection

KEEP_ALL = Privacy()


def storable(parsed: ParsedDelivery) -> StorableDelivery:
    """Return a delivery with all of its values."""
    return KEEP_ALL.redact(parsed)


def storable_rejection(rejection: Rejection) -> StorableRejection:
    """Return a rejection with all of its values."""
    return KEEP_ALL.redact_unreadable(rejection)
