"""Redaction as at the doors of a server, and without rules for tests of journal lines."""

from embedsink.privacy.redaction import Privacy, StorableDelivery, StorableRejection
from embedsink.protocol.delivery import ParsedDelivery, Rejection

KEEP_ALL = Privacy()


def storable(parsed: ParsedDelivery) -> StorableDelivery:
    """Return a delivery with all of its values."""
    return redact(KEEP_ALL, parsed)


def redact(privacy: Privacy, parsed: ParsedDelivery, *, is_opted_out: bool = False) -> StorableDelivery:
    """Return a delivery as it is stored."""
    return privacy.redact(privacy.reject_erased(parsed), is_opted_out=is_opted_out)


def storable_rejection(rejection: Rejection) -> StorableRejection:
    """Return a rejection with all of its values."""
    return KEEP_ALL.redact_unreadable(rejection)
